"""The status of a task, as its agent writes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lab.volume.decoding import from_json
from lab.volume.states import Cause, State


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier attempt of a task's program, and how it ended.

    Attributes:
        reason: Why it ended, as a text.
        cause: Why it ended, as a fixed term.
        started_unix: When it started, in seconds since the epoch, or None.
        ended_unix: When it ended, in seconds since the epoch.
        global_step: The highest global step in its records, or None.
    """

    reason: str
    cause: Cause | None
    started_unix: float | None
    ended_unix: float
    global_step: int | None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of one task of one run, as its agent last wrote it.

    Attributes:
        task: `worker-0`.
        state: The state.
        attempt: 0 for the first start of the program; each restart adds 1.
        reason: Why it is in this state, as a text; may be empty.
        cause: Why it did not succeed, as a fixed term; None while it runs or if it succeeded.
        exit_code: The program's exit code; None while it runs or if a signal ended it.
        signal: The name of the signal that ended the program (`SIGKILL`), or None.
        pid: The program's process id in its environment, or None.
        started_unix: When the program started, in seconds since the epoch, or None.
        ended_unix: When it ended, in seconds since the epoch, or None.
        global_step: The highest global step in its records, or None.
        stepped_unix: When the agent read that step, in seconds since the epoch, or None.
        signs_of_life: The number of its program's signs of life, counted until its first step.
        message: The text of its newest event, often what it waits for; may be empty.
        earlier: The attempts before this one, in order.
        records_sha256: SHA-256 of its records after its end; "" before it, and for a task
            that another agent declared lost.
        records_lost: The number of records that could not be written to the run volume.
    """

    task: str
    state: State
    attempt: int = 0
    reason: str = ""
    cause: Cause | None = None
    exit_code: int | None = None
    signal: str | None = None
    pid: int | None = None
    started_unix: float | None = None
    ended_unix: float | None = None
    global_step: int | None = None
    stepped_unix: float | None = None
    signs_of_life: int = 0
    message: str = ""
    earlier: tuple[Attempt, ...] = ()
    records_sha256: str = ""
    records_lost: int = 0

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskStatus:
        """Decode a status.

        Raises:
            ValueError: The text is not a status.
        """
        return from_json(text, cls, "task status")
