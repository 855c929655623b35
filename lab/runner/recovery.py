"""Collect what clients left in an environment, and remove it.

A run may have been started by another client, not be collected completely, or be left by the death
of its client. Before a removal, a run under way is cancelled, and all runs are collected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.backends.state import lock_environment, with_lock_retry
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.protocol.volume import Request
from lab.protocol.volume.states import State
from lab.runner import lifecycle, run_queue
from lab.runner.collect import collect
from lab.runner.collect import follow as follow_to_its_end
from lab.runner.lifecycle import has_stopped, under_way
from lab.runner.store.directory import OpenRun, RunDir, read_statuses, safe_run_id
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import Summary
from lab.runner.verdict import GONE, all_ended
from lab.runner.view import View

FOLLOWER_S: Final = 30.0
"""Seconds that the process that follows a run has to collect it after its end."""

_POLL_S: Final = 0.1

_REASON: Final = "lab down"
"""Why a run under way is cancelled."""

Confirm = Callable[[str], None]
"""Asks the user for confirmation; raises InputError if the answer is no."""


def collect_runs(environment: Environment, requests: Iterable[Request], store: Path) -> None:
    """Collect every run of an environment that is complete in no run store.

    Args:
        environment: The environment.
        requests: All of its runs.
        store: The run store.

    Raises:
        LabError: A run cannot be collected.
    """
    known = environment.collected()
    for request in requests:
        run = RunDir(store / safe_run_id(request.run_id))
        if not run.info_path.is_file() and _is_collected(run, known):
            LOG.info(f"run {run.run_id} is already collected, in {known[run.run_id]}/{run.run_id}")
        elif needs_collection(run):
            collect_one(request, environment, store)


def needs_collection(run: RunDir) -> bool:
    """Whether a run is not complete in the run store, or its tasks may go on."""
    return not run.complete() or _has_open_tasks(run, run.read())


def _has_open_tasks(run: RunDir, info: RunInfo) -> bool:
    """Whether a run has ended without its tasks. They may go on: an environment can start again."""
    statuses = read_statuses(run, info, skip_damaged=True)
    return info.state.ended and not all_ended(info, statuses)


def _is_collected(run: RunDir, known: Mapping[str, str]) -> bool:
    """Whether a run is complete in the run store, or in the one that the run volume notes."""
    for store in {run.path.parent, Path(known.get(run.run_id, run.path.parent))}:
        with suppress(LabError, OSError, ValueError):  # a volume may name any path
            if RunDir(store / run.run_id).complete():
                return True
    return False


def collect_one(
    request: Request,
    environment: Environment,
    store: Path,
    *,
    follow: bool = False,
    view: Callable[[RunInfo], AbstractContextManager[View]] = View,
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
    run = adopted(request, environment, store)
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
                summary = follow_to_its_end(opened, environment, shown)
            else:
                stopped = has_stopped(environment)
                collect(opened, environment, shown, all_sizes=all_sizes, rest=stopped)
                if not lifecycle.has_ended(opened) and has_stopped(environment):
                    summary = lifecycle.abort(opened, State.LOST, GONE)
                else:
                    summary = lifecycle.finish(opened)
    LOG.info(f"run {run.run_id}: {summary.state}, collected into {run.path}")
    return summary


def adopted(
    request: Request, environment: Environment, store: Path, before: RunDir | None = None
) -> RunDir:
    """Return the directory of a run that this client did not submit, with its `run.json`.

    Args:
        request: The run.
        environment: The environment of the run.
        store: The run store.
        before: The interrupted run with whose checkpoints it continues, or None.

    Raises:
        LabError: `run.json` of that run cannot be read.
    """
    run = RunDir(store / safe_run_id(request.run_id))
    if not run.info_path.is_file():
        backend, project = environment.backend, environment.project
        old = None if before is None else before.read()
        store.mkdir(parents=True, exist_ok=True)
        run.path.mkdir(exist_ok=True)
        run.write(RunInfo.of_request(request, backend=backend, project=project, before=old))
    return run


def _reopen(run: OpenRun, environment: Environment, request: Request) -> None:
    """Record the environment of a run that has not ended.

    A run that its client marked as ended is reopened if its tasks still run.

    Raises:
        LabError: The environment does not answer.
    """
    if _has_open_tasks(run.directory, run.info) and not has_stopped(environment):
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
            f" {', '.join(left)} were collected; get them with `lab attach {left[0]} --all-sizes`,"
            f" or remove the volume with `lab down {environment.project} --discard`"
        )
    return bool(left)


def _has_left(run: RunDir) -> bool:
    """Whether files of a run with data were not collected."""
    return run.info_path.is_file() and any(file.kept for file in run.read().left)


def run_all(actions: Iterable[Callable[[], None]]) -> None:
    """Run all actions even if one fails; an input error stops them at once.

    Args:
        actions: The actions.

    Raises:
        LabError: The last failure, or the input error.
    """
    failures: list[LabError] = []
    for action in actions:
        try:
            action()
        except LabError as error:
            failures.append(error)
            if isinstance(error, InputError):
                break
    for failure in dict.fromkeys(map(str, failures)):
        if failure != str(failures[-1]):
            LOG.warning(failure)
    if failures:
        raise failures[-1]


class _Changed(Exception):  # noqa: N818  (a state)
    """Another command has used an environment since the last look at it."""


def remove_stopped(environment: Environment, runs_dir: Path) -> None:
    """Remove a stopped environment's run volume when all files of all its runs are collected."""

    def keeps() -> bool:
        if not has_stopped(environment) or keeps_files(environment, environment.runs(), runs_dir):
            raise _Changed
        return False

    if has_stopped(environment):
        with suppress(_Changed):
            with_lock_retry(partial(environment.down, keeps=keeps))


