"""The status of a run, also of a run that no client follows.

While a client follows the run, it writes the status into `run.json`. If that client died, the task
states on the run volume give the status, if the run volume still exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lab.backends.base import Backend
from lab.backends.environment import Environment
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.threads import with_timeout
from lab.protocol.volume.states import State
from lab.runner import lifecycle
from lab.runner.lifecycle import PATIENCE_S, statuses_of
from lab.runner.store.directory import Probe, RunDir, RunStatus, VolumeStatus
from lab.runner.store.run_info import RunInfo
from lab.runner.verdict import GONE, verdict

NEVER_BEGAN: Final = "its client ended before the run started"

NOT_COLLECTED: Final = "not collected"
"""How the note of a run begins that has ended without its client."""

_YOUNG_S: Final = 3.0
"""The client of a younger run, in seconds, may have written `run.json` but not locked it yet."""


@dataclass
class StatusProber:
    """Looks for runs on the run volumes of this host.

    A backend or an environment that failed once is not asked again.

    Attributes:
        known: Returns all backends; called for the first run.
        patience_s: Seconds that a backend has to answer.
    """

    known: Callable[[], Sequence[Backend]]
    patience_s: float = PATIENCE_S
    _failed: dict[tuple[str, str | None], LabError] = field(default_factory=dict)

    def __call__(self, info: RunInfo) -> VolumeStatus | None:
        """Look for a run.

        Raises:
            LabError: A backend does not answer.
        """
        for backend in self.known():
            if info.backend in {backend.name, ""}:
                answer = self._ask(backend, info)
                if answer is not None:
                    return answer
        return None

    def _ask(self, backend: Backend, info: RunInfo) -> VolumeStatus | None:
        whole, one = (backend.name, None), (backend.name, info.project)
        for scope in (whole, one):
            if scope in self._failed:
                raise self._failed[scope]
        try:
            return with_timeout(self.patience_s, lambda: _probe(backend, info))
        except TimeoutError:
            failure = self._failed[whole] = LabError(
                f"backend {backend.name} does not answer within {self.patience_s:g} s",
                "check it with `lab doctor`",
            )
        except LabError as error:  # possibly only this environment has failed
            failure = self._failed[one] = error
        raise failure


def status_of(run: RunDir, ask: Probe) -> RunStatus:
    """Return the status of a run.

    Run volumes are not read while a client follows the run, or if it is completely collected.

    Raises:
        LabError: `run.json` cannot be read, or a backend does not answer.
    """
    recorded = RunStatus.recorded(run)
    if is_settled(recorded.info) or run.is_followed():
        return recorded
    on_volume = ask(recorded.info)
    if on_volume is not None:
        return _from_volume(recorded.info, on_volume)
    # Read again: another client may have finished the run meanwhile.
    recorded = RunStatus.recorded(run)
    info = recorded.info
    if info.state.ended or time.time() - info.started_unix < _YOUNG_S:
        return recorded
    return recorded.with_state(State.LOST, GONE if info.has_started else NEVER_BEGAN)


def status_or_warn(run: RunDir, ask: Probe) -> RunStatus:
    """Return the status of a run; if a backend does not answer, warn and return the recorded one.

    Raises:
        LabError: `run.json` cannot be read.
    """
    try:
        return status_of(run, ask)
    except LabError as error:
        recorded = RunStatus.recorded(run)
        LOG.warning(f"run {run.run_id}: its status is unknown: {error}")
        return recorded


def finalize(run: RunDir, ask: Probe) -> None:
    """Write into `run.json` that a run is lost if it is on no run volume.

    Raises:
        LabError: Another process follows the run, or a backend does not answer.
    """
    if run.read().state.ended:
        return
    with run.locked():
        pass
    status = status_of(run, ask)
    if status.state.ended and not status.note:
        with run.opened() as opened:
            lifecycle.abort(opened, status.state, status.reason)


def volume_status(environment: Environment, run_id: str) -> VolumeStatus:
    """Return the status of a run on the run volume of an environment.

    Raises:
        LabError: The run does not exist, or the run volume cannot be read.
    """
    return VolumeStatus(statuses_of(environment, run_id), lifecycle.has_stopped(environment))


def is_settled(info: RunInfo) -> bool:
    """Whether the state in `run.json` is final."""
    # A run that ended before it was submitted is on no run volume.
    return info.state.ended and (info.collected or not info.has_started)


def _probe(backend: Backend, info: RunInfo) -> VolumeStatus | None:
    if not info.backend and backend.obstacle() is not None:
        return None  # the run cannot have used this backend
    environment = backend.find_any(info.project)
    if environment is None or all(each.run_id != info.run_id for each in environment.runs()):
        return None
    return volume_status(environment, info.run_id)


def _from_volume(info: RunInfo, on_volume: VolumeStatus) -> RunStatus:
    collect = f"{NOT_COLLECTED}: `lab attach {info.run_id}`"
    reopened = replace(info, state=State.PENDING, reason="")
    state, reason = verdict(reopened, on_volume.statuses)
    status = RunStatus(replace(info, state=state, reason=reason), on_volume.statuses, collect)
    if state.ended:
        return status
    if on_volume.stopped:
        return status.with_state(State.LOST, GONE)
    return replace(status, note=f"no client follows it: `lab attach {info.run_id}`")
