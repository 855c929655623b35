"""The recorder: a training program's way to say what it does, one record a line on stdout."""

from __future__ import annotations

import operator
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final, Literal, SupportsFloat, SupportsIndex

from lab.records import FIELDS, Value, format_record
from lab.task.protocol.files import write_all

BY_HAND: Final = "by-hand"
"""The run's name where no task agent gave one: the program was started from a shell."""

Kind = Literal["start", "step", "epoch", "eval", "result", "final", "event"]
Number = SupportsIndex | SupportsFloat
"""Whatever counts as a number: Python's own, and NumPy's scalars as `Session.run` returns them."""


class Recorder:
    """Writes the records of one task.

    Every record carries the run, the attempt, the task, a sequence number and the time, so that
    a training loop gives only what it measured::

        recorder = Recorder("worker", 0)
        recorder.write("step", epoch=9, local_step=5500, global_step=10896, loss=1.257562)

    Threads may share a recorder.

    Attributes:
        run: The run's id, or `by-hand`.
        attempt: 0 for the first start of the program, one more for each restart.
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
        """Begin to count: `seq` is 0 in the first record, `elapsed_s` starts here.

        Args:
            job_name: The task's job.
            task_index: The task's index in its job.
            environment: Where `LAB_RUN_ID` and `LAB_ATTEMPT` stand; the process's own by default.
            descriptor: The file descriptor that is written to: stdout by default.
        """
        environment = os.environ if environment is None else environment
        self.run = environment.get("LAB_RUN_ID") or BY_HAND
        self.attempt = int(environment.get("LAB_ATTEMPT") or 0)
        self.task = f"{job_name}-{task_index}"
        self._job_name = job_name
        self._task_index = task_index
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._seq = 0
        self._started = time.monotonic()

    def write(self, kind: Kind, **fields: str | Number) -> None:
        """Write one record.

        Args:
            kind: The kind of the record.
            **fields: Further fields of `lab.records.FIELDS`; NumPy scalars are welcome.

        Raises:
            lab.records.RecordError: An unknown kind or field, or a record too long for a line.
            TypeError: A value that is no number where a number belongs.
            OSError: Nobody reads any more, or the disk is full.
        """
        measured = {name: _plain(name, value) for name, value in fields.items()}
        # Python's own stdout is buffered: what the program printed before comes first.
        sys.stdout.flush()
        with self._lock:
            line = format_record(
                {
                    "kind": kind,
                    "run": self.run,
                    "attempt": self.attempt,
                    "job_name": self._job_name,
                    "task_index": self._task_index,
                    "seq": self._seq,
                    "time_unix": round(time.time(), 3),
                    "elapsed_s": round(time.monotonic() - self._started, 6),
                    **measured,
                }
            )
            # One call: only a file or a terminal ever takes less than a whole record.
            write_all(self._descriptor, f"{line}\n".encode())
            self._seq += 1


def _plain(name: str, value: str | Number) -> Value:
    """Turn NumPy's scalars into Python's own; what the field is decides, not what came."""
    if isinstance(value, str):
        return value
    if FIELDS.get(name) is int:
        return operator.index(value)  # type: ignore[arg-type]  # raises TypeError for a float
    # Nine digits tell any two float32 apart; the sixteen of a float64 would be noise.
    return float(format(float(value), ".9g"))
