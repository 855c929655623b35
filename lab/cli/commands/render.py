"""`lab render`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from lab.backends.choose import AUTO
from lab.cli import planning
from lab.cli.arguments import Flag, Switch
from lab.cli.options import (
    ClusterFile,
    ClusterWord,
    Explain,
    Force,
    GpuMode,
    Strict,
    Tensorflow,
)
from lab.cli.output import say
from lab.cli.values import text
from lab.cluster import load_cluster
from lab.errors import InputError, LabError
from lab.images import CURRENT, IMAGES
from lab.outputs import check_output
from lab.render import is_rendered, recorded, render_file, render_plan, stale_diff, write
from lab.run.project import cluster_path


def command(
    *,
    file: ClusterWord = None,
    cluster: ClusterFile = None,
    check: Annotated[
        bool, Switch("write nothing; exit 1 and a diff when the file is stale")
    ] = False,
    gpus: GpuMode = AUTO,
    explain: Explain = False,
    strict: Strict = False,
    tensorflow: Tensorflow = None,
    output: Annotated[str, Flag("the file to write, or - for stdout", text, shows="FILE")] = (
        "docker-compose.yml"
    ),
    force: Force = False,
) -> None:
    """Render the description as a compose file."""
    path = cluster_path(cluster, file)
    if check and (explain or strict):
        # Whether a file is stale must not depend on who uses the box at the moment.
        word = "--explain" if explain else "--strict"
        raise InputError(f"--check only compares: {word} means nothing to it", f"leave out {word}")
    if check:
        _check(path, Path(output), gpus, tensorflow)
        return
    if output != "-":
        check_output("--output", Path(output), is_rendered, force=force)
    draft = planning.draft(
        load_cluster(path), gpus, explain=explain, tensorflow=tensorflow or CURRENT.tensorflow
    )
    draft.heed(strict=strict)
    if output == "-":
        sys.stdout.write(render_plan(draft.plan, path))
    else:
        target = Path(output)
        write(target, render_plan(draft.plan, path, relative_to=target.parent))
        say(f"{output} is written; boot it with {_boot_command(target)}")


def _boot_command(file: Path) -> str:
    default = file.name == "docker-compose.yml" and file.parent == Path()
    return "`docker compose up`" if default else f"`docker compose --file {file} up`"


def _check(path: Path, output: Path, gpus: str, tensorflow: str | None) -> None:
    if str(output) == "-":
        raise InputError("--check needs a file", "leave out --output -")
    if not output.is_file():
        raise LabError(f"{output} is missing", "write it with `lab render`")
    found = recorded(output)
    # What nobody asked for is as the file has it.
    mode = found.mode if found and gpus == AUTO else gpus
    version = tensorflow or (found.tensorflow if found else CURRENT.tensorflow)
    version = version if version in IMAGES else CURRENT.tensorflow
    text = render_file(path, mode, tensorflow=version, relative_to=output.parent)
    diff = stale_diff(output, text)
    if diff:
        sys.stdout.write(diff)
        raise LabError(f"{output} is stale", f"write it anew with `lab render {path}`")
    say(f"{output} is up to date")
