"""One run from its preparation to its end, whatever happens in between."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Final

from lab import signals
from lab.backends import Environment, Notify
from lab.backends.state import Busy, with_lock_retry
from lab.errors import LabError
from lab.run import lifecycle
from lab.run.collect import View, follow
from lab.run.discovery import under_way
from lab.run.fault_injection import NetworkFaults
from lab.run.recovery import report_kept, uncollected_runs
from lab.run.run_info import RunInfo
from lab.run.status import PATIENCE_S
from lab.run.store import OpenRun, RunDir
from lab.run.summary import Summary
from lab.task.protocol.states import State
from lab.threads import in_background, signals_blocked, with_timeout

INTERRUPTED: Final = "interrupted"

STOP_S: Final = 9.0
"""Seconds in which an interrupted run may save and be collected before it is killed.

Its agents give a program 5 s. With the time for removing the environment, all ends within 15 s."""

COLLECT_S: Final = 4.0
"""Seconds in which a killed run may be collected."""

DOWN_S: Final = 30.0
"""Seconds that the removal of an environment may take after an interrupt; 2 where nothing hangs."""


class _OtherRunUnderWay(Exception):  # noqa: N818  (a state)
    """Somebody else's run is under way in the environment."""


def execute_run(
    run: RunDir,
    *,
    boot: Callable[[Callable[[], None]], Environment],
    found: Environment | None,
    keep: bool,
    detach: bool = False,
    view: Callable[[RunInfo], AbstractContextManager[View]],
    notify: Notify,
) -> Summary:
    """Boot if nothing is up, submit, follow, summarize, and remove what was booted.

    Args:
        run: What `prepare` created.
        boot: Boots an environment; calls what it is given once that is up, from when on Ctrl-C
            waits until it is known here.
        found: The environment that is up already, or None.
        keep: Whether an environment that this call boots stays up.
        detach: Whether to leave the run, and the environment, as soon as it is submitted.
        view: Makes the context manager of a view of a run; entered while it is followed.
        notify: Receives progress.

    Returns:
        The summary of a run that has ended, in whatever state, or was left.

    Raises:
        LabError: It could not be run, or the environment went; `run.json` says so.
        KeyboardInterrupt: The user ended it; `run.json` says so.
        OSError: A file could not be written.

    A run that raises before any agent received it leaves no directory.
    """
    environment = found
    with run.opened() as it, signals.as_interrupt():
        try:
            if environment is None:
                with signals.blockable_interrupts() as defer:
                    environment = boot(defer)
            lifecycle.record_environment(it, environment)
            if detach:
                _detach(it, environment, notify)
                keep = True
            else:
                with view(it.info) as shown:
                    _follow(it, environment, shown)
            return lifecycle.finish(it)
        except (KeyboardInterrupt, LabError, OSError) as error:
            # The disk may be full, and stay so: that does not hide the first error.
            hidden = () if isinstance(error, LabError) else (OSError,)
            with signals.ignore_signals(), suppress(*hidden):
                _abort(it, environment, error, notify)
            raise
        finally:
            if found is None and environment is not None and not keep:
                with signals.ignore_signals():
                    teardown(run, environment, notify)


def _abort(
    run: OpenRun, environment: Environment | None, error: BaseException, notify: Notify
) -> None:
    """End a run that broke off, or remove its directory if no agent received it."""
    interrupted = isinstance(error, KeyboardInterrupt)
    state = State.CANCELLED if interrupted else State.FAILED
    if run.info.has_started or (environment is not None and _may_hold(environment, run)):
        lifecycle.abort(run, state, INTERRUPTED if interrupted else str(error))
    else:
        run.directory.discard()
        notify(f"run {run.run_id} did not start; its directory is removed")


def _may_hold(environment: Environment, run: OpenRun) -> bool:
    """Whether an environment has received a run; True where it does not answer."""
    try:
        requests = with_timeout(PATIENCE_S, environment.runs)
    except (LabError, TimeoutError):
        return True
    return any(request.run_id == run.run_id for request in requests)


