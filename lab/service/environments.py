"""Environments and the runs on their volumes: find, follow, collect, cancel, remove."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from lab.backends import Environment, Say, nothing
from lab.backends.choose import backends, check_folder, everything, named
from lab.backends.locking import when_free
from lab.errors import InputError, LabError
from lab.run.collect import View
from lab.run.homecoming import bring_all_home, bring_one_home, left_on, say_kept
from lab.run.lifecycle import has_gone
from lab.run.project import cluster_path, default_name, find_root
from lab.run.run_info import RunInfo
from lab.run.standing import Volumes, settle, states_of
from lab.run.store import RunDir, all_runs, safe_run_id
from lab.run.summarize import summarize
from lab.run.summary import Summary
from lab.run.whereabouts import Found, locate, reachable, under_way

FOLLOWER_S: Final = 30.0
"""Seconds that the process which follows a run gets to collect it after its end."""

_POLL_S: Final = 0.1

Confirm = Callable[[str], None]
"""Asks the user; raises InputError where the answer is no."""


def run_all(actions: Iterable[Callable[[], None]], say: Say) -> None:
    """Run all actions, also after one has failed; an input error stops them at once.

    Args:
        actions: The actions.
        say: Receives each failure once, but the one that is raised.

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
                say(failure)
        raise


def find_environment(name: str | None) -> Environment:
    """The environment of this name, or that of the config in this directory.

    Raises:
        InputError: There is none, or several fit.
    """
    return named(name, default_name(), backends())


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


def locate_run(name: str, runs_dir: Path) -> Found:
    """A run in the local run store or on a run volume: its id, a beginning of it, or `last`.

    Raises:
        InputError: No run, or several, fit.
        LabError: A run volume cannot be read.
    """
    return locate(name, runs_dir, backends(), default_name())


def attach(
    found: Found, runs_dir: Path, say: Say, view: Callable[[RunInfo], AbstractContextManager[View]]
) -> Summary:
    """Follow a run until its end and collect it; of a run on no volume, return the summary.

    Raises:
        LabError: It cannot be followed.
        KeyboardInterrupt: The user left the run, which goes on.
    """
    if found.request is None or found.environment is None:
        settle(found.run, Volumes(backends))
        return summarize(found.run)
    return bring_one_home(found.request, found.environment, runs_dir, say, follow=True, view=view)


def cancel(found: Found, reason: str) -> None:
    """Ask the tasks of a run to end.

    Raises:
        InputError: The run has ended, or none of its tasks is left.
    """
    run_id, environment = found.run.run_id, found.environment
    there = None if environment is None else states_of(environment, run_id)
    ended = there is None or all(status.state.ended for status in there.statuses.values())
    if environment is None or there is None or ended:
        raise InputError(f"run {run_id} has ended", f"see it with `lab show {run_id}`")
    if there.gone:
        raise InputError(
            f"run {run_id} has no task left to cancel: its environment has gone",
            f"bring home what it left with `lab collect {run_id}`",
        )
    environment.cancel(run_id, reason)


def collect_run(found: Found, runs_dir: Path, say: Say, *, all_sizes: bool) -> Summary:
    """Collect a run; a dead environment is removed when all its files are collected.

    Raises:
        InputError: No run volume has the run.
        LabError: It cannot be collected.
    """
    if found.request is None or found.environment is None:
        settle(found.run, Volumes(backends))
        raise InputError(
            f"run {found.run.run_id} is at home, and its environment has gone",
            f"see what there is with `lab show {found.run.run_id}`",
        )
    environment = found.environment
    summary = bring_one_home(found.request, environment, runs_dir, say, all_sizes=all_sizes)
    _remove_dead(environment, runs_dir, say, all_sizes=all_sizes)
    return summary


def collect_all(runs_dir: Path, say: Say, *, all_sizes: bool) -> None:
    """Collect the runs of all environments that are up, and of this directory's.

    Raises:
        LabError: A run cannot be collected; the others are.
    """
    known = backends()
    ask = Volumes(lambda: known)

    def collect(environment: Environment) -> None:
        bring_all_home(environment, runs_dir, say, all_sizes=all_sizes)
        _remove_dead(environment, runs_dir, say, all_sizes=all_sizes)

    def actions() -> Iterator[Callable[[], None]]:
        for environment in reachable(known, default_name()):
            yield partial(collect, environment)
        for run in all_runs(runs_dir):
            if not run.is_followed():
                yield partial(settle, run, ask)

    run_all(actions(), say)


def _remove_dead(environment: Environment, runs_dir: Path, say: Say, *, all_sizes: bool) -> None:
    """Remove a dead environment's run volume when all its files are collected."""
    if has_gone(environment) and not _keeps_files(environment, runs_dir, say) and all_sizes:
        when_free(partial(environment.down, say))


def _keeps_files(environment: Environment, runs_dir: Path, say: Say) -> bool:
    """Whether a run volume stays, because it holds files that are not collected."""
    left = left_on(environment, runs_dir)
    if left:
        say_kept(environment, left, say)
    return bool(left)


def environments_to_remove(name: str | None, *, every: bool) -> list[Environment]:
    """The environments that `lab down` removes: one, or everything that `lab ls` shows.

    Raises:
        InputError: There is none of this name, or this directory's was booted in another project.
    """
    known = backends()
    if every:
        return everything(known)
    here = default_name()
    environment = named(name, here, known)
    if name is None and environment.project == here:
        check_folder(environment, find_root(cluster_path(None)))
    return [environment]


def remove(
    environment: Environment,
    runs_dir: Path,
    say: Say,
    confirm: Confirm,
    *,
    reason: str,
    discard: bool,
) -> None:
    """Collect an environment's runs and remove it; a run under way is cancelled first.

    Args:
        environment: The environment.
        runs_dir: The local run store.
        say: Receives progress.
        confirm: Asks the user before a run under way is cancelled.
        reason: Why that run was cancelled.
        discard: Remove it without collecting anything.

    Raises:
        InputError: The user refuses.
        LabError: A run cannot be collected, or the environment not be removed.
    """
    keeps = nothing
    if not discard:
        ask = partial(_confirm_cancel, environment, confirm)
        _cancel_followed(environment, runs_dir, say, ask, reason)
        going = bring_all_home(environment, runs_dir, say, anywhere=True)
        if going:
            ask(going[0])
        for request in environment.runs() if going else ():
            if request.run_id in going:
                environment.cancel(request.run_id, reason)
                bring_one_home(request, environment, runs_dir, say, follow=True)
        keeps = partial(_keeps_files, environment, runs_dir, say)
    when_free(partial(environment.down, say, keeps=keeps))
    say(f"environment {environment.project!r} ({environment.backend}) is down")


def _confirm_cancel(environment: Environment, confirm: Confirm, run_id: str) -> None:
    confirm(f"run {run_id} is under way in {environment.project}: end it?")


def _cancel_followed(
    environment: Environment, runs_dir: Path, say: Say, ask: Confirm, reason: str
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
    say(f"run {going} ends; its follower brings it home")
    give_up = time.monotonic() + FOLLOWER_S
    while run.is_followed():
        if time.monotonic() > give_up:
            raise LabError(
                f"run {going} is followed by another process, which does not end",
                f"end that one, or see that the run has ended with `lab cancel {going}` and remove"
                f" it uncollected with `lab down {environment.project} --discard`",
            )
        time.sleep(_POLL_S)
