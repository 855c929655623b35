"""`lab bundle OUTPUT`.

The archive has the images of the config, the wheels of lab and its packages for this Python and
platform, the programs, configs and notebooks of the project, the MNIST images and the documents.
Certificates, keys and runs are not in it. It is not compressed.

Copy it to the room, and compare its SHA-256 there. README.txt in it says what to type.

Examples:
    # what one person needs, with containers and processes
    lab bundle room.tar
    # for a class, with its image
    lab bundle room.tar --class class.yaml
    # some days later: only what has changed
    lab bundle news.tar --class class.yaml --since room.tar
    # also for programs of PyTorch, without images
    lab bundle laptops.tar --framework tensorflow --framework torch --no-images
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.filesize import decimal

from lab.backends.names import AUTO
from lab.bundle.writing import Wanted, write
from lab.console import print_json
from lab.formatting import counted
from lab.log import LOG
from lab.options import Argument, Flag, RepeatedFlag, Switch
from lab.options.shared import AsJson, ClusterFile, Force, GpuMode
from lab.options.types import one_of
from lab.runtimes import RUNTIMES


def command(
    *,
    output: Annotated[str, Argument("the archive to write")],
    since: Annotated[
        str | None, Flag("leave out what this earlier bundle has", shows="BUNDLE")
    ] = None,
    cluster: ClusterFile = None,
    class_: Annotated[
        str | None, Flag("the config of a class, for its image", shows="FILE")
    ] = None,
    framework: Annotated[
        tuple[str, ...],
        RepeatedFlag(
            f"a framework of the tasks: {', '.join(RUNTIMES)}", one_of(*RUNTIMES), shows="NAME"
        ),
    ] = (),
    gpus: GpuMode = AUTO,
    no_images: Annotated[bool, Switch("leave out the images of containers")] = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Write one archive with all that a room without a network needs; `lab load` reads it."""
    wanted = Wanted.of(cluster, gpus, framework, class_, with_images=not no_images)
    written = write(Path(output), wanted, Path(since) if since else None, force=force)
    if json:
        print_json(written.to_json())
        return
    parts = [
        counted(written.files, "file"),
        counted(written.wheels, "wheel"),
        *(written.images or ["no images"]),
    ]
    LOG.info(f"{written.file}: {decimal(written.bytes)}; {', '.join(parts)}")
    if written.since:
        LOG.info(f"left out {decimal(written.left_out_bytes)}, which {written.since} has")
    print(f"{written.sha256}  {written.file}")
