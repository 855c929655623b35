"""`lab ls`.

Examples:
    # all environments, from any directory
    lab ls
    # as JSON
    lab ls --json
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from lab.api.environments import Listed, ls
from lab.console import print_json
from lab.log import LOG
from lab.options import presents
from lab.options.shared import AsJson
from lab.tables import show, table_of


@presents(ls)
def command(listed: Callable[[], list[Listed]], *, json: AsJson = False) -> None:
    """List all environments, including those that have stopped but are not removed."""
    rows = listed()
    if json:
        print_json([asdict(row) for row in rows])
    elif not rows:
        LOG.info("no environment is up; boot one with `lab up`")
    else:
        cells = [
            (
                row.name,
                row.backend,
                f"{row.alive}/{row.tasks}",
                "?" if row.runs is None else str(row.runs),
            )
            for row in rows
        ]
        show(table_of(("environment", "backend", ">tasks alive", ">runs"), cells))
