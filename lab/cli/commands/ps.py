"""`lab ps`.

Examples:
    # the environment of ./cluster.yaml
    lab ps
    # one by its name, for a program
    lab ps mnist --json
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from lab.backends.choose import backends, named
from lab.cli.arguments import Word
from lab.cli.options import AsJson
from lab.cli.output import print_json
from lab.run.cells import show, table_of
from lab.run.lifecycle import explain
from lab.run.project import default_name
from lab.run.standing import GONE
from lab.run.whereabouts import statuses_of
from lab.task.protocol import TaskStatus
from lab.task.states import Cause, State


def command(
    *,
    name: Annotated[
        str | None, Word("the environment (default: the one of ./cluster.yaml)")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the tasks of an environment, and where its newest run stands."""
    environment = named(name, default_name(), backends())
    requests = environment.runs()
    newest = requests[-1].run_id if requests else None
    statuses = statuses_of(environment, newest) if newest else {}
    tasks = environment.tasks()
    if not any(task.alive for task in tasks):
        statuses = {name: _lost(status) for name, status in statuses.items()}
    rows = []
    for task in tasks:
        status = statuses.get(task.task)
        rows.append(
            {
                "task": task.task,
                "node": task.node,
                "address": task.address,
                "gpus": list(task.gpus),
                "alive": task.alive,
                "detail": task.detail,
                "run": newest,
                "state": status.state.value if status else None,
                "reason": status.reason if status else "",
                "cause": status.cause if status else None,
            }
        )
    if json:
        print_json(rows)
        return
    title = f"in run {newest}" if newest else "in no run"
    cells = [
        (
            str(row["task"]),
            str(row["node"]),
            str(row["address"]),
            " ".join(task.gpus) or "none",
            task.detail if task.alive else f"gone ({task.detail})",
            explain(statuses[task.task]) if task.task in statuses else "waiting",
        )
        for row, task in zip(rows, tasks, strict=True)
    ]
    show(table_of(("task", "node", "address", "gpus", "agent", title), cells))


def _lost(status: TaskStatus) -> TaskStatus:
    """A task's state where no agent is left that could have written another one."""
    if status.state.ended:
        return status
    return replace(status, state=State.LOST, reason=GONE, cause=Cause.NODE_LOST)
