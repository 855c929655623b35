"""Environments and the runs on their volumes: find, follow, collect, cancel, remove."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from lab.backends import Environment
from lab.backends.registry import backends
from lab.backends.selection import check_folder, list_all, resolve
from lab.backends.state import lock_environment, with_lock_retry
from lab.errors import InputError, LabError
from lab.log import LOG
from lab.project import cluster_path, default_name, find_root
from lab.run import run_queue
from lab.run.discovery import LocatedRun, locate, reachable, under_way
from lab.run.lifecycle import has_stopped
from lab.run.recovery import collect_one, collect_runs, report_kept, uncollected_runs
from lab.run.status import StatusProber, finalize, volume_status
from lab.run.view import View
from lab.store.directory import RunDir, all_runs, safe_run_id
from lab.store.run_info import RunInfo
from lab.store.summarize import summarize
from lab.store.summary import Summary
from lab.volume import Request

FOLLOWER_S: Final = 30.0
"""Seconds that the process that follows a run has to collect it after its end."""

_POLL_S: Final = 0.1

Confirm = Callable[[str], None]
"""Asks the user for confirmation; raises InputError if the answer is no."""


def run_all(actions: Iterable[Callable[[], None]]) -> None:
    """Run all actions even if one fails; an input error stops them at once.

    Args:
        actions: The actions.

    Raises:
        LabError: The last failure, or the input error.
    """
    failures: list[LabError] = []
    try:
        for action in actions:
            try:
                action()
            except InputError:
                raise
            except LabError as error:
                failures.append(error)
        if failures:
            raise failures[-1]
    except LabError as last:
        for failure in dict.fromkeys(map(str, failures)):
            if failure != str(last):
                LOG.warning(failure)
        raise


def find_environment(name: str | None) -> Environment:
    """Find the environment of this name, or the one of the config in this directory.

    Raises:
        InputError: No environment matches, or several do.
    """
    return resolve(name, default_name(), backends())


def check_tasks(tasks: Sequence[str], known: Sequence[str], where: str) -> None:
    """Check that tasks exist.

    Args:
        tasks: The names to check.
        known: The names of all tasks.
        where: The environment or the run, for the message.

    Raises:
        InputError: A task does not exist.
    """
    for task in tasks:
        if task not in known:
            raise InputError(f"{where} has no task {task!r}", f"use one of {', '.join(known)}")


def locate_run(name: str, runs_dir: Path) -> LocatedRun:
    """Find a run, in the run store or on a run volume, by its id, a beginning of it, or `last`.

    Raises:
        InputError: No run matches, or several do.
        LabError: A run volume cannot be read.
    """
    return locate(name, runs_dir, backends(), default_name())


def attach(
    found: LocatedRun,
    runs_dir: Path,
    view: Callable[[RunInfo], AbstractContextManager[View]],
) -> Summary:
    """Follow a run, and those that continue it, until the end, and collect them.

    A run on no run volume is only summarized.

    Returns:
        The summary of the last run.

    Raises:
        LabError: The run cannot be followed.
        KeyboardInterrupt: The user stopped following; the run continues.
    """
    if found.request is None or found.environment is None:
        finalize(found.run, StatusProber(backends))
        return summarize(found.run)
    request: Request | None = found.request
    while request is not None:
        summary = collect_one(request, found.environment, runs_dir, follow=True, view=view)
        request = found.environment.continuation(summary.run_id)
    return summary


def cancel(found: LocatedRun, reason: str) -> None:
    """Cancel a run: ask its tasks to end.

    Raises:
        InputError: The run has ended, or its environment no longer runs.
    """
    run_id, environment = found.run.run_id, found.environment
    on_volume = None if environment is None else volume_status(environment, run_id)
    ended = on_volume is None or all(status.state.ended for status in on_volume.statuses.values())
    if environment is None or on_volume is None or ended:
        raise InputError(
            f"run {run_id} has already ended", f"see its result with `lab show {run_id}`"
        )
    if on_volume.stopped:
        raise InputError(
            f"run {run_id} has no task to cancel: its environment no longer runs",
            f"collect its files with `lab collect {run_id}`",
        )
    environment.cancel(run_id, reason)


def collect_run(found: LocatedRun, runs_dir: Path, *, all_sizes: bool) -> Summary:
    """Collect a run; remove a stopped environment when all its files are collected.

    Raises:
        InputError: The run is on no run volume.
        LabError: The run cannot be collected.
    """
    if found.request is None or found.environment is None:
        finalize(found.run, StatusProber(backends))
        raise InputError(
            f"run {found.run.run_id} is on no run volume: nothing can be collected",
            f"see its collected results with `lab show {found.run.run_id}`",
        )
    environment = found.environment
    summary = collect_one(found.request, environment, runs_dir, all_sizes=all_sizes)
    _remove_stopped(environment, runs_dir, all_sizes=all_sizes)
    return summary


def collect_all(runs_dir: Path, *, all_sizes: bool) -> None:
    """Collect the runs of all environments that are up, and of this directory's environment.

    Raises:
        LabError: A run cannot be collected; the others are collected all the same.
    """
    known = backends()
    ask = StatusProber(lambda: known)

    def collect(environment: Environment) -> None:
        collect_runs(environment, runs_dir, all_sizes=all_sizes)
        _remove_stopped(environment, runs_dir, all_sizes=all_sizes)

    def actions() -> Iterator[Callable[[], None]]:
        for environment in reachable(known, default_name()):
            yield partial(collect, environment)
        for run in all_runs(runs_dir):
            if not run.is_followed():
                yield partial(finalize, run, ask)

    run_all(actions())


class _Changed(Exception):  # noqa: N818  (a state)
    """Another command has used an environment since the last look at it."""


def _remove_stopped(environment: Environment, runs_dir: Path, *, all_sizes: bool) -> None:
    """Remove a stopped environment's run volume when all its files are collected."""

    def unless() -> None:
        if not has_stopped(environment):
            raise _Changed

    if has_stopped(environment) and not _keeps_files(environment, runs_dir) and all_sizes:
        with suppress(_Changed):
            with_lock_retry(partial(environment.down, unless=unless))


