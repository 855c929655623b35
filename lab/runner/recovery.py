"""Collect runs that another client started, or did not collect completely, or left by its death."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from lab.backends.environment import Environment
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.protocol.volume import Request
from lab.protocol.volume.states import State
from lab.runner import lifecycle
from lab.runner.collect import collect
from lab.runner.collect import follow as follow_to_its_end
from lab.runner.gpu_metrics import sampled
from lab.runner.store.directory import OpenRun, RunDir, read_statuses, safe_run_id
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import Summary
from lab.runner.verdict import GONE, all_ended
from lab.runner.view import View


def collect_runs(environment: Environment, requests: Iterable[Request], store: Path) -> list[str]:
    """Collect every run of an environment that is complete in no run store.

    Args:
        environment: The environment.
        requests: All of its runs.
        store: The run store.

    Returns:
        The runs that have not ended.

    Raises:
        LabError: A run cannot be collected.
    """
    under_way = []
    known = environment.collected()
    for request in requests:
        run = RunDir(store / safe_run_id(request.run_id))
        if not run.info_path.is_file() and _is_collected(run, known):
            LOG.info(f"run {run.run_id} is already collected, in {known[run.run_id]}/{run.run_id}")
        elif needs_collection(run):
            summary = collect_one(request, environment, store)
            if not State(summary.state).ended:
                under_way.append(request.run_id)
    return under_way


def needs_collection(run: RunDir) -> bool:
    """Whether a run is not complete in the run store, or its tasks may go on."""
    return not run.complete() or _has_open_tasks(run, run.read())


def _has_open_tasks(run: RunDir, info: RunInfo) -> bool:
    """Whether a run has ended without its tasks. They may go on: an environment can start again."""
    statuses = read_statuses(run, info, skip_damaged=True)
    return info.state.ended and not all_ended(info, statuses)


def _is_collected(run: RunDir, known: Mapping[str, str]) -> bool:
    """Whether a run is complete in the run store, or in the one that the run volume notes."""
    elsewhere = RunDir(Path(known.get(run.run_id, run.path.parent)) / run.run_id)
    return _is_complete(run) or _is_complete(elsewhere)


def _is_complete(run: RunDir) -> bool:
    """Whether a run is complete in a directory; a run volume names it, so it may be any path."""
    try:
        return run.complete() and run.read().run_id == run.run_id
    except (LabError, OSError, ValueError):
        return False


def collect_one(
    request: Request,
    environment: Environment,
    store: Path,
    *,
    follow: bool = False,
    view: Callable[[RunInfo], AbstractContextManager[View]] = lambda _info: View(),
    all_sizes: bool = False,
) -> Summary:
    """Collect a run; if it has no `run.json`, write one from its request.

    Args:
        request: The run.
        environment: The environment of the run.
        store: The run store.
        follow: Continue until the last task has ended; otherwise collect what is available now.
        view: Makes the view of the run, which is entered while the run is collected.
        all_sizes: Collect files of any size.

    Raises:
        LabError: Another process collects the run, or it cannot be collected.
    """
    run = RunDir(store / safe_run_id(request.run_id))
    if not run.info_path.is_file():
        store.mkdir(parents=True, exist_ok=True)
        run.path.mkdir(exist_ok=True)
        run.write(
            RunInfo.of_request(request, backend=environment.backend, project=environment.project)
        )
    with run.opened() as opened:
        if opened.info.imported:
            raise LabError(
                f"run {run.run_id} in {store} was imported; environment {environment.project!r}"
                " has another run with this id",
                "move the imported run out of the run store",
            )
        _reopen(opened, environment, request)
        with view(opened.info) as shown:
            # With only the run volume left there is nothing to follow. Tasks that look stopped may
            # be about to start again, as after a requeue by Slurm.
            if follow and environment.tasks():
                with sampled(run, opened.info, shown):
                    follow_to_its_end(opened, environment, shown)
            else:
                stopped = lifecycle.has_stopped(environment)
                collect(opened, environment, shown, all_sizes=all_sizes, rest=stopped)
        if not lifecycle.has_ended(opened) and lifecycle.has_stopped(environment):
            summary = lifecycle.abort(opened, State.LOST, GONE)
        else:
            summary = lifecycle.finish(opened)
    LOG.info(f"run {run.run_id}: {summary.state}, collected into {run.path}")
    return summary


def _reopen(run: OpenRun, environment: Environment, request: Request) -> None:
    """Record the environment of a run that has not ended.

    A run that its client marked as ended is reopened if its tasks still run.

    Raises:
        LabError: The environment does not answer.
    """
    if _has_open_tasks(run.directory, run.info) and not lifecycle.has_stopped(environment):
        run.update(state=State.STARTING, reason="", stopped_unix=None, collected=False)
    if not run.info.state.ended:
        lifecycle.record_environment(run, environment, request.cluster)
        lifecycle.describe(run, environment)


def keeps_files(
    environment: Environment,
    requests: Iterable[Request],
    store: Path,
    last: RunDir | None = None,
) -> bool:
    """Whether a run volume must be kept, because files of its runs are in no run store.

    If so, report why, and how to remove it.

    Args:
        environment: The environment.
        requests: All of its runs.
        store: The run store.
        last: This client's last run: its program may have damaged its request.

    Raises:
        LabError: The run volume, or a `run.json`, cannot be read.
    """
    known = environment.collected()
    runs = [RunDir(store / safe_run_id(request.run_id)) for request in requests]
    left = [run.run_id for run in runs if _has_left(run) or not _is_collected(run, known)]
    if not left and last is not None and last.info_path.is_file() and not last.complete():
        left = [last.run_id]
    if left:
        LOG.warning(
            f"the run volume of {environment.project!r} is kept: not all files of run"
            f" {', '.join(left)} were collected; `lab attach {left[0]} --all-sizes` collects files"
            f" of any size, `lab down {environment.project} --discard` removes the volume"
        )
    return bool(left)


def _has_left(run: RunDir) -> bool:
    """Whether files of a run with data were not collected."""
    return run.info_path.is_file() and any(file.kept for file in run.read().left)
