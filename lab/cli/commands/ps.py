"""`lab ps`.

Examples:
    # the environment of ./cluster.yaml
    lab ps
    # an environment by its name, as JSON
    lab ps mnist --json
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

from lab.backends import TaskInfo
from lab.console import print_json
from lab.options import Argument
from lab.options.shared import AsJson
from lab.run.discovery import statuses_of
from lab.run.state import explain
from lab.run.status import GONE
from lab.service.environments import find_environment
from lab.tables import show, table_of
from lab.volume import TaskStatus
from lab.volume.states import Cause, State


def command(
    *,
    name: Annotated[
        str | None, Argument("the environment (default: the one of ./cluster.yaml)")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the tasks of an environment, and the status of its newest run."""
    environment = find_environment(name)
    requests = environment.runs()
    newest = requests[-1].run_id if requests else None
    statuses = statuses_of(environment, newest) if newest else {}
    tasks = environment.tasks()
    if not any(task.alive for task in tasks):
        statuses = {name: _lost(status) for name, status in statuses.items()}
    if json:
        print_json([_as_json(task, newest, statuses.get(task.task)) for task in tasks])
        return
    title = f"in run {newest}" if newest else "in no run"
    cells = [
        (
            task.task,
            task.node,
            task.address,
            " ".join(task.gpus) or "none",
            task.detail if task.alive else f"not running ({task.detail})",
            explain(statuses[task.task]) if task.task in statuses else "waiting",
        )
        for task in tasks
    ]
    show(table_of(("task", "node", "address", "gpus", "agent", title), cells))


def _as_json(task: TaskInfo, run: str | None, status: TaskStatus | None) -> dict[str, object]:
    return {
        **asdict(task),
        "run": run,
        "state": status.state.value if status else None,
        "reason": status.reason if status else "",
        "cause": status.cause if status else None,
    }


def _lost(status: TaskStatus) -> TaskStatus:
    """Return a task's status when no agent runs that could update it."""
    if status.state.ended:
        return status
    return replace(status, state=State.LOST, reason=GONE, cause=Cause.NODE_LOST)