def _keeps_files(environment: Environment, runs_dir: Path) -> bool:
    """Whether a run volume must be kept because it has uncollected files; if so, report it."""
    left = uncollected_runs(environment, runs_dir)
    if left:
        report_kept(environment, left)
    return bool(left)


def environments_to_remove(name: str | None, *, every: bool) -> list[Environment]:
    """Return the environments that `lab down` removes: one, or everything that `lab ls` shows.

    Raises:
        InputError: No environment has this name, or this directory's environment was booted from
            another project.
    """
    known = backends()
    if every:
        return list_all(known)
    here = default_name()
    environment = resolve(name, here, known)
    if name is None and environment.project == here:
        check_folder(environment, find_root(cluster_path(None)))
    return [environment]


def remove(
    environment: Environment,
    runs_dir: Path,
    confirm: Confirm,
    *,
    reason: str,
    discard: bool,
) -> None:
    """Collect an environment's runs and remove it; a run under way is cancelled first.

    Args:
        environment: The environment.
        runs_dir: The local run store.
        confirm: Asks the user before a run under way is cancelled.
        reason: Why that run is cancelled.
        discard: Remove it without collecting anything.

    Raises:
        InputError: The user refuses.
        LabError: A run cannot be collected, or the environment cannot be removed.
    """
    if discard:
        with_lock_retry(partial(environment.down))
    else:
        ask = partial(_confirm_cancel, environment, confirm)
        try:
            while not _collect_and_remove(environment, runs_dir, ask, reason):
                pass
        except LabError as error:
            if isinstance(error, InputError) or not _is_removed(environment):
                raise
            LOG.info(f"another command has removed the environment: {error.what}")
    run_queue.clean(environment.backend, environment.project)
    LOG.info(f"environment {environment.project!r} ({environment.backend}) is removed")


def _is_removed(environment: Environment) -> bool:
    """Whether another command has certainly removed an environment, or does so at once."""
    known = [each for each in backends() if each.name == environment.backend]

    def find() -> list[Environment | None]:
        with lock_environment(environment.backend, environment.project, shared=True):
            return [each.find_any(environment.project) for each in known]

    try:
        return with_lock_retry(find) == [None]
    except LabError:
        return False


def _collect_and_remove(
    environment: Environment, runs_dir: Path, ask: Confirm, reason: str
) -> bool:
    """End and collect an environment's runs, and remove it.

    Returns:
        Whether it is removed: not if another client has submitted a run meanwhile.
    """
    seen = {request.run_id for request in environment.runs()}
    _cancel_followed(environment, runs_dir, ask, reason)
    under_way_ids = collect_runs(environment, runs_dir, anywhere=True)
    if under_way_ids:
        ask(under_way_ids[0])
    for request in environment.runs() if under_way_ids else ():
        if request.run_id in under_way_ids:
            environment.cancel(request.run_id, reason)
            collect_one(request, environment, runs_dir, follow=True)

    def unless() -> None:
        if any(request.run_id not in seen for request in environment.runs()):
            raise _Changed

    keeps = partial(_keeps_files, environment, runs_dir)
    try:
        with_lock_retry(partial(environment.down, unless=unless, keeps=keeps))
    except _Changed:
        return False
    return True


def _confirm_cancel(environment: Environment, confirm: Confirm, run_id: str) -> None:
    confirm(f"run {run_id} is under way in {environment.project}: cancel it?")


def _cancel_followed(environment: Environment, runs_dir: Path, ask: Confirm, reason: str) -> None:
    """Cancel a run that another process follows, and wait until that process has collected it.

    Raises:
        LabError: That process does not end; it may be suspended.
    """
    run_id = under_way(environment)
    if run_id is None:
        return
    run = RunDir(runs_dir / safe_run_id(run_id))
    if not run.path.is_dir() or not run.is_followed():
        return
    ask(run_id)
    environment.cancel(run_id, reason)
    LOG.info(f"run {run_id} is cancelled; the process that follows it collects it")
    deadline = time.monotonic() + FOLLOWER_S
    while run.is_followed():
        if time.monotonic() > deadline:
            raise LabError(
                f"another process follows run {run_id} and does not end",
                "end that process; or cancel the run and discard its files with"
                f" `lab cancel {run_id}` and `lab down {environment.project} --discard`",
            )
        time.sleep(_POLL_S)
