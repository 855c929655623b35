"""`lab import FILE…`.

An imported run is data: `lab show`, `compare`, `report` and others read it. No command resumes,
follows, cancels or collects it, and `last` never means it.

Examples:
    # the run of another machine
    lab import 20260101-0000-async-aaaa.lab.zip
    # into another run store
    lab import 20260101-0000-async-aaaa.lab.zip --runs-dir class
"""

# ruff: noqa: N999  (the command's name is a keyword of Python)

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lab.console import print_json
from lab.log import LOG
from lab.options import Argument, Arguments
from lab.options.shared import AsJson, RunsDir
from lab.service.archive import import_runs
from lab.store.directory import runs_dir


def command(
    *,
    file: Annotated[str, Argument("an archive that `lab export` wrote", shows="FILE")],
    files: Annotated[tuple[str, ...], Arguments("further archives", shows="FILE")] = (),
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Read archives of runs into the run store: all of them, or none."""
    found = import_runs([Path(each) for each in (file, *files)], runs_dir(runs_dir_))
    if json:
        print_json([each.to_json() for each in found])
        return
    for each in found:
        if each.is_new:
            LOG.info(f"run {each.run.run_id} is imported into {each.run.path}")
        else:
            LOG.info(f"run {each.run.run_id} is already there: {each.run.path}")
