"""Environments and the runs on their volumes: find, follow, collect, cancel, remove."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from lab.backends import Environment, Notify, remove_volume
from lab.backends.selection import backends, check_folder, list_all, resolve
from lab.backends.state import with_lock_retry
from lab.errors import InputError, LabError
from lab.run.collect import View
from lab.run.discovery import LocatedRun, locate, reachable, under_way
from lab.run.lifecycle import has_gone
from lab.run.project import cluster_path, default_name, find_root
from lab.run.recovery import collect_one, collect_runs, report_kept, uncollected_runs
from lab.run.run_info import RunInfo
from lab.run.status import StatusProber, finalize, volume_status
from lab.run.store import RunDir, all_runs, safe_run_id
from lab.run.summarize import summarize
from lab.run.summary import Summary

FOLLOWER_S: Final = 30.0
"""Seconds that the process which follows a run gets to collect it after its end."""

_POLL_S: Final = 0.1

Confirm = Callable[[str], None]
"""Asks the user; raises InputError where the answer is no."""


def run_all(actions: Iterable[Callable[[], None]], notify: Notify) -> None:
    """Run all actions, also after one has failed; an input error stops them at once.

    Args:
        actions: The actions.
        notify: Receives each failure once, but the one that is raised.

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
                notify(failure)
        raise


def find_environment(name: str | None) -> Environment:
    """The environment of this name, or that of the config in this directory.

    Raises:
        InputError: There is none, or several fit.
    """
    return resolve(name, default_name(), backends())


def check_tasks(tasks: Sequence[str], known: Sequence[str], where: str) -> None:
    """Check that tasks exist.

    Args:
        tasks: Their names.
        known: The names of all tasks.
        where: The environment or the run, for the message.

    Raises:
        InputError: One of them does not exist.
    """
    for task in tasks:
        if task not in known:
            raise InputError(f"{where} has no task {task!r}", f"its tasks are {', '.join(known)}")


def locate_run(name: str, runs_dir: Path) -> LocatedRun:
    """A run in the local run store or on a run volume: its id, a beginning of it, or `last`.

    Raises:
        InputError: No run, or several, fit.
        LabError: A run volume cannot be read.
    """
    return locate(name, runs_dir, backends(), default_name())


def attach(
    found: LocatedRun,
    runs_dir: Path,
    notify: Notify,
    view: Callable[[RunInfo], AbstractContextManager[View]],
) -> Summary:
    """Follow a run until its end and collect it; of a run on no volume, return the summary.

    Raises:
        LabError: It cannot be followed.
        KeyboardInterrupt: The user left the run, which goes on.
    """
    if found.request is None or found.environment is None:
        finalize(found.run, StatusProber(backends))
        return summarize(found.run)
    return collect_one(found.request, found.environment, runs_dir, notify, follow=True, view=view)


def cancel(found: LocatedRun, reason: str) -> None:
    """Ask the tasks of a run to end.

    Raises:
        InputError: The run has ended, or none of its tasks is left.
    """
    run_id, environment = found.run.run_id, found.environment
    there = None if environment is None else volume_status(environment, run_id)
    ended = there is None or all(status.state.ended for status in there.statuses.values())
    if environment is None or there is None or ended:
        raise InputError(f"run {run_id} has ended", f"see it with `lab show {run_id}`")
    if there.gone:
        raise InputError(
            f"run {run_id} has no task left to cancel: its environment has gone",
            f"bring home what it left with `lab collect {run_id}`",
        )
    environment.cancel(run_id, reason)


def collect_run(found: LocatedRun, runs_dir: Path, notify: Notify, *, all_sizes: bool) -> Summary:
    """Collect a run; a dead environment is removed when all its files are collected.

    Raises:
        InputError: No run volume has the run.
        LabError: It cannot be collected.
    """
    if found.request is None or found.environment is None:
        finalize(found.run, StatusProber(backends))
        raise InputError(
            f"run {found.run.run_id} is at home, and its environment has gone",
            f"see what there is with `lab show {found.run.run_id}`",
        )
    environment = found.environment
    summary = collect_one(found.request, environment, runs_dir, notify, all_sizes=all_sizes)
    _remove_dead(environment, runs_dir, notify, all_sizes=all_sizes)
    return summary


