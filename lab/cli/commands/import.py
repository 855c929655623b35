"""`lab import FILE…`.

An imported run is data: `lab show`, `compare`, `report` and others read it. No command resumes,
follows, cancels or collects it, and `last` never means it.

Examples:
    # the run of another machine
    lab import 20260101-0000-async-aaaa.lab.tar.gz
    # into another run store
    lab import 20260101-0000-async-aaaa.lab.tar.gz --runs-dir class
"""

# ruff: noqa: N999  (the command's name is a keyword of Python)

from __future__ import annotations

from collections.abc import Callable

from lab.api.archives import Imported, import_
from lab.console import print_json
from lab.log import LOG
from lab.options import presents
from lab.options.shared import AsJson


@presents(import_)
def command(imported: Callable[[], list[Imported]], *, json: AsJson = False) -> None:
    """Read archives of runs into the run store: all of them, or none."""
    found = imported()
    if json:
        print_json([each.to_json() for each in found])
        return
    for each in found:
        if each.is_new:
            LOG.info(f"run {each.run.run_id} is imported into {each.run.path}")
        else:
            LOG.info(f"run {each.run.run_id} is already there: {each.run.path}")
