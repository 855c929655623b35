"""`lab init`.

Examples:
    # cluster.yaml, from the GPUs that the driver reports
    lab init
    # for another host with 4 GPUs, printed to stdout
    lab init --gpus 4 --output -
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

from lab.backends.names import AUTO
from lab.backends.rendered_file import write
from lab.config import parse_cluster
from lab.config.schema import FILE as SCHEMA
from lab.errors import InputError
from lab.gpu import chosen_host
from lab.log import LOG
from lab.options import Flag, Switch
from lab.options.shared import HostGpus
from lab.options.types import text, whole
from lab.outputs import check_output
from lab.placement.config_generator import (
    Options,
    check_name,
    describe_host,
    generate,
    name_from,
    summary,
)
from lab.placement.place import place
from lab.project import DEFAULT_CLUSTER, SCRIPTS
from lab.text import short

_MAX: Final = 1000


def command(
    *,
    name: Annotated[
        str | None, Flag("the project's name (default: the directory's)", shows="NAME")
    ] = None,
    gpus: HostGpus = AUTO,
    workers: Annotated[
        int | None, Flag("the number of workers (default: as fits)", whole(1, _MAX), shows="N")
    ] = None,
    ps: Annotated[int, Flag("the number of parameter servers", whole(1, _MAX), shows="N")] = 1,
    nodes: Annotated[
        int | None,
        Flag("the number of pseudo-nodes (default: as fits)", whole(1, _MAX), shows="N"),
    ] = None,
    output: Annotated[str, Flag("the file to write, or - for stdout", text, shows="FILE")] = (
        DEFAULT_CLUSTER
    ),
    force: Annotated[bool, Switch("replace an existing file")] = False,
) -> None:
    """Write a cluster config for this host, or for another one."""
    path = Path(DEFAULT_CLUSTER if output == "-" else output)
    if output != "-":
        _check_free(path, force=force)
    chosen = name_from(path.absolute().parent.name) if name is None else check_name(name)
    inventory = chosen_host(gpus)
    for notice in inventory.notices:
        LOG.info(notice)
    options = Options(workers, ps, nodes)
    text = generate(inventory, chosen, options, schema=_schema(path))
    # The generated file must pass the same checks as a file that a user writes.
    place(parse_cluster(text.encode(), str(path)), inventory)
    host = "this host" if isinstance(gpus, str) else "that host"
    if output == "-":
        sys.stdout.write(text)
        return
    write(path, text)
    LOG.info(f"{host} has {describe_host(inventory)}")
    LOG.info(f"wrote {output}: {chosen}, {summary(inventory, options)}")
    _report_next_steps(path, elsewhere=not isinstance(gpus, str))


def _check_free(path: Path, *, force: bool) -> None:
    check_output("--output", path, lambda _begin: True, force=force)
    if (path.is_file() or path.is_symlink()) and not force:
        raise InputError(
            f"{short(str(path))} already exists",
            "replace it with --force, or name another file with --output",
        )


def _schema(path: Path) -> str | None:
    """Return the relative path of the schema for editors; None outside the project."""
    folder = path.absolute().parent
    project = SCHEMA.parents[2]
    if not folder.is_relative_to(project):
        return None
    return Path(os.path.relpath(SCHEMA, folder)).as_posix()


def _report_next_steps(path: Path, *, elsewhere: bool) -> None:
    named = "" if str(path) == DEFAULT_CLUSTER else f" --cluster {shlex.quote(str(path))}"
    folders = path.absolute().parents
    if not any((folder / SCRIPTS).is_dir() for folder in folders):
        shipped = SCHEMA.parents[2] / SCRIPTS
        here = shlex.quote(str(path.parent))
        if shipped.is_dir():
            how = f"copy lab's with `cp -r {shlex.quote(str(shipped))} {here}`"
        else:
            how = f"copy {SCRIPTS}/ from lab's repository to {here}"
        LOG.info(f"no directory {SCRIPTS}/ with programs in {here} or above it; {how}")
    if elsewhere:
        LOG.info(f"render it for that host with `lab render --gpus index{named}`")
    else:
        LOG.info(f"train with `lab run async --epochs 2{named}`")
