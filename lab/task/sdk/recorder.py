"""The recorder: it writes the records of a training program to stdout, one per line."""

from __future__ import annotations

import argparse
import math
import operator
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, SupportsFloat, SupportsIndex

from lab.base.variables import LAB_ATTEMPT, LAB_RUN_DIR, LAB_START, LAB_TASK
from lab.protocol.records import FIELDS, Value, format_record
from lab.protocol.volume.clock import unix_time
from lab.protocol.volume.files import write_all

BY_HAND: Final = "by-hand"
"""The run's name if the user started the program from a shell, without a task agent."""

RECORD_WITHIN_S: Final = 5.0
"""With slow steps, a step is recorded at least this often, in seconds."""

_POLL_S: Final = 0.02

Kind = Literal["start", "step", "epoch", "eval", "result", "final", "event"]
Number = SupportsIndex | SupportsFloat
"""A Python number, or a NumPy scalar as `Session.run` returns it."""


class Recorder:
    """Writes the records of one task.

    Each record contains the run, the attempt, the task, a sequence number and the time. A training
    reports each step, and the recorder decides which steps it writes::

        recorder = Recorder("worker", 0)
        recorder.ready()
        recorder.begin_training(flags, local_steps_per_epoch=550)
        recorder.step(local_step, global_step, loss=loss_now)  # for each step
        recorder.write("eval", global_step=global_step, accuracy=0.91)
        recorder.finish(accuracy=0.91)

    Several threads may use one recorder; only one of them reports steps.

    Attributes:
        run: The run's id, or `by-hand`.
        attempt: 0 for the first start of the program; each restart adds 1.
        task: The task's name, `worker-0` for `/job:worker/task:0`.
    """

    def __init__(self, job_name: str, task_index: int, *, descriptor: int = 1) -> None:
        """Create a recorder: `seq` is 0 in the first record, `elapsed_s` counts from now.

        Args:
            job_name: The task's job.
            task_index: The task's index in its job.
            descriptor: The file descriptor to write to; stdout by default.
        """
        self.run = Path(os.environ.get(LAB_RUN_DIR, "")).name or BY_HAND
        self.attempt = int(os.environ.get(LAB_ATTEMPT) or 0)
        self.task = f"{job_name}-{task_index}"
        self._job_name = job_name
        self._task_index = task_index
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._seq = 0
        self._started = time.monotonic()
        self._started_unix = unix_time()
        self._steps = Steps()

    @classmethod
    def here(cls) -> Self:
        """Return the recorder of this process's task; of `worker-0` if started by hand."""
        job, _, index = (os.environ.get(LAB_TASK) or "worker-0").rpartition("-")
        return cls(job, int(index))

    def write(self, kind: Kind, **fields: str | Number) -> None:
        """Write one record.

        Args:
            kind: The kind of the record.
            **fields: Fields of `lab.protocol.records.FIELDS`; the values may be NumPy scalars.

        Raises:
            lab.protocol.records.RecordError: A kind or field is unknown, or the record is too long.
            TypeError: A numeric field got a value that is not a number.
            OSError: The pipe is closed, or the disk is full.
        """
        if kind == "eval":
            self._steps.add_test(operator.index(fields.get("global_step", 0)))  # type: ignore[arg-type]
        measured = {name: _plain(name, value) for name, value in fields.items()}
        # Python buffers stdout: earlier prints must come before the record.
        sys.stdout.flush()
        with self._lock:
            elapsed_s = time.monotonic() - self._started
            line = format_record(
                {
                    "kind": kind,
                    "run": self.run,
                    "attempt": self.attempt,
                    "job_name": self._job_name,
                    "task_index": self._task_index,
                    "seq": self._seq,
                    # A change of the clock during the training does not count.
                    "time_unix": round(self._started_unix + elapsed_s, 3),
                    "elapsed_s": round(elapsed_s, 6),
                    **measured,
                }
            )
            # A pipe takes a record in one call; a file or a terminal may take only a part.
            write_all(self._descriptor, f"{line}\n".encode())
            self._seq += 1

    def ready(
        self,
        message: str = "",
        *,
        global_step: Callable[[], int] | None = None,
        **fields: str | Number,
    ) -> None:
        """Report that this task is ready, and wait until all tasks of the run are.

        It returns at once if the user started the program by hand.

        Args:
            message: What this task is, such as `rank 1 of 3`.
            global_step: Returns the global step. Give it if this task may join at a later step
                (`joins_at_step` of an experiment): the function then also waits for that step.
            **fields: Further fields of the record, such as `learning_rate`.
        """
        self.write("event", status="ready", **fields, **({"message": message} if message else {}))
        signal_file = os.environ.get(LAB_START)
        while signal_file and not Path(signal_file).exists():
            time.sleep(_POLL_S)
        joins_at = Path(signal_file).read_text() if signal_file and global_step else ""
        while joins_at and global_step and global_step() < int(joins_at):
            time.sleep(_POLL_S)

    def begin_training(
        self,
        flags: argparse.Namespace,
        global_step: SupportsIndex = 0,
        *,
        local_steps_per_epoch: int = 0,
        global_steps_per_epoch: int = 0,
        examples_per_step: int | None = None,
        last_step: int = 0,
    ) -> None:
        """Start to count and to time steps. Call it directly before the first step.

        Args:
            flags: The program's flags; `record_every`, `batch_size` and `eval_every` are used.
            global_step: The global step of the parameters at the start.
            local_steps_per_epoch: The length of an epoch, if it is counted in local steps.
            global_steps_per_epoch: The length of an epoch, if it is counted in global steps.
            examples_per_step: The examples of a local step, if they are more than one batch.
            last_step: The last local step, which is recorded, too; 0 if it is unknown.
        """
        self._steps = Steps(
            flags.record_every,
            flags.batch_size if examples_per_step is None else examples_per_step,
            local_steps_per_epoch,
            global_steps_per_epoch,
            global_step=operator.index(global_step),
            last_step=last_step,
            test_every=getattr(flags, "eval_every", 0) if self._task_index == 0 else 0,
        )

    def test_is_due(self) -> bool:
        """Whether the chief must test the parameters now: every `--eval_every` global steps."""
        return self._steps.global_step >= self._steps.next_test

    def step(
        self,
        local_step: int,
        global_step: int,
        *,
        staleness: int | None = None,
        staleness_sum: int | None = None,
        wait_time_s: float | None = None,
        **fields: str | Number,
    ) -> None:
        """Report a step, or several steps that one call has made; write a record if it is due.

        A record is due for the first step, at each multiple of `every`, at the end of an epoch, and
        when the last record is older than five seconds.

        Args:
            local_step: The number of this task's steps so far.
            global_step: The global step directly after this step's update.
            staleness: The updates by other workers between this step's read and its update.
            staleness_sum: The sum for all steps so far, if a call makes several steps. By default
                the recorder adds up `staleness`.
            wait_time_s: The time for which these steps waited for other tasks, in seconds. A record
                has the mean of the steps since the last record.
            **fields: Further fields of the record, such as `loss`.
        """
        steps = self._steps
        kind = steps.add(int(local_step), int(global_step))
        if staleness is not None:
            total = steps.staleness_sum + staleness if staleness_sum is None else staleness_sum
            steps.staleness, steps.staleness_sum = int(staleness), int(total)
        if wait_time_s is not None:
            steps.waited_s = (steps.waited_s or 0.0) + float(wait_time_s)
        if kind is not None:
            self.write(kind, **steps.record(), **fields)

    def finish(self, **fields: str | Number) -> None:
        """Write the last record: the training has succeeded with the last reported step."""
        self.write("final", **self._steps.totals(), **fields, status="succeeded")