def remove(
    environment: Environment,
    runs_dir: Path,
    confirm: Confirm,
    *,
    discard: bool,
) -> None:
    """Collect an environment's runs and remove it; a run in progress is cancelled first.

    Args:
        environment: The environment.
        runs_dir: The local run store.
        confirm: Asks the user before a run under way is cancelled.
        discard: Remove it without collecting anything.

    Raises:
        InputError: The user refuses.
        LabError: A run cannot be collected, or the environment cannot be removed.
    """
    if discard:
        with_lock_retry(environment.down)
    else:

        def ask(run_id: str) -> None:
            confirm(f"run {run_id} is under way in {environment.project}: cancel it?")

        try:
            while not _collect_and_remove(environment, runs_dir, ask):
                pass
        except LabError as error:
            if isinstance(error, InputError) or not _is_removed(environment):
                raise
            LOG.info(f"another command has removed the environment: {error.what}")
    run_queue.clean(environment.backend, environment.project)
    LOG.info(f"environment {environment.project!r} ({environment.backend}) is removed")


def _is_removed(environment: Environment) -> bool:
    """Whether another command has certainly removed an environment, or does so at once."""
    known = backends(environment.backend)

    def find() -> list[Environment | None]:
        with lock_environment(environment.backend, environment.project, shared=True):
            return [backend.find_any(environment.project) for backend in known]

    try:
        return with_lock_retry(find) == [None]
    except LabError:
        return False


def _collect_and_remove(environment: Environment, runs_dir: Path, ask: Confirm) -> bool:
    """End and collect an environment's runs, and remove it.

    Returns:
        Whether it is removed: not if another client has submitted a run meanwhile.
    """
    requests = environment.runs()
    seen = {request.run_id for request in requests}
    if under_way(environment, requests) is not None:
        _end(environment, requests[-1], runs_dir, ask)
    collect_runs(environment, requests, runs_dir)

    def keeps() -> bool:
        now = environment.runs()
        if any(request.run_id not in seen for request in now):
            raise _Changed
        return keeps_files(environment, now, runs_dir)

    try:
        with_lock_retry(partial(environment.down, keeps=keeps))
    except _Changed:
        return False
    return True


def _end(environment: Environment, request: Request, runs_dir: Path, ask: Confirm) -> None:
    """Cancel a run that is not lost, and collect it; a process that follows it does that itself.

    Raises:
        LabError: That process does not end; it may be suspended.
    """
    run = RunDir(runs_dir / safe_run_id(request.run_id))
    is_followed = run.path.is_dir() and run.is_followed()
    if not is_followed and has_stopped(environment):
        return
    ask(run.run_id)
    environment.cancel(run.run_id, _REASON)
    if not is_followed:
        collect_one(request, environment, runs_dir, follow=True)
        return
    LOG.info(f"run {run.run_id} is cancelled; the process that follows it will collect it")
    deadline = time.monotonic() + FOLLOWER_S
    while run.is_followed():
        if time.monotonic() > deadline:
            raise LabError(
                f"another process is following run {run.run_id} and does not end",
                "end that process; or cancel the run and discard its files with"
                f" `lab cancel {run.run_id}` and `lab down {environment.project} --discard`",
            )
        time.sleep(_POLL_S)
