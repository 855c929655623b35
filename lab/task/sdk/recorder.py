"""The recorder: it writes the records of a training program to stdout, one per line."""

from __future__ import annotations

import argparse
import operator
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self, SupportsFloat, SupportsIndex

from lab.records import FIELDS, Value, format_record
from lab.task.sdk.steps import Steps
from lab.variables import LAB_ATTEMPT, LAB_RUN_DIR, LAB_TASK
from lab.volume.clock import unix_time
from lab.volume.files import write_all

BY_HAND: Final = "by-hand"
"""The run's name if the user started the program from a shell, without a task agent."""

Kind = Literal["start", "step", "epoch", "eval", "result", "final", "event"]
Number = SupportsIndex | SupportsFloat
"""A Python number, or a NumPy scalar as `Session.run` returns it."""


class Recorder:
    """Writes the records of one task.

    Each record contains the run, the attempt, the task, a sequence number and the time. A training
    reports each step, and the recorder decides which steps it writes::

        recorder = Recorder("worker", 0)
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

    def __init__(
        self,
        job_name: str,
        task_index: int,
        *,
        environment: Mapping[str, str] | None = None,
        descriptor: int = 1,
    ) -> None:
        """Create a recorder: `seq` is 0 in the first record, `elapsed_s` counts from now.

        Args:
            job_name: The task's job.
            task_index: The task's index in its job.
            environment: The environment variables with `LAB_RUN_DIR` and `LAB_ATTEMPT`; those of
                the process by default.
            descriptor: The file descriptor to write to; stdout by default.
        """
        environment = os.environ if environment is None else environment
        self.run = Path(environment.get(LAB_RUN_DIR, "")).name or BY_HAND
        self.attempt = int(environment.get(LAB_ATTEMPT) or 0)
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
            **fields: Fields of `lab.records.FIELDS`; the values may be NumPy scalars.

        Raises:
            lab.records.RecordError: A kind or field is unknown, or the record is too long.
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
        return self._steps.test_is_due

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
        kind = self._steps.add(int(local_step), int(global_step))
        if staleness is not None:
            self._steps.add_staleness(int(staleness), staleness_sum)
        if wait_time_s is not None:
            self._steps.add_wait(float(wait_time_s))
        if kind is not None:
            self.write(kind, **self._steps.record(), **fields)

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