def _plain(name: str, value: str | Number) -> Value:
    """Convert a NumPy scalar to the Python type of its field."""
    if isinstance(value, str):
        return value
    if FIELDS.get(name) is int:
        return operator.index(value)  # type: ignore[arg-type]  # raises TypeError for a float
    # Nine digits distinguish any two float32 values.
    return float(format(float(value), ".9g"))


@dataclass
class Steps:
    """Counts the steps of one task, and times them since the last record.

    `Recorder.begin_training` explains the settings. The first interval starts now.

    Attributes:
        staleness: The staleness of the last step, or None.
        staleness_sum: The sum for all steps.
        waited_s: The time for which the last steps waited for other tasks, or None.
        next_test: The global step of the next test.
    """

    every: int = 1
    examples_per_step: int = 0
    local_steps_per_epoch: int = 0
    global_steps_per_epoch: int = 0
    global_step: int = 0
    last_step: int = 0
    test_every: int = 0
    staleness: int | None = None
    staleness_sum: int = 0
    waited_s: float | None = None

    def __post_init__(self) -> None:
        """Start the first interval."""
        self.next_test = self.test_every or math.inf
        self._local_step = self._recorded_step = 0
        self._recorded_s = self._stepped_s = time.monotonic()

    def add(self, local_step: int, global_step: int) -> Literal["step", "epoch"] | None:
        """Count all steps up to this one; return the kind of its record, or None if none is due."""
        earlier, epochs = self._local_step, self._epochs()
        self._local_step, self.global_step = local_step, global_step
        self._stepped_s = time.monotonic()
        if self._epochs() > epochs:
            return "epoch"
        is_due = (
            local_step in {1, self.last_step}
            or local_step // self.every > earlier // self.every
            or self._stepped_s - self._recorded_s > RECORD_WITHIN_S
        )
        return "step" if is_due else None

    def add_test(self, global_step: int) -> None:
        """Count a test of these parameters; exclude its time from the next step time."""
        if self.test_every:
            self.next_test = (global_step // self.test_every + 1) * self.test_every
        now = time.monotonic()
        self._recorded_s += now - self._stepped_s
        self._stepped_s = now

    def record(self) -> dict[str, int | float]:
        """Return the fields of the last step's record, and start the next interval."""
        steps = self._local_step - self._recorded_step
        fields = self.totals() | {"step_time_s": (self._stepped_s - self._recorded_s) / steps}
        if self.staleness is not None:
            fields["staleness"] = self.staleness
        if self.waited_s is not None:
            fields["wait_time_s"] = self.waited_s / steps
            self.waited_s = 0.0
        self._recorded_step, self._recorded_s = self._local_step, self._stepped_s
        return fields

    def totals(self) -> dict[str, int | float]:
        """Return the fields that count all steps so far."""
        fields: dict[str, int | float] = {
            "local_step": self._local_step,
            "global_step": self.global_step,
            "examples": self._local_step * self.examples_per_step,
        }
        if self.local_steps_per_epoch or self.global_steps_per_epoch:
            fields["epoch"] = self._epochs(before=1)
        if self.staleness is not None:
            fields["staleness_sum"] = self.staleness_sum
        return fields

    def _epochs(self, before: int = 0) -> int:
        """Return the number of complete epochs, or that before the last step."""
        local, whole = self.local_steps_per_epoch, self.global_steps_per_epoch
        if local:
            return max(self._local_step - before, 0) // local
        return max(self.global_step - before, 0) // whole if whole else 0
