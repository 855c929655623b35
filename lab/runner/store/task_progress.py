"""The progress of a task, computed from its records: for the live view and for the summary."""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from lab.protocol.experiments.faults import DONE, Fault, parse
from lab.protocol.records.reader import (
    EVER,
    STEPS,
    Result,
    is_number,
    is_whole,
    read_records,
    result_of,
)

_WHOLE: Final = ("epoch", "local_step", "global_step", "staleness", "batch_size")
FINAL_RECORDS: Final = 10
"""The maximum number of step records whose mean is the final loss of a task.

The loss of one batch varies: workers with equal parameters would have different final losses.
A short training has few records; then the mean is over the last quarter of them.
"""

FINAL_LOSS: Final = f"mean of the last 25% of records, at most {FINAL_RECORDS}"
"""What a final loss is, for the places that show one."""

CLOCK_CHANGED_S: Final = 1.0
"""The clock was changed if the time of day and the elapsed time differ by this, in seconds."""

_MOST_FAULTS: Final = 100  # of a task

FIRST_SEQ: Final = 0
"""The first sequence number of an attempt."""


class ImageMark(NamedTuple):
    """The images of a step record.

    Attributes:
        time_unix: Its time, in seconds since the epoch.
        local_step: Its local step.
        examples: The images that it counts, or None.
    """

    time_unix: float
    local_step: int
    examples: int | None


