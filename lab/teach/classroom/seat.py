"""The start of a seat's container: fill the home directory, then start the Jupyter server.

The image runs it as `python -P -m lab.teach.classroom.seat`, with arguments for
jupyterhub-singleuser. `-P` keeps the current directory out of Python's path: the student owns the
home directory.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from lab.base.errors import LabError
from lab.base.files import atomic_writer
from lab.base.shipped import files_of
from lab.base.text import visible
from lab.base.variables import LAB_CLUSTER_CONFIG
from lab.cluster.project import DEFAULT_CLUSTER
from lab.protocol.network.host_block import ROUTES, is_blocked
from lab.protocol.volume.files import open_regular

PROJECT: Final = Path("/lab")
"""The project's directory in the image."""

PARTS: Final = (
    *("notebooks", "scripts", "clusters", "docs"),
    *("data/README.md", "benchmarks/scaling.json", DEFAULT_CLUSTER),
)
"""What a student gets of the project: a copy to edit. Hidden files are an editor's."""

ISOLATION_S: Final = 60.0
"""Seconds within which JupyterHub must block the host."""

_POLL_S: Final = 0.1
_SOURCE: Final = re.compile(r"\d\d_\w+\.(?:md|py)")
"""The sources of notebooks, which are for developers."""


def wait_until_isolated(routes: Path = Path(ROUTES), wait_s: float = ISOLATION_S) -> None:
    """Return when this container cannot reach services of the host.

    JupyterHub blocks the host after the start of the container. Nothing of the student's runs
    before that: no kernel, no terminal. A container without a network needs no block.

    Args:
        routes: The file with the container's IPv4 routes.
        wait_s: The time limit in seconds.

    Raises:
        LabError: The host is not blocked in time.
    """
    until = time.monotonic() + wait_s
    while (lines := routes.read_text(encoding="ascii")).count("\n") > 1 and not is_blocked(lines):
        if time.monotonic() > until:
            raise LabError(
                f"the host is not blocked after {wait_s:g} s", "read JupyterHub's log, hub.log"
            )
        time.sleep(_POLL_S)


def fill(folder: Path, variables: Mapping[str, str], project: Path = PROJECT) -> None:
    """Copy the project's files that are missing in a directory. Existing files stay as they are.

    Args:
        folder: The student's home directory.
        variables: The environment variables: `LAB_CLUSTER_CONFIG`.
        project: The project's directory in the image.

    Raises:
        OSError: The directory cannot be written.
    """
    if config := variables.get(LAB_CLUSTER_CONFIG):
        _write_new(folder / DEFAULT_CLUSTER, io.BytesIO(config.encode()))
    for name, path in files_of(PARTS, project):
        if not _SOURCE.fullmatch(path.name):
            _write_new(folder / name, open_regular(path))


def _write_new(target: Path, content: IO[bytes]) -> None:
    # A dangling link is the student's own, too.
    with content:
        if not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_writer(target, durable=False) as file:
                shutil.copyfileobj(content, file)


def main(arguments: list[str]) -> None:
    """Prepare the seat, and replace this process by jupyterhub-singleuser."""
    try:
        wait_until_isolated()
    except LabError as error:
        sys.exit(f"error: {error}")
    try:
        fill(Path.home(), os.environ)
    except OSError as error:
        # Start the server anyway, so that the student can delete files on a full disk.
        reason = visible(f"{error.strerror}: {error.filename}")
        sys.stderr.write(f"lab: the home directory is not complete: {reason}\n")
    os.chdir(Path.home())
    server = Path(sys.executable).with_name("jupyterhub-singleuser")
    os.execv(server, [str(server), *arguments])  # noqa: S606  (the same process, for signals)


if __name__ == "__main__":
    main(sys.argv[1:])
