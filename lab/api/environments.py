"""Environments from Python: `lab up`, `lab down` and `lab ps`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, overload

from lab.api.inputs import project
from lab.backends.environment import Environment, TaskInfo
from lab.backends.gpu_verification import boot
from lab.backends.names import AUTO
from lab.backends.registry import backends, options_of
from lab.backends.selection import check_folder, list_all, resolve
from lab.config import Cluster
from lab.console import messages_shown
from lab.errors import InputError, LabError
from lab.options import Argument, Flag, Switch, reads_options
from lab.options.shared import BackendName, Framework, GpuMode, OwnOptions, RunsDir
from lab.project import AnyPath, default_name, default_root
from lab.run.lifecycle import statuses_of
from lab.run.prepared import PlaceOptions
from lab.run.removal import Confirm, remove, run_all
from lab.run.verdict import GONE
from lab.runtimes import TENSORFLOW
from lab.store.directory import runs_path
from lab.volume import TaskStatus
from lab.volume.states import Cause, State

EnvironmentArgument = Annotated[str | None, Argument(shows="ENVIRONMENT")]


@dataclass(frozen=True, slots=True)
class Booted:
    """An environment that is up.

    Attributes:
        environment: The environment.
        is_new: Whether this call booted it; otherwise it was already up.
    """

    environment: Environment
    is_new: bool


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

    def to_json(self) -> dict[str, object]:
        """Return all of it as a JSON value."""
        return asdict(self)


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


@reads_options
@messages_shown()
def up(
    cluster: Annotated[Cluster | AnyPath | None, Flag(shows="FILE")] = None,
    *,
    backend: BackendName = AUTO,
    option: OwnOptions = (),
    gpus: GpuMode = AUTO,
    share: Annotated[bool, Switch()] = False,
    framework: Framework = None,
    runs_dir: RunsDir = None,
) -> Booted:
    """Boot the environment of a config, unless it exists; its tasks wait for runs.

    Args:
        cluster: The cluster config (default: cluster.yaml).
        backend: A backend, such as `local` or `compose`, or `auto`.
        option: Options of the backend alone (`lab backends` lists them): `{"time": "2h"}`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        share: Also use GPUs that another environment of lab holds.
        framework: The tasks' framework.
        runs_dir: The directory of the run store (default: LAB_RUNS_DIR, or ./runs).

    Raises:
        InputError: An argument is invalid, or another environment has this name.
        LabError: The plan does not fit the host, or the environment cannot be booted.
    """
    where = project(cluster)
    place = PlaceOptions(backend=backend, own=options_of(backend, option), gpus=gpus, share=share)
    placed = place.plan(where, framework or TENSORFLOW.name)
    chosen, running = place.find(placed, where, runs_path(runs_dir))
    if running is None:
        booted = boot(chosen, placed.plan, root=where.root, share=share)
        return Booted(booted, is_new=True)
    running.require_agents()
    running.block_host()
    return Booted(running, is_new=False)


@messages_shown()
def down(
    name: EnvironmentArgument = None,
    *,
    all_: Annotated[bool, Switch()] = False,
    discard: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
    confirm: Confirm = lambda _question: None,
) -> list[str]:
    """Collect the runs of an environment, then remove it; a run under way is cancelled first.

    Args:
        name: The environment (default: the one of ./cluster.yaml).
        all_: Remove all environments that `lab ps` lists.
        discard: Remove the environment without collecting its runs.
        runs_dir: The run store.
        confirm: Asks the user before several environments, uncollected runs or a run under way are
            removed; raises InputError if the answer is no.

    Returns:
        The names of the removed environments.

    Raises:
        InputError: No environment has this name, this directory's environment was booted from
            another project, or the user refuses.
        LabError: A run cannot be collected, or an environment cannot be removed.
    """
    if all_ and name is not None:
        raise InputError(f"both --all and {name!r} are given", "give one of them")
    doomed = list_all(backends()) if all_ else [find_environment(name)]
    if doomed and (all_ or discard):
        names = ", ".join(
            f"{environment.project} ({environment.backend})" for environment in doomed
        )
        confirm(f"remove {names}?")
    removal = partial(remove, runs_dir=runs_path(runs_dir), confirm=confirm, discard=discard)
    run_all(partial(removal, environment) for environment in doomed)
    return [environment.project for environment in doomed]


@overload
def ps(name: None = None) -> list[Listed]: ...


@overload
def ps(name: str) -> list[TaskRow]: ...


def ps(name: EnvironmentArgument = None) -> list[Listed] | list[TaskRow]:
    """List all environments, or the tasks of one and the status of its newest run.

    Args:
        name: The environment whose tasks are listed (default: list all environments, including
            those that have stopped but are not removed).

    Raises:
        InputError: No environment has this name.
        LabError: A backend does not answer, or the run volume cannot be read.
    """
    return _environments() if name is None else _tasks(find_environment(name))


def _environments() -> list[Listed]:
    rows = []
    for up in list_all(backends()):
        tasks = up.tasks()
        alive, runs = sum(task.alive for task in tasks), _run_count(up)
        of_config = up.cluster_sha256, up.folder
        rows.append(Listed(up.project, up.backend, len(tasks), alive, runs, *of_config))
    return rows


def _tasks(environment: Environment) -> list[TaskRow]:
    requests, tasks = environment.runs(), environment.tasks()
    newest = requests[-1].run_id if requests else None
    statuses = statuses_of(environment, newest) if newest else {}
    if not any(task.alive for task in tasks):
        statuses = {name: _lost(status) for name, status in statuses.items()}
    return [TaskRow(task, newest, statuses.get(task.task)) for task in tasks]


def find_environment(name: str | None) -> Environment:
    """Find the environment of this name, or the one of the config in this directory.

    Raises:
        InputError: No environment matches, or several do, or the one of this name was booted in
            another directory.
    """
    default = default_name()
    environment = resolve(name, default, backends())
    if name is None and environment.project == default:
        check_folder(environment, default_root())
    return environment


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
