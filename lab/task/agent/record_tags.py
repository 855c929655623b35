"""The tags that an agent adds to every record of its program: run, attempt and task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lab.records import FIELDS, Record, Value

_ADDED: Final = frozenset({"attempt", "time_unix", "elapsed_s"})
"""The fields that are added if they are missing."""


@dataclass(frozen=True, slots=True)
class RecordTags:
    """The tags of one start of one task's program.

    Attributes:
        run: The run's id.
        attempt: 0 for the first start of the program, one more for each restart.
        job_name: The task's job.
        task_index: The task's index in its job.
    """

    run: str
    attempt: int
    job_name: str
    task_index: int

    def complete(self, record: Record, time_unix: float, elapsed_s: float) -> Record:
        """Complete a record; a complete one is returned unchanged.

        Run, job and index are always the task's own, whatever the program wrote. Other missing
        fields are added, except `seq`: only the writer of a record can number it.

        Args:
            record: The program's record, or one that was read from a printed line.
            time_unix: When it was read, in seconds since the epoch.
            elapsed_s: Seconds from the program's start until then.
        """
        if self.is_complete(record):
            return record
        missing: dict[str, Value] = {
            "attempt": self.attempt,
            "time_unix": round(time_unix, 3),
            "elapsed_s": round(elapsed_s, 6),
        }
        whole = {**missing, **record, **self._own()}
        return {name: whole[name] for name in FIELDS if name in whole}

    def is_complete(self, record: Record) -> bool:
        """Whether the record is complete: the recorder of this task's program wrote it."""
        # Only the recorder writes all these fields, and most records come from it.
        return self._own().items() <= record.items() and record.keys() >= _ADDED

    def _own(self) -> dict[str, Value]:
        return {"run": self.run, "job_name": self.job_name, "task_index": self.task_index}
