"""Remove environments: a run under way is cancelled, and all runs are collected before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.backends.state import lock_environment, with_lock_retry
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.protocol.volume import Request
from lab.runner import run_queue
from lab.runner.lifecycle import has_stopped, under_way
from lab.runner.recovery import collect_one, collect_runs, keeps_files
from lab.runner.store.directory import RunDir, safe_run_id

FOLLOWER_S: Final = 30.0
"""Seconds that the process that follows a run has to collect it after its end."""

_POLL_S: Final = 0.1

_REASON: Final = "lab down"
"""Why a run under way is cancelled."""

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
    """Collect an environment's runs and remove it; a run under way is cancelled first.

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
    _cancel_followed(environment, requests, runs_dir, ask)
    under_way_ids = collect_runs(environment, requests, runs_dir)
    if under_way_ids:
        ask(under_way_ids[0])
    for request in requests:
        if request.run_id in under_way_ids:
            environment.cancel(request.run_id, _REASON)
            collect_one(request, environment, runs_dir, follow=True)

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


def _cancel_followed(
    environment: Environment, requests: Sequence[Request], runs_dir: Path, ask: Confirm
) -> None:
    """Cancel a run that another process follows, and wait until that process has collected it.

    Raises:
        LabError: That process does not end; it may be suspended.
    """
    run_id = under_way(environment, requests)
    if run_id is None:
        return
    run = RunDir(runs_dir / safe_run_id(run_id))
    if not run.path.is_dir() or not run.is_followed():
        return
    ask(run_id)
    environment.cancel(run_id, _REASON)
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
