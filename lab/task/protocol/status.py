"""The state of a task, as its agent writes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lab.task.protocol.decoding import from_json
from lab.task.protocol.states import Cause, State


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an earlier start of a task's program ended.

    Attributes:
        reason: Why, in words.
        cause: The same in a word.
        started_unix: When it was started, in seconds since the epoch, or None.
        ended_unix: When it had ended, in seconds since the epoch.
        global_step: The highest that its records have told, or None.
    """

    reason: str
    cause: Cause | None
    started_unix: float | None
    ended_unix: float
    global_step: int | None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state of one task of one run, as its agent last wrote it.

    Attributes:
        task: `worker-0`.
        state: Where it stands.
        attempt: 0 for the first start of the program, one more for each restart.
        reason: Why it stands there, in words; may be empty.
        cause: The same in a word for programs, where it ended otherwise than well.
        exit_code: The program's exit code; None while it runs or when a signal ended it.
        signal: The name of the signal that ended the program (`SIGKILL`), or None.
        pid: The program's process id where it runs, or None.
        started_unix: When the program was started, in seconds since the epoch, or None.
        ended_unix: When it had ended, in seconds since the epoch, or None.
        global_step: The highest that its records have told, or None.
        stepped_unix: When that one came, in seconds since the epoch, or None.
        message: What its newest event says: mostly what it waits for; may be empty.
        earlier: How the attempts before this one ended, the first one first.
        records_sha256: SHA-256 of its records, once it has ended; "" in statuses of earlier
            versions, and of a task that another one had to declare lost.
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
    message: str = ""
    earlier: tuple[Attempt, ...] = ()
    records_sha256: str = ""
    records_lost: int = 0

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskStatus:
        """Read it back.

        Raises:
            ValueError: The text is no status.
        """
        return from_json(text, cls, "task status")
