"""The recorder: it writes the records of a training program to stdout, one per line."""

from __future__ import annotations

import operator
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final, Literal, SupportsFloat, SupportsIndex

from lab.records import FIELDS, Value, format_record
from lab.variables import LAB_ATTEMPT, LAB_RUN_ID
from lab.volume.clock import unix_time
from lab.volume.files import write_all

BY_HAND: Final = "by-hand"
"""The run's name if the user started the program from a shell, without a task agent."""

Kind = Literal["start", "step", "epoch", "eval", "result", "final", "event"]
Number = SupportsIndex | SupportsFloat
"""A Python number, or a NumPy scalar as `Session.run` returns it."""


class Recorder:
    """Writes the records of one task.

    Each record contains the run, the attempt, the task, a sequence number and the time. The
    training loop adds only its measurements::

        recorder = Recorder("worker", 0)
        recorder.write("step", epoch=9, local_step=5500, global_step=10896, loss=1.257562)

    Several threads may use one recorder.

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
            environment: The environment variables with `LAB_RUN_ID` and `LAB_ATTEMPT`; those of
                the process by default.
            descriptor: The file descriptor to write to; stdout by default.
        """
        environment = os.environ if environment is None else environment
        self.run = environment.get(LAB_RUN_ID) or BY_HAND
        self.attempt = int(environment.get(LAB_ATTEMPT) or 0)
        self.task = f"{job_name}-{task_index}"
        self._job_name = job_name
        self._task_index = task_index
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._seq = 0
        self._started = time.monotonic()
        self._started_unix = unix_time()

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


def _plain(name: str, value: str | Number) -> Value:
    """Convert a NumPy scalar to the Python type of its field."""
    if isinstance(value, str):
        return value
    if FIELDS.get(name) is int:
        return operator.index(value)  # type: ignore[arg-type]  # raises TypeError for a float
    # Nine digits distinguish any two float32 values.
    return float(format(float(value), ".9g"))
