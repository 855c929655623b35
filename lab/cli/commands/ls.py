"""`lab ls`."""

from __future__ import annotations

from lab.backends.choose import backends, environments
from lab.cli.options import AsJson
from lab.cli.output import print_json, say
from lab.run.view import show, table_of


def command(*, json: AsJson = False) -> None:
    """List the environments that are up."""
    rows = []
    for environment in environments(backends()):
        tasks = environment.tasks()
        rows.append(
            {
                "name": environment.project,
                "backend": environment.backend,
                "tasks": len(tasks),
                "alive": sum(task.alive for task in tasks),
                "runs": len(environment.runs()),
                "cluster_sha256": environment.cluster_sha256,
            }
        )
    if json:
        print_json(rows)
    elif not rows:
        say("no environment is up; boot one with `lab up`")
    else:
        cells = [
            (
                str(row["name"]),
                str(row["backend"]),
                f"{row['alive']}/{row['tasks']}",
                str(row["runs"]),
            )
            for row in rows
        ]
        show(table_of(("environment", "backend", ">tasks alive", ">runs"), cells))
