"""`lab ps [ENVIRONMENT]`.

Examples:
    # all environments, from any directory
    lab ps
    # the tasks of one environment, as JSON
    lab ps mnist --json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import overload

from rich.table import Table

from lab.backends.environment import Environment, TaskInfo
from lab.backends.registry import backends
from lab.backends.selection import list_all
from lab.base.errors import LabError
from lab.base.formatting import whole
from lab.base.options import verb
from lab.base.tables import fitting, table_of, terminal_width, wrapped
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import Cause, State
from lab.runner.lifecycle import statuses_of
from lab.runner.verdict import GONE, explain
from lab.verbs.common_options import EnvironmentArgument
from lab.verbs.inputs import find_environment
from lab.verbs.printing import Note, Tabular, prints


@dataclass(frozen=True, slots=True)
class Listed:
    """An environment in a list.

    Attributes:
        name: Its name.
        backend: Its backend.
        tasks: The number of its tasks.
        alive: The number of tasks whose agent runs.
        runs: The number of runs on its run volume; None: it cannot be read.
        cluster_sha256: The digest of its config.
        directory: The project in which it was booted; "" if it is unknown.
    """

    name: str
    backend: str
    tasks: int
    alive: int
    runs: int | None
    cluster_sha256: str
    directory: str


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of an environment.

    Attributes:
        task: The task, and its agent.
        run: The newest run of the environment, if there is one.
        status: The status of the task in that run; None: it waits.
    """

    task: TaskInfo
    run: str | None
    status: TaskStatus | None

    def to_json(self) -> dict[str, object]:
        """Return all of it as a JSON value."""
        status = self.status
        return {
            **asdict(self.task),
            "run": self.run,
            "state": status.state.value if status else None,
            "reason": status.reason if status else "",
            "cause": status.cause if status else None,
        }


class Environments(Tabular, list[Listed]):
    """All environments, as a table."""

    def _shown(self) -> Iterator[Table | str]:
        if not self:
            yield Note("no environment is up; boot one with `lab up`")
            return
        columns = ("environment", "backend", ">tasks alive", ">runs", "directory")
        cells = [
            (each.name, each.backend, f"{each.alive}/{each.tasks}", whole(each.runs) or "?",
             each.directory)
            for each in self
        ]  # fmt: skip
        yield wrapped(table_of(columns, cells), 4)


class Tasks(Tabular, list[TaskRow]):
    """The tasks of an environment, as a table."""

    def to_json(self) -> list[dict[str, object]]:
        """Return the facts of each."""
        return [each.to_json() for each in self]

    def _shown(self) -> Iterator[Table]:
        newest = next((row.run for row in self), None)
        title = f"in run {newest}" if newest else "in no run"
        columns = ("task", "node", "address", "gpus", "agent", title)
        cells = [
            (
                task.task,
                task.node,
                task.address,
                " ".join(task.gpus) or "none",
                task.detail if task.alive else f"not running ({task.detail})",
                explain(status) if status else "waiting",
            )
            for task, status in ((row.task, row.status) for row in self)
        ]
        # Names stay in one piece; a narrow terminal wraps the rest, and cuts nothing.
        width = terminal_width(sys.stdout)
        yield fitting(columns, cells, width=width, whole=columns[2:])[0]


@overload
def ps(name: None = None) -> Environments: ...


@overload
def ps(name: str) -> Tasks: ...


@verb
def ps(name: EnvironmentArgument = None) -> Environments | Tasks:
    """List all environments, or the tasks of one and the status of its newest run.

    Args:
        name: List the tasks of this environment (default: list all environments, including
            stopped ones that were not removed).

    Raises:
        InputError: No environment has this name.
        LabError: A backend does not answer, or the run volume cannot be read.
    """
    return _environments() if name is None else _tasks(find_environment(name))


def _environments() -> Environments:
    rows = Environments()
    for up in list_all(backends()):
        tasks = up.tasks()
        alive, runs = sum(task.alive for task in tasks), _run_count(up)
        of_config = up.cluster_sha256, up.folder
        rows.append(Listed(up.project, up.backend, len(tasks), alive, runs, *of_config))
    return rows


def _tasks(environment: Environment) -> Tasks:
    requests, tasks = environment.runs(), environment.tasks()
    newest = requests[-1].run_id if requests else None
    statuses = statuses_of(environment, newest) if newest else {}
    if not any(task.alive for task in tasks):
        statuses = {name: _lost(status) for name, status in statuses.items()}
    return Tasks(TaskRow(task, newest, statuses.get(task.task)) for task in tasks)


def _run_count(environment: Environment) -> int | None:
    """Return the number of runs on an environment's run volume; None if it cannot be read."""
    try:
        return len(environment.runs())
    except LabError:
        return None


def _lost(status: TaskStatus) -> TaskStatus:
    """Return a task's status when no agent runs that could update it."""
    if status.state.ended:
        return status
    return replace(status, state=State.LOST, reason=GONE, cause=Cause.NODE_LOST)


command = prints(ps)
