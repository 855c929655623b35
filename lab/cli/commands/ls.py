"""`lab ls`.

Examples:
    # all environments, from any directory
    lab ls
    # as JSON
    lab ls --json
"""

from __future__ import annotations

from lab.backends import Environment
from lab.backends.registry import backends
from lab.backends.selection import list_all
from lab.console import print_json
from lab.errors import LabError
from lab.log import LOG
from lab.options.shared import AsJson
from lab.tables import show, table_of


def command(*, json: AsJson = False) -> None:
    """List all environments, including those that have stopped but are not removed."""
    rows = []
    for environment in list_all(backends()):
        tasks = environment.tasks()
        rows.append(
            {
                "name": environment.project,
                "backend": environment.backend,
                "tasks": len(tasks),
                "alive": sum(task.alive for task in tasks),
                "runs": _runs(environment),
                "cluster_sha256": environment.cluster_sha256,
            }
        )
    if json:
        print_json(rows)
    elif not rows:
        LOG.info("no environment is up; boot one with `lab up`")
    else:
        cells = [
            (
                str(row["name"]),
                str(row["backend"]),
                f"{row['alive']}/{row['tasks']}",
                "?" if row["runs"] is None else str(row["runs"]),
            )
            for row in rows
        ]
        show(table_of(("environment", "backend", ">tasks alive", ">runs"), cells))


def _runs(environment: Environment) -> int | None:
    """Return the number of runs on an environment's run volume; None if it cannot be read."""
    try:
        return len(environment.runs())
    except LabError:
        return None
