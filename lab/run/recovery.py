"""Recovery: collects runs that another client has begun, or has not collected to their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lab.backends import Backend, Environment, Notify
from lab.errors import LabError
from lab.run import lifecycle
from lab.run.collect import View, collect
from lab.run.collect import follow as follow_to_its_end
from lab.run.run_info import RunInfo
from lab.run.status import GONE
from lab.run.store import OpenRun, RunDir, safe_run_id
from lab.run.summary import Summary
from lab.task.protocol import Request
from lab.task.protocol.states import State


def collect_runs(
    environment: Environment,
    store: Path,
    notify: Notify,
    *,
    all_sizes: bool = False,
    anywhere: bool = False,
) -> list[str]:
    """Collect every run of an environment that is not complete at home.

    Args:
        environment: It.
        store: The directory of all runs.
        notify: Receives one line for each.
        all_sizes: Collect files of any size; of complete runs, too.
        anywhere: Leave out runs that are complete in another directory of runs.

    Returns:
        The runs that have not ended.

    Raises:
        LabError: One of them cannot be collected.
    """
    going = []
    known = _collected(environment) if anywhere else {}
    for request in environment.runs():
        run = RunDir(store / safe_run_id(request.run_id))
        other = RunDir(Path(known.get(run.run_id, store)) / run.run_id)
        if not run.info_path.is_file() and _is_complete(other):
            notify(f"run {run.run_id} is collected already, in {other.path}")
        elif not run.complete() or (all_sizes and run.read().left):
            summary = collect_one(request, environment, store, notify, all_sizes=all_sizes)
            if not State(summary.state).ended:
                going.append(request.run_id)
    return going


def _collected(environment: Environment) -> Mapping[str, str]:
    try:
        return environment.collected()
    except LabError:  # an older lab has booted it
        return {}


def _is_complete(run: RunDir) -> bool:
    """Whether all of a run is in a directory that a run volume names: it may name anything."""
    try:
        return run.complete() and run.read().run_id == run.run_id
    except (LabError, OSError, ValueError):
        return False


def collect_orphans(backend: Backend, project: str, store: Path, notify: Notify) -> None:
    """Collect what a dead environment has left, before a new one takes its place.

    Raises:
        LabError: It cannot be collected.
    """
    environment = backend.find_any(project)
    if environment is not None:
        collect_runs(environment, store, notify, anywhere=True)


def collect_one(
    request: Request,
    environment: Environment,
    store: Path,
    notify: Notify,
    *,
    follow: bool = False,
    view: Callable[[RunInfo], AbstractContextManager[View]] = lambda _info: View(),
    all_sizes: bool = False,
) -> Summary:
    """Collect what there is of a run; with `run.json` from its request if there is none.

    Args:
        request: The run.
        environment: Where it runs, or ran.
        store: The directory of all runs.
        notify: Receives one line.
        follow: Go on until its last task has ended, otherwise stop at what is there now.
        view: Makes the context manager of a view of a run; entered while it is collected.
        all_sizes: Collect files of any size.

    Raises:
        LabError: Another process collects it, or it cannot be collected.
    """
    run = RunDir(store / safe_run_id(request.run_id))
    if not run.info_path.is_file():
        store.mkdir(parents=True, exist_ok=True)
        run.path.mkdir(exist_ok=True)
        run.write(
            RunInfo.of_request(request, backend=environment.backend, project=environment.project)
        )
    with run.opened() as it:
        _reopen(it, environment)
        with view(it.info) as shown:
            if follow:
                follow_to_its_end(it, environment, shown)
            else:
                gone = lifecycle.has_gone(environment)
                collect(it, environment, shown, all_sizes=all_sizes, rest=gone)
        summary = lifecycle.finish(it)
        if not State(summary.state).ended and lifecycle.has_gone(environment):
            lifecycle.mark_ended(it, State.LOST, GONE)
            summary = lifecycle.finish(it)
    notify(f"run {run.run_id}: {summary.state}, collected into {run.path}")
    return summary


def _reopen(run: OpenRun, environment: Environment) -> None:
    """Record where a run is that has not ended, or that a client gave up while its tasks live on.

    Raises:
        LabError: The environment does not answer.
    """
    info = run.info
    if info.state.ended and not info.collected and not lifecycle.has_gone(environment):
        run.update(state=State.STARTING, reason="", stopped_unix=None)
    if not run.info.state.ended:
        lifecycle.record_environment(run, environment)
        lifecycle.describe(run, environment)


def uncollected_runs(environment: Environment, store: Path) -> list[str]:
    """The runs of an environment with files on its volume that are not collected.

    Raises:
        LabError: The volume, or what is known of a run, cannot be read.
    """
    runs = [RunDir(store / safe_run_id(request.run_id)) for request in environment.runs()]
    return [
        run.run_id
        for run in runs
        if run.info_path.is_file() and any(each.kept for each in run.read().left)
    ]


def report_kept(environment: Environment, runs: Sequence[str], notify: Notify) -> None:
    """Say why a run volume stays, and how to remove it."""
    notify(
        f"the run volume of {environment.project!r} stays: not all files of run {', '.join(runs)}"
        f" were collected; `lab collect {runs[0]} --all-sizes` collects files of any size,"
        f" `lab down {environment.project} --discard` removes the volume"
    )
