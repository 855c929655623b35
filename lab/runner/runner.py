"""Execute one run: boot, submit, follow, and clean up after errors and interrupts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from lab.backends.environment import Environment
from lab.backends.gpu_verification import boot
from lab.backends.state import Busy, with_lock_retry
from lab.base import signals
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.threads import in_background, signals_blocked, with_timeout
from lab.protocol.volume.states import State
from lab.runner import lifecycle
from lab.runner.collect import follow
from lab.runner.fault_injection import NetworkFaults
from lab.runner.lifecycle import PATIENCE_S, patiently, under_way
from lab.runner.prepared import PreparedRun
from lab.runner.record import create_run
from lab.runner.recovery import adopted, keeps_files
from lab.runner.run_queue import Ticket, turn
from lab.runner.store.directory import OpenRun, RunDir
from lab.runner.store.summary import Summary
from lab.runner.view import MakeView, View

INTERRUPTED: Final = "interrupted"

STOP_S: Final = 9.0
"""Seconds for an interrupted run to save a checkpoint and be collected; then it is killed.

An agent gives its program 5 s. Including the removal of the environment, all ends within 15 s."""

COLLECT_S: Final = 4.0
"""Seconds for the collection of a killed run."""

DOWN_S: Final = 30.0
"""The time limit, in seconds, for removing an environment after an interrupt; 2 s is usual."""


class RunInterruptedError(KeyboardInterrupt):
    """The user interrupted a run that has a directory in the run store.

    Attributes:
        run: The run.
    """

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self.run = run


def execute(
    prepared: PreparedRun, *, detach: bool = False, view: MakeView
) -> tuple[RunDir, Summary]:
    """Wait for the run's turn, boot an environment if none is up, train, collect, and clean up.

    Args:
        prepared: The run.
        detach: Whether to return as soon as the run is submitted; the environment then stays up.
        view: Makes the view of the run, which is entered while the run is followed.

    Returns:
        The run, or the last one that continues it, and its summary; for a detached run, the summary
        so far.

    Raises:
        LabError: The run could not be executed.
        RunInterruptedError: The user interrupted the run after it had begun.
        KeyboardInterrupt: The user interrupted the run before that.
    """
    with turn(prepared.backend, prepared.plan.name) as mine:
        while True:
            try:
                if mine.waited:
                    prepared = prepared.placed_again()
                run = _begin(prepared, mine)
                with place_of(prepared) as place:
                    return execute_run(run, place, None if detach else view)
            except Busy:
                # The other run has no ticket in this queue: another user or command submitted it.
                mine.wait()
                mine.waited = True


def _begin(prepared: PreparedRun, mine: Ticket) -> RunDir:
    """Create the directory of a run that has its turn, and name it."""
    run = create_run(prepared)
    try:
        mine.begin(run.run_id)
        LOG.info(f"run {run.run_id}: {run.path}")
        for line in prepared.program.notes() if prepared.program is not None else ():
            LOG.info(line)
    except BaseException:
        run.discard()
        raise
    return run


@dataclass(slots=True)
class Place:
    """Where runs are executed, one after the other.

    Attributes:
        prepared: The first of these runs.
        environment: The environment; None: it is not up yet.
        stays: Whether it stays up at the end.
        last: The last run that was to be executed in it.
    """

    prepared: PreparedRun
    environment: Environment | None
    stays: bool
    last: RunDir | None = None

    def prepare(self, run: RunDir) -> Environment:
        """Boot the environment for a run, or protect this host from the one that is up."""
        self.last = run
        if self.environment is None:
            first = self.prepared
            with signals.blockable_interrupts() as defer:
                # From the moment when it is up, Ctrl-C waits until it is known here.
                self.environment = boot(
                    first.backend,
                    first.plan,
                    root=first.project.root,
                    share=first.place.share,
                    then=lambda _environment: defer(),
                )
        else:
            self.environment.block_host()
        return self.environment


@contextmanager
def place_of(first: PreparedRun) -> Iterator[Place]:
    """Yield where runs are executed; at the end, remove what was booted for the first of them."""
    place = Place(first, first.environment, stays=first.environment is not None)
    with signals.as_interrupt():
        try:
            yield place
        finally:
            if place.last is not None and place.environment is not None and not place.stays:
                with signals.ignore_signals():
                    _remove(place.last, place.environment)


def execute_run(run: RunDir, place: Place, view: MakeView | None) -> tuple[RunDir, Summary]:
    """Submit a run, follow it and those that continue it, and summarize the last one.

    If this raises before an agent received the run, the run's directory is removed.

    Args:
        run: The directory that `create_run` created.
        place: Where it is executed.
        view: Makes the view of the run, which is entered while the run is followed; None: return
            as soon as the run is submitted, and let the environment stay up.

    Returns:
        The last run, and its summary; it has ended in any state, or was detached.

    Raises:
        LabError: The run could not be executed, or the environment failed; `run.json` has the
            reason.
        RunInterruptedError: The user interrupted the run; `run.json` says so.
        KeyboardInterrupt: The user interrupted the run before an agent received it.
        OSError: A file could not be written.
    """
    while True:
        summary, following = _execute_one(run, place, view)
        if following is None:
            return run, summary
        LOG.info(f"run {following.run_id} continues run {run.run_id}: {following.path}")
        run = following


def _execute_one(run: RunDir, place: Place, view: MakeView | None) -> tuple[Summary, RunDir | None]:
    """Execute one run; without a view, only submit it: other clients follow.

    Returns:
        Its summary, and the run that continues it.
    """
    with run.opened() as opened, ExitStack() as showing:
        shown = View(opened.info)
        try:
            environment = place.prepare(run)
            lifecycle.record_environment(opened, environment, environment.cluster_spec())
            if view is not None:
                shown = showing.enter_context(view(opened.info))
            if not opened.info.has_started:  # a run that continues another one is submitted
                with signals.block_interrupts():
                    lifecycle.submit(opened, environment)
                patiently(opened.update)
            lifecycle.describe(opened, environment)
            if view is None:
                place.stays = True
                return patiently(partial(lifecycle.finish, opened)), None
            faults = NetworkFaults(environment, run.run_id, opened.info.spec.faults)
            showing.callback(faults.end)
            summary = follow(opened, environment, shown, faults.tick)
            showing.close()
            request = environment.continuation(run.run_id)
            if request is None:
                return summary, None
            return summary, adopted(request, environment, run.path.parent, run)
        except (KeyboardInterrupt, LabError, OSError) as error:
            with signals.ignore_signals():
                received_by = place.environment if _is_received(opened, place) else None
            if received_by is not None and not isinstance(error, LabError):
                _stop(opened, received_by, shown, error)
            showing.close()
            # If the disk is still full, a second OSError must not hide the first error.
            hidden = () if isinstance(error, LabError) else (OSError,)
            with signals.ignore_signals(), suppress(*hidden):
                _abort(opened, error, received=received_by is not None)
            if isinstance(error, KeyboardInterrupt) and run.path.is_dir():
                raise RunInterruptedError(run) from None
            raise


def _stop(
    run: OpenRun, environment: Environment, view: View, error: KeyboardInterrupt | OSError
) -> None:
    """Cancel a run after an error of the client, or an interrupt, and the run that continues it.

    An interrupted run is collected; another interrupt or a time limit kills it. All collected data
    is kept.
    """
    if isinstance(error, OSError):
        with suppress(LabError):  # the run may have ended
            environment.cancel(run.run_id, f"the client failed: {error}")
        return
    gently = "interrupted: stopping and collecting the run; press Ctrl-C again to kill it"
    at_once = "killing the run and collecting what it wrote"
    for line, end, seconds in (
        (gently, environment.cancel, STOP_S),
        (at_once, environment.kill, COLLECT_S),
    ):
        try:
            with signals.time_limit(seconds):
                LOG.warning(line)
                if run.info.state.ended:
                    for newest in environment.runs()[-1:]:
                        end(newest.run_id, INTERRUPTED)
                else:
                    end(run.run_id, INTERRUPTED)
                    follow(run, environment, view)
                return
        except KeyboardInterrupt:
            continue
        except (LabError, OSError) as failure:
            LOG.warning(failure.what if isinstance(failure, LabError) else str(failure))
            return
    LOG.warning("the run was not fully collected")


def _abort(run: OpenRun, error: BaseException, *, received: bool) -> None:
    """Mark a run as ended after an error, or remove its directory if no agent received it."""
    interrupted = isinstance(error, KeyboardInterrupt)
    state = State.CANCELLED if interrupted else State.FAILED
    if received:
        lifecycle.abort(run, state, INTERRUPTED if interrupted else str(error))
    else:
        run.directory.discard()
        LOG.info(f"run {run.run_id} did not start; its directory was removed")


def _is_received(run: OpenRun, place: Place) -> bool:
    """Whether agents received a run; True if the environment does not answer."""
    if run.info.has_started or place.environment is None:
        return run.info.has_started
    try:
        requests = with_timeout(PATIENCE_S, place.environment.runs)
    except (LabError, TimeoutError):
        return True
    return any(request.run_id == run.run_id for request in requests)


def _remove(run: RunDir, environment: Environment) -> None:
    """Remove a booted environment, unless another client trains in it now.

    If a run was not fully collected, its run volume is kept. An environment that cannot be
    removed is a warning: it must not hide how the run ended.

    Args:
        run: This client's last run in the environment.
        environment: The environment.
    """

    def keeps() -> bool:
        requests = environment.runs()
        other = under_way(environment, requests, besides=run.run_id)
        if other is not None:
            raise LabError(f"run {other} is under way in it")
        return keeps_files(environment, requests, run.path.parent, run)

    down = partial(with_lock_retry, partial(environment.down, keeps=keeps))
    problem, interrupted = "", isinstance(sys.exception(), KeyboardInterrupt)
    try:
        if interrupted:
            with signals_blocked():
                removal = in_background(down)
            removal.result(DOWN_S)
        else:
            down()
    except TimeoutError:
        problem = f"it is not removed after {DOWN_S:g} s"
    except (LabError, OSError) as error:
        problem = error.what if isinstance(error, Busy) else str(error)
    if problem:
        LOG.warning(
            f"environment {environment.project!r} stays up: {problem};"
            f" try again with `lab down {environment.project}`"
        )
