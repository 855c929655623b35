"""`lab ps [ENVIRONMENT]`.

Examples:
    # all environments, from any directory
    lab ps
    # the tasks of one environment, as JSON
    lab ps mnist --json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from lab.api.environments import Listed, TaskRow, ps
from lab.console import print_json
from lab.formatting import whole
from lab.log import LOG
from lab.options import presents
from lab.options.shared import AsJson
from lab.run.verdict import explain
from lab.tables import fitting, show, table_of, terminal_width, wrapped


@presents(ps)
def command(listed: partial[list[Listed] | list[TaskRow]], *, json: AsJson = False) -> None:
    """List all environments, or the tasks of one and the status of its newest run."""
    rows = listed()
    if json:
        print_json([row.to_json() for row in rows])
    elif listed.keywords.get("name") is not None:
        _show_tasks([row for row in rows if isinstance(row, TaskRow)])
    elif rows:
        _show_environments([row for row in rows if isinstance(row, Listed)])
    else:
        LOG.info("no environment is up; boot one with `lab up`")


def _show_environments(rows: Sequence[Listed]) -> None:
    cells = [
        (row.name, row.backend, f"{row.alive}/{row.tasks}", whole(row.runs) or "?", row.directory)
        for row in rows
    ]
    columns = ("environment", "backend", ">tasks alive", ">runs", "directory")
    show(wrapped(table_of(columns, cells), 4))


def _show_tasks(rows: Sequence[TaskRow]) -> None:
    newest = next((row.run for row in rows), None)
    title = f"in run {newest}" if newest else "in no run"
    cells = [
        (
            task.task,
            task.node,
            task.address,
            " ".join(task.gpus) or "none",
            task.detail if task.alive else f"not running ({task.detail})",
            explain(status) if status else "waiting",
        )
        for task, status in ((row.task, row.status) for row in rows)
    ]
    columns = ("task", "node", "address", "gpus", "agent", title)
    # Names stay in one piece; a narrow terminal wraps the rest, and cuts nothing.
    table, _ = fitting(columns, cells, width=terminal_width(sys.stdout), whole=columns[2:])
    show(table)
