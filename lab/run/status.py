"""The status of a run, also of one that no client follows any more.

`run.json` has it as long as a client follows. When that client has died, the states of the tasks
on the run volume have it, if that still exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lab.backends import Backend, Environment, Notify
from lab.errors import LabError
from lab.run import lifecycle
from lab.run.discovery import statuses_of
from lab.run.run_info import RunInfo
from lab.run.store import RunDir, read_statuses
from lab.task.protocol import TaskStatus
from lab.task.protocol.states import State
from lab.threads import with_timeout

GONE: Final = "its environment has gone"
NEVER_BEGAN: Final = "its helper ended before it could begin"

PATIENCE_S: Final = 5.0
"""So long an engine may take to say what it knows of a run, in seconds."""

_YOUNG_S: Final = 3.0
"""A run that is younger than this may be between its first line and the lock of its helper."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run.

    Attributes:
        info: Its `run.json`, with the state and the reason that are known now.
        statuses: The tasks' states, the newest that are known.
        note: What the user can do about it; may be empty.
    """

    info: RunInfo
    statuses: Mapping[str, TaskStatus]
    note: str = ""

    @classmethod
    def recorded(cls, run: RunDir) -> RunStatus:
        """What the run store has of a run.

        Raises:
            LabError: A file of it cannot be read.
        """
        info = run.read()
        return cls(info, read_statuses(run, info))

    def with_state(self, state: State, reason: str) -> RunStatus:
        """The same in another state."""
        return replace(self, info=replace(self.info, state=state, reason=reason))

    @property
    def state(self) -> State:
        """The run's state."""
        return self.info.state

    @property
    def reason(self) -> str:
        """Why it is in this state; may be empty."""
        return self.info.reason


@dataclass(frozen=True, slots=True)
class VolumeStatus:
    """What a run volume has of a run.

    Attributes:
        statuses: The tasks' states.
        gone: Whether no agent is left that could change them.
    """

    statuses: Mapping[str, TaskStatus]
    gone: bool


Probe = Callable[[RunInfo], VolumeStatus | None]
"""Looks for a run on the run volumes; None: none has it. Raises LabError where nobody can say."""


@dataclass
class StatusProber:
    """Asks the run volumes of this machine.

    Attributes:
        known: Makes all backends; called when the first run has to be looked for.
        patience_s: Seconds that one may take to answer.
    """

    known: Callable[[], Sequence[Backend]]
    patience_s: float = PATIENCE_S
    _deaf: dict[tuple[str, str | None], LabError] = field(default_factory=dict)

    def __call__(self, info: RunInfo) -> VolumeStatus | None:
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

    def _ask(self, backend: Backend, info: RunInfo) -> VolumeStatus | None:
        whole, one = (backend.name, None), (backend.name, info.project)
        for each in (whole, one):
            if each in self._deaf:
                raise self._deaf[each]
        try:
            return with_timeout(self.patience_s, lambda: _look(backend, info))
        except TimeoutError:
            fault = self._deaf[whole] = LabError(
                f"backend {backend.name} does not answer within {self.patience_s:g} s",
                "see `lab doctor`",
            )
        except LabError as error:  # it may be this environment's alone
            fault = self._deaf[one] = error
        raise fault


def status_of(run: RunDir, ask: Probe) -> RunStatus:
    """The status of a run; run volumes are not read while it is followed, or is all collected.

    Raises:
        LabError: `run.json` cannot be read, or a backend does not answer.
    """
    recorded = RunStatus.recorded(run)
    if not _unsettled(recorded.info) or run.is_followed():
        return recorded
    there = ask(recorded.info)
    if there is not None:
        return _from_there(recorded.info, there)
    # Read again: another client may have ended it before the lock was tried.
    recorded = RunStatus.recorded(run)
    info = recorded.info
    if info.state.ended or time.time() - info.started_unix < _YOUNG_S:
        return recorded
    return recorded.with_state(State.LOST, GONE if info.has_started else NEVER_BEGAN)


def status_or_warn(run: RunDir, ask: Probe, notify: Notify) -> RunStatus:
    """The same for a command that only shows it: an unknown status is a warning.

    Raises:
        LabError: `run.json` cannot be read.
    """
    try:
        return status_of(run, ask)
    except LabError as error:
        recorded = RunStatus.recorded(run)
        notify(f"run {run.run_id}: where it stands is not known: {error}")
        return recorded


def finalize(run: RunDir, ask: Probe) -> None:
    """Write into `run.json` that a run is lost, where nothing of it is left elsewhere.

    Raises:
        LabError: Another process follows it, or a backend does not answer.
    """
    if run.read().state.ended:
        return
    with run.locked():
        pass
    found = status_of(run, ask)
    if found.state.ended and not found.note:
        with run.opened() as it:
            lifecycle.mark_ended(it, found.state, found.reason)
            lifecycle.finish(it)


def volume_status(environment: Environment, run_id: str) -> VolumeStatus:
    """What an environment has of a run.

    Raises:
        LabError: There is no such run, or its volume cannot be read.
    """
    return VolumeStatus(statuses_of(environment, run_id), lifecycle.has_gone(environment))


def _unsettled(info: RunInfo) -> bool:
    """Whether the state in `run.json` may not be final."""
    if not info.state.ended:
        return True
    # A run that ended before it was submitted is on no volume.
    return not info.collected and info.has_started


def _look(backend: Backend, info: RunInfo) -> VolumeStatus | None:
    if not info.backend and backend.unavailable_reason() is not None:
        return None  # it may have been meant, but it cannot have been used
    environment = backend.find_any(info.project)
    if environment is None:
        return None
    if all(request.run_id != info.run_id for request in environment.runs()):
        return None
    return volume_status(environment, info.run_id)


def _from_there(info: RunInfo, there: VolumeStatus) -> RunStatus:
    collect = f"not collected: `lab collect {info.run_id}`"
    given_up = replace(info, state=State.PENDING, reason="")
    state, reason = lifecycle.verdict(given_up, there.statuses)
    found = RunStatus(replace(info, state=state, reason=reason), there.statuses, collect)
    if state.ended:
        return found
    if there.gone:
        return found.with_state(State.LOST, GONE)
    return replace(found, note=f"nobody follows it: `lab attach {info.run_id}`")
