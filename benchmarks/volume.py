"""A run volume with an ended run of many records, as task agents write it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from lab.task.protocol import Request, RunSpec, TaskStatus, Volume
from lab.task.protocol.files import write_atomically
from lab.task.protocol.states import State

RUN_ID = "20261121-0000-async-0000"
CLUSTER = {
    "ps": ["tf1:2222"],
    "worker": [f"tf{node}:2222" for node in range(2, 9)],
}
BEGAN_UNIX = 1_795_000_000.0
_BATCH = 1000  # records in one write


def request() -> Request:
    """Return the run's request: one parameter server and seven workers."""
    return Request(RUN_ID, RunSpec("async", "mnist_async.py"), CLUSTER, submitted_unix=BEGAN_UNIX)


def make(root: Path, records: int) -> Volume:
    """Write the volume.

    Args:
        root: An existing directory.
        records: The number of records of each of the eight tasks.
    """
    volume = Volume(root)
    run = request()
    write_atomically(volume.request(RUN_ID), run.to_json())
    for task in run.tasks():
        for path in (volume.records(RUN_ID, task), volume.log(RUN_ID, task)):
            path.parent.mkdir(parents=True, exist_ok=True)
        with volume.records(RUN_ID, task).open("w", encoding="utf-8") as file:
            for first in range(0, records, _BATCH):
                numbers = range(first, min(first + _BATCH, records))
                file.write("".join(_lines(task, numbers)))
        volume.log(RUN_ID, task).write_text("one line that is no record\n", encoding="utf-8")
        status = TaskStatus(task, State.SUCCEEDED, exit_code=0, ended_unix=BEGAN_UNIX + records)
        write_atomically(volume.status(RUN_ID, task), status.to_json())
    return volume


def _lines(task: str, numbers: range) -> Iterator[str]:
    """Yield step records, with all fields of the asynchronous program."""
    job, _, index = task.rpartition("-")
    for number in numbers:
        record = {
            "kind": "step" if number else "start",
            "run": RUN_ID,
            "attempt": 0,
            "job_name": job,
            "task_index": int(index),
            "seq": number,
            "epoch": number // 550,
            "local_step": 1 + number,
            "global_step": 1 + 7 * number,
            "loss": 2.3 / (1 + number / 1000),
            "staleness": number % 7,
            "examples": 100 * (1 + number),
            "step_time_s": 0.00789123,
            "time_unix": BEGAN_UNIX + number / 100,
            "elapsed_s": number / 100,
        }
        yield json.dumps(record) + "\n"