@dataclass(slots=True)
class TaskProgress:
    """The progress of one task, computed from its records.

    Attributes:
        task: `worker-0`.
        epoch: The newest record's epoch, 0-based, or None.
        local_step: The newest local step, or None.
        global_step: The newest global step, or None.
        highest: The highest global step, or None.
        loss: The newest loss, or None.
        diverged_at: The first step of the current NaN or infinite losses, or None.
        staleness: The newest staleness, in updates by other workers, or None.
        staleness_sums: Attempt to the newest sum of the staleness of its steps, in updates by other
            workers, and their number.
        batch_size: The newest batch size, or None.
        accuracy: The newest accuracy that the task measured, from 0 to 1, or None. Tests during
            the training do not count.
        probe: The probe variable beside the final parameters, or None.
        probe_global_step: The global step read together with the probe, or None.
        final_accuracy: The accuracy of the final parameters, from 0 to 1, or None.
        first_step_unix: The end of its first step, in seconds since the epoch. None also if its
            records do not show it: a listing prints its first line after many steps.
        has_trained: Whether it has recorded a step or an epoch.
        last_unix: The time of its newest record, in seconds since the epoch, or None.
        records: The number of records.
        lost: The number of missing sequence numbers; records without one are ignored here.
        attempt: The newest attempt.
        message: The newest event's message.
        trained: The times of the newest attempt's first and newest step record, in seconds since
            the epoch, or None.
        results: Name to the newest result of the experiment with this name.
        global_marks: Time and global step of the first and of the newest step record.
        peaks: Attempt to time and global step of its highest step record.
        image_marks: Attempt to the first and the newest of its step records.
        resumed: Time and global step of each checkpoint from which a later attempt resumed.
        faults: The faults that its agent injected, each with its time.
    """

    task: str
    epoch: int | None = None
    local_step: int | None = None
    global_step: int | None = None
    highest: int | None = None
    loss: float | None = None
    diverged_at: int | None = None
    staleness: int | None = None
    batch_size: int | None = None
    accuracy: float | None = None
    probe: int | None = None
    probe_global_step: int | None = None
    final_accuracy: float | None = None
    first_step_unix: float | None = None
    has_trained: bool = False
    last_unix: float | None = None
    records: int = 0
    lost: int = 0
    attempt: int = 0
    message: str = ""
    trained: tuple[float, float] | None = None
    results: dict[str, Result] = field(default_factory=dict)
    global_marks: list[tuple[float, int]] = field(default_factory=list)
    peaks: dict[int, tuple[float, int]] = field(default_factory=dict)
    image_marks: dict[int, tuple[ImageMark, ImageMark]] = field(default_factory=dict)
    staleness_sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    _losses: deque[float] = field(default_factory=lambda: deque(maxlen=FINAL_RECORDS))
    _losses_attempt: int = 0
    _losses_seen: int = 0
    resumed: list[tuple[float, int]] = field(default_factory=list)
    faults: list[tuple[Fault, float]] = field(default_factory=list)
    _began_unix: dict[tuple[int, bool], float] = field(default_factory=dict)
    _expected: dict[int, int] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> None:
        """Add one record; a missing field changes nothing."""
        self.records += 1
        self._count(record)
        for name in _WHOLE:
            if is_whole(record.get(name)):
                setattr(self, name, record[name])
        if is_number(record.get("loss")):
            self._lose(record)
        if is_whole(record.get("global_step")):
            self.highest = max(self.highest or 0, record["global_step"])
        if is_whole(record.get("staleness_sum")) and is_whole(record.get("local_step")):
            self.staleness_sums[self.attempt] = record["staleness_sum"], record["local_step"]
        if is_number(record.get("time_unix")):
            self.last_unix = record["time_unix"]
        if record.get("kind") in STEPS:
            self.has_trained = True
            self._step(record)
        elif record.get("kind") == "event":
            self._event(record)
        elif record.get("kind") == "result" and (result := result_of(record)) is not None:
            self.results[result.name] = result
        if isinstance(record.get("message"), str):
            self.message = record["message"]
        if is_whole(record.get("probe")):
            self.probe = record["probe"]
            step, accuracy = record.get("global_step"), record.get("accuracy")
            self.probe_global_step = step if is_whole(step) else None
            self.final_accuracy = accuracy if is_number(accuracy) else None
        elif is_number(record.get("accuracy")) and not (
            # Only a test during the training has a local step.
            record.get("kind") == "eval" and "local_step" in record
        ):
            self.accuracy = record["accuracy"]

    @property
    def final_loss(self) -> float | None:
        """The mean loss of the last quarter of its step records, at most of `FINAL_RECORDS`.

        Only the last attempt with such records counts. A NaN or infinite newest loss is returned as
        it is. The mean begins after the last one that the training recovered from.
        Without a loss in a step record: the newest loss of any record, or None.
        """
        count = self.final_records
        return sum(list(self._losses)[-count:]) / count if count else self.loss

    @property
    def final_records(self) -> int:
        """The number of step records whose mean is the final loss; 0: it is no mean."""
        return min(FINAL_RECORDS, -(-self._losses_seen // 4))

    @property
    def steps_per_s(self) -> float | None:
        """Local steps per second of the newest attempt, from its first step record on.

        None if its records are all of one step.
        """
        if self.attempt not in self.image_marks:
            return None
        first, newest = self.image_marks[self.attempt]
        seconds, steps = newest.time_unix - first.time_unix, newest.local_step - first.local_step
        return steps / seconds if seconds > 0 and steps > 0 else None

    def _count(self, record: dict[str, Any]) -> None:
        """Count missing sequence numbers: `seq` rises by one for each record of an attempt."""
        seq, attempt = record.get("seq"), record.get("attempt", 0)
        if not is_whole(attempt):
            return
        if attempt > self.attempt:
            self.attempt = attempt
            self.trained = None
        if not is_whole(seq):
            return
        expected = self._expected.get(attempt, FIRST_SEQ)
        self.lost += max(0, seq - expected)
        self._expected[attempt] = max(expected, seq + 1)

    def _lose(self, record: dict[str, Any]) -> None:
        """Update the losses, and the step from which on they are not finite."""
        self.loss = record["loss"]
        is_finite = math.isfinite(record["loss"])
        is_step = record.get("kind") in STEPS
        if not is_finite or (is_step and self.attempt != self._losses_attempt):
            self._losses.clear()
            self._losses_seen, self._losses_attempt = 0, self.attempt
        if is_finite and is_step:
            self._losses.append(record["loss"])
            self._losses_seen += 1
        if is_finite:
            self.diverged_at = None
        elif self.diverged_at is None:
            step = record.get("global_step", record.get("local_step"))
            self.diverged_at = step if is_whole(step) else None

    def _time(self, record: dict[str, Any]) -> float | None:
        """Return the time of a record, in seconds since the epoch; None if it has none.

        If the clock was changed since the first record of the attempt, the time follows from
        `elapsed_s`. Records of the agent have no `seq`, and count from another start.
        """
        time, elapsed_s = record.get("time_unix"), record.get("elapsed_s")
        if not is_number(time) or not is_number(elapsed_s):
            return time if is_number(time) else None
        writer = self.attempt, "seq" in record
        expected = self._began_unix.setdefault(writer, time - elapsed_s) + elapsed_s
        return time if abs(time - expected) < CLOCK_CHANGED_S else expected

    def _step(self, record: dict[str, Any]) -> None:
        time, step = self._time(record), record.get("local_step")
        if time is None:
            return
        self.trained = (self.trained[0] if self.trained else time, time)
        if is_whole(record.get("global_step")):
            mark = (time, record["global_step"])
            self.global_marks = [*self.global_marks[:1], mark]
            peak = self.peaks.get(self.attempt, mark)
            self.peaks[self.attempt] = max(mark, peak, key=itemgetter(1))
        if not is_whole(step):
            return
        examples = record.get("examples")
        newest = ImageMark(time, step, examples if is_whole(examples) else None)
        first, _ = self.image_marks.get(self.attempt, (newest, newest))
        self.image_marks[self.attempt] = first, newest
        if first is newest:
            step_time = record.get("step_time_s")
            # The record comes after `step` steps; the first one ended (step - 1) steps earlier.
            if self.first_step_unix is None and step <= 1:
                self.first_step_unix = time
            elif self.first_step_unix is None and is_number(step_time):
                self.first_step_unix = time - (step - 1) * step_time

    def _event(self, record: dict[str, Any]) -> None:
        """Record a fault, or the checkpoint from which a program resumed: it has a global step."""
        time, step = self._time(record), record.get("global_step")
        message = str(record.get("message"))
        if time is not None and message.startswith(DONE) and len(self.faults) < _MOST_FAULTS:
            with suppress(ValueError):  # a program's own line
                self.faults.append((parse(message.removeprefix(DONE)), time))
        if time is not None and is_whole(step) and record.get("attempt"):
            self.resumed.append((time, step))


def read_progress(path: Path, task: str, times: tuple[float, float] = EVER) -> TaskProgress:
    """Return the progress from a task's records file; a missing file counts as empty."""
    progress = TaskProgress(task)
    for record in read_records(path, times):
        progress.add(record)
    return progress
