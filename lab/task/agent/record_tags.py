"""Whose output it is: what an agent writes into every record of its program."""

from __future__ import annotations

from dataclasses import dataclass

from lab.records import FIELDS, Record, Value


@dataclass(frozen=True, slots=True)
class RecordTags:
    """One start of one task's program.

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
        """Complete a record; one that lacks nothing is left as it is.

        No program writes in another's name: run, job and index are always the task's own. What
        else is missing is added, but for `seq`: only who writes a record can count it, and nobody
        can tell whether one without a number was lost.

        Args:
            record: What the program wrote, or what was read from its print.
            time_unix: When it was read, in seconds since the epoch.
            elapsed_s: Seconds from the program's start until then.
        """
        if self.is_complete(record):
            return record
        own: dict[str, Value] = {
            "run": self.run,
            "job_name": self.job_name,
            "task_index": self.task_index,
        }
        missing: dict[str, Value] = {
            "attempt": self.attempt,
            "time_unix": round(time_unix, 3),
            "elapsed_s": round(elapsed_s, 6),
        }
        whole = {**missing, **record, **own}
        return {name: whole[name] for name in FIELDS if name in whole}

    def is_complete(self, record: Record) -> bool:
        """Whether the recorder of this task's program wrote it, so that it lacks nothing."""
        # Whatever the recorder wrote is, and that is what comes in numbers.
        return (
            record.get("run") == self.run
            and record.get("job_name") == self.job_name
            and record.get("task_index") == self.task_index
            and "attempt" in record
            and "time_unix" in record
            and "elapsed_s" in record
        )