def _detach(run: OpenRun, environment: Environment, notify: Notify) -> None:
    """Submit the run, for other clients to follow; an interrupt ends it all the same."""
    try:
        with signals.block_interrupts():
            lifecycle.submit(run, environment)
        _describe(run, environment, notify)
    except KeyboardInterrupt:
        _stop(run, environment, View())
        raise


def _follow(run: OpenRun, environment: Environment, view: View) -> None:
    """Submit the run and follow it; when that breaks off, end it on the volume too."""
    with ExitStack() as ending:
        try:
            with signals.block_interrupts():
                lifecycle.submit(run, environment)
            _describe(run, environment, view.notice)
            faulting = NetworkFaults(environment, run.run_id, run.info.spec.faults, view.notice)
            ending.callback(faulting.end)
            follow(run, environment, view, faulting.tick)
        except KeyboardInterrupt:
            _stop(run, environment, view)
            raise
        except OSError as error:
            with suppress(LabError):  # it may not have come so far
                environment.cancel(run.run_id, f"the helper could not go on: {error}")
            raise


def _describe(run: OpenRun, environment: Environment, notify: Notify) -> None:
    """Record what the environment was made from; the run goes on where that is not known."""
    try:
        lifecycle.describe(run, environment)
    except (LabError, OSError) as error:
        what = error.what if isinstance(error, LabError) else str(error)
        notify(f"{what}; what the environment was made from stays unknown")


def _stop(run: OpenRun, environment: Environment, view: View) -> None:
    """End an interrupted run: gently first, and at once after another interrupt or a time limit.

    What is collected until then is kept either way.
    """
    gently = "interrupted: training ends and comes home; Ctrl-C again kills it"
    at_once = "the run is killed; what it left comes home"
    for line, end, seconds in (
        (gently, environment.cancel, STOP_S),
        (at_once, environment.kill, COLLECT_S),
    ):
        try:
            with signals.time_limit(seconds):
                view.notice(line)
                end(run.run_id, INTERRUPTED)
                follow(run, environment, view)
                return
        except KeyboardInterrupt:
            continue
        except (LabError, OSError) as error:
            view.notice(error.what if isinstance(error, LabError) else str(error))
            return
    view.notice("not all of it came home")


def _keeps_files(environment: Environment, run: RunDir, notify: Notify) -> bool:
    """Whether an environment has something of the run that is not at home; if so, say it."""
    try:
        if all(request.run_id != run.run_id for request in environment.runs()):
            return False
    except LabError:
        return False
    notify(
        f"environment {environment.project!r} stays up with what is not at home of run"
        f" {run.run_id}: `lab collect {run.run_id}` brings it, `lab down` removes it"
    )
    return True


def teardown(run: RunDir, environment: Environment, notify: Notify) -> None:
    """Take down what was booted, unless somebody else trains in it by now.

    Where it is the disk at home that has failed, what did not come home stays where it is.

    Args:
        run: The last run in it that was its own.
        environment: It.
        notify: Receives progress.

    Raises:
        LabError: Something of it is left, and that is the first fault.
    """
    fault = sys.exception()
    if isinstance(fault, OSError) and _keeps_files(environment, run, notify):
        return
    again = f"`lab down {environment.project}` tries again"

    def unless() -> None:
        other = under_way(environment, besides=run.run_id)
        if other is not None:
            raise _OtherRunUnderWay(other)

    def keeps() -> bool:
        left = uncollected_runs(environment, run.path.parent)
        if left:
            report_kept(environment, left, notify)
        return bool(left)

    def down() -> None:
        with_lock_retry(lambda: environment.down(notify, unless=unless, keeps=keeps))

    try:
        if isinstance(fault, KeyboardInterrupt):
            with signals_blocked():
                going = in_background(down)
            going.result(DOWN_S)
        else:
            down()
    except _OtherRunUnderWay as other:
        notify(f"environment {environment.project!r} stays up: run {other} is under way in it")
    except Busy as error:
        notify(f"environment {environment.project!r} stays up: {error.what}; {again}")
    except TimeoutError:
        notify(f"environment {environment.project!r} is not down after {DOWN_S:g} s; {again}")
    except (LabError, OSError) as error:
        if fault is None:
            raise
        notify(f"{error}; {again}")
