"""Where a run stands, told also when nobody follows it any more.

`run.json` tells it as long as somebody follows. When its helper has died, the tasks tell: their
states lie on the run volume, if that is still there.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lab.backends import Backend, Environment, Say
from lab.errors import LabError
from lab.run import lifecycle
from lab.run.directory import RunDir, RunInfo
from lab.run.summary import read_statuses
from lab.run.whereabouts import statuses_of
from lab.task.protocol import TaskStatus
from lab.task.states import State
from lab.threads import within

GONE: Final = "its environment has gone"
NEVER_BEGAN: Final = "its helper ended before it could begin"

PATIENCE_S: Final = 5.0
"""So long an engine may take to say what it knows of a run, in seconds."""

_YOUNG_S: Final = 3.0
"""A run that is younger than this may be between its first line and the lock of its helper."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands.

    Attributes:
        state: The run's.
        reason: Why it stands there; may be empty.
        statuses: The tasks' states, the newest that are known.
        note: What is to be done about it; may be empty.
    """

    state: State
    reason: str
    statuses: Mapping[str, TaskStatus]
    note: str = ""


@dataclass(frozen=True, slots=True)
class There:
    """What a run volume has of a run.

    Attributes:
        statuses: The tasks' states.
        gone: Whether no agent is left that could change them.
    """

    statuses: Mapping[str, TaskStatus]
    gone: bool


Ask = Callable[[RunInfo], There | None]
"""Looks for a run on the run volumes; None: none has it. Raises LabError where nobody can say."""


@dataclass
class Volumes:
    """Asks the run volumes of this machine.

    Attributes:
        known: Makes all backends; called when the first run has to be looked for.
        patience_s: Seconds that one may take to answer.
    """

    known: Callable[[], Sequence[Backend]]
    patience_s: float = PATIENCE_S
    _deaf: dict[tuple[str, str | None], LabError] = field(default_factory=dict)

    def __call__(self, info: RunInfo) -> There | None:
        """Look for a run.

        Raises:
            LabError: A backend does not answer.
        """
        for backend in self.known():
            if info.backend in {backend.name, ""}:
                found = self._ask(backend, info)
                if found is not None:
                    return found
        return None

    def _ask(self, backend: Backend, info: RunInfo) -> There | None:
        whole, one = (backend.name, None), (backend.name, info.project)
        for each in (whole, one):
            if each in self._deaf:
                raise self._deaf[each]
        try:
            return within(self.patience_s, lambda: _look(backend, info))
        except TimeoutError:
            fault = self._deaf[whole] = LabError(
                f"backend {backend.name} does not answer within {self.patience_s:g} s",
                "see `lab doctor`",
            )
        except LabError as error:  # it may be this environment's alone
            fault = self._deaf[one] = error
        raise fault


def standing(run: RunDir, ask: Ask) -> Standing:
    """Where a run stands; nobody is asked while it is followed, or when all of it is at home.

    Raises:
        LabError: `run.json` cannot be read, or nobody can say.
    """
    info = run.read()
    at_home = Standing(info.state, info.reason, read_statuses(run, info))
    if not _unsettled(info) or is_followed(run):
        return at_home
    there = ask(info)
    if there is not None:
        return _from_there(info, there)
    # It was read before the lock was tried: somebody may have brought it to its end since.
    info = run.read()
    at_home = Standing(info.state, info.reason, read_statuses(run, info))
    if info.state.ended or time.time() - info.started_unix < _YOUNG_S:
        return at_home
    reason = GONE if info.has_started else NEVER_BEGAN
    return replace(at_home, state=State.LOST, reason=reason)


def told(run: RunDir, ask: Ask, say: Say) -> Standing:
    """The same for a command that only shows it: where nobody can say, a line says that.

    Raises:
        LabError: `run.json` cannot be read.
    """
    try:
        return standing(run, ask)
    except LabError as error:
        info = run.read()
        say(f"run {run.run_id}: where it stands is not known: {error}")
        return Standing(info.state, info.reason, read_statuses(run, info))


def settle(run: RunDir, ask: Ask) -> None:
    """Write into `run.json` that a run is lost, where nothing is left that could say more.

    Raises:
        LabError: Somebody follows it, or nobody can say.
    """
    if run.read().state.ended:
        return
    with run.locked():
        pass
    found = standing(run, ask)
    if found.state.ended and not found.note:
        with run.locked():
            lifecycle.end_as(run, found.state, found.reason)
            lifecycle.finish(run)


def is_followed(run: RunDir) -> bool:
    """Whether a living process holds the run: it follows it, or collects it."""
    descriptor = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def states_of(environment: Environment, run_id: str) -> There:
    """What an environment has of a run.

    Raises:
        LabError: There is no such run, or its volume cannot be read.
    """
    return There(statuses_of(environment, run_id), lifecycle.has_gone(environment))


def _unsettled(info: RunInfo) -> bool:
    """Whether what `run.json` says may not be the last word."""
    if not info.state.ended:
        return True
    # A run that ended before it was submitted is on no volume.
    return not info.collected and info.has_started


def _look(backend: Backend, info: RunInfo) -> There | None:
    if not info.backend and backend.unavailable() is not None:
        return None  # it may have been meant, but it cannot have been used
    environment = backend.find_volume(info.project)
    if environment is None:
        return None
    if all(request.run_id != info.run_id for request in environment.runs()):
        return None
    return states_of(environment, info.run_id)


def _from_there(info: RunInfo, there: There) -> Standing:
    collect = f"not collected: `lab collect {info.run_id}`"
    given_up = replace(info, state=State.PENDING, reason="")
    state, reason = lifecycle.verdict(given_up, there.statuses)
    if state.ended:
        return Standing(state, reason, there.statuses, collect)
    if there.gone:
        return Standing(State.LOST, GONE, there.statuses, collect)
    return Standing(state, reason, there.statuses, f"nobody follows it: `lab attach {info.run_id}`")
