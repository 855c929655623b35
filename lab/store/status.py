"""The status of a run, from the run store or from a run volume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lab.store.directory import RunDir, read_statuses
from lab.store.run_info import RunInfo
from lab.volume import TaskStatus
from lab.volume.states import State


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run.

    Attributes:
        info: Its `run.json`, with the newest known state and reason.
        statuses: The newest known status of each task.
        note: A hint for the user; may be empty.
    """

    info: RunInfo
    statuses: Mapping[str, TaskStatus]
    note: str = ""

    @classmethod
    def recorded(cls, run: RunDir) -> RunStatus:
        """Return the status in the run store.

        Raises:
            LabError: A file of the run cannot be read.
        """
        info = run.read()
        return cls(info, read_statuses(run, info))

    def with_state(self, state: State, reason: str) -> RunStatus:
        """Return a copy with another state."""
        return replace(self, info=replace(self.info, state=state, reason=reason))

    @property
    def state(self) -> State:
        """The run's state."""
        return self.info.state

    @property
    def reason(self) -> str:
        """The reason for this state; may be empty."""
        return self.info.reason


@dataclass(frozen=True, slots=True)
class VolumeStatus:
    """The status of a run on a run volume.

    Attributes:
        statuses: The status of each task.
        stopped: Whether no agent runs any more, so that the statuses cannot change.
    """

    statuses: Mapping[str, TaskStatus]
    stopped: bool


Probe = Callable[[RunInfo], VolumeStatus | None]
"""Looks for a run on the run volumes; None: no volume has it. Raises LabError if unknown."""