def collect_all(runs_dir: Path, notify: Notify, *, all_sizes: bool) -> None:
    """Collect the runs of all environments that are up, and of this directory's.

    Raises:
        LabError: A run cannot be collected; the others are.
    """
    known = backends()
    ask = StatusProber(lambda: known)

    def collect(environment: Environment) -> None:
        collect_runs(environment, runs_dir, notify, all_sizes=all_sizes)
        _remove_dead(environment, runs_dir, notify, all_sizes=all_sizes)

    def actions() -> Iterator[Callable[[], None]]:
        for environment in reachable(known, default_name()):
            yield partial(collect, environment)
        for run in all_runs(runs_dir):
            if not run.is_followed():
                yield partial(finalize, run, ask)

    run_all(actions(), notify)


def _remove_dead(
    environment: Environment, runs_dir: Path, notify: Notify, *, all_sizes: bool
) -> None:
    """Remove a dead environment's run volume when all its files are collected."""
    if has_gone(environment) and not _keeps_files(environment, runs_dir, notify) and all_sizes:
        with_lock_retry(partial(environment.down, notify))


def _keeps_files(environment: Environment, runs_dir: Path, notify: Notify) -> bool:
    """Whether a run volume stays, because it holds files that are not collected."""
    left = uncollected_runs(environment, runs_dir)
    if left:
        report_kept(environment, left, notify)
    return bool(left)


def environments_to_remove(name: str | None, *, every: bool) -> list[Environment]:
    """The environments that `lab down` removes: one, or everything that `lab ls` shows.

    Raises:
        InputError: There is none of this name, or this directory's was booted in another project.
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
    notify: Notify,
    confirm: Confirm,
    *,
    reason: str,
    discard: bool,
) -> None:
    """Collect an environment's runs and remove it; a run under way is cancelled first.

    Args:
        environment: The environment.
        runs_dir: The local run store.
        notify: Receives progress.
        confirm: Asks the user before a run under way is cancelled.
        reason: Why that run was cancelled.
        discard: Remove it without collecting anything.

    Raises:
        InputError: The user refuses.
        LabError: A run cannot be collected, or the environment not be removed.
    """
    keeps = remove_volume
    if not discard:
        ask = partial(_confirm_cancel, environment, confirm)
        _cancel_followed(environment, runs_dir, notify, ask, reason)
        going = collect_runs(environment, runs_dir, notify, anywhere=True)
        if going:
            ask(going[0])
        for request in environment.runs() if going else ():
            if request.run_id in going:
                environment.cancel(request.run_id, reason)
                collect_one(request, environment, runs_dir, notify, follow=True)
        keeps = partial(_keeps_files, environment, runs_dir, notify)
    with_lock_retry(partial(environment.down, notify, keeps=keeps))
    notify(f"environment {environment.project!r} ({environment.backend}) is down")


def _confirm_cancel(environment: Environment, confirm: Confirm, run_id: str) -> None:
    confirm(f"run {run_id} is under way in {environment.project}: end it?")


def _cancel_followed(
    environment: Environment, runs_dir: Path, notify: Notify, ask: Confirm, reason: str
) -> None:
    """Cancel a run that another process follows, and wait until that has collected it.

    Raises:
        LabError: That process does not end; it may be suspended.
    """
    going = under_way(environment)
    if going is None:
        return
    run = RunDir(runs_dir / safe_run_id(going))
    if not run.path.is_dir() or not run.is_followed():
        return
    ask(going)
    environment.cancel(going, reason)
    notify(f"run {going} ends; its follower brings it home")
    give_up = time.monotonic() + FOLLOWER_S
    while run.is_followed():
        if time.monotonic() > give_up:
            raise LabError(
                f"run {going} is followed by another process, which does not end",
                f"end that one, or see that the run has ended with `lab cancel {going}` and remove"
                f" it uncollected with `lab down {environment.project} --discard`",
            )
        time.sleep(_POLL_S)
