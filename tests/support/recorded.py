"""Run directories with invented records, of the number and size of a real training's.

Their figures have no meaning. They are only read and plotted.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from lab.protocol.records import FIELDS
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from tests.support.specs import run_info

CLUSTER: Final = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222", "tf4:2222"]}
STEPS: Final = 27_500
"""Steps of each of three workers: 82,500 in total, like the chapter's 50 epochs."""

EVERY: Final = 100
"""Steps from one record to the next, the programs' default."""

BEGAN_UNIX: Final = 1_795_000_000.0
_EPOCH: Final = 550
_BATCH: Final = 100
_STEP_S: Final = 0.002


def make(
    runs: Path,
    run_id: str,
    *,
    steps: int = STEPS,
    seed: int = 1,
    **changes: Any,
) -> RunDir:
    """Write a run that has succeeded."""
    given: dict[str, Any] = {
        "experiment": "async",
        "program": "mnist_async.py",
        "backend": "local",
        "state": State.SUCCEEDED,
        "cluster": CLUSTER,
        "cluster_file": "cluster.yaml",
        "hyperparameters": {"epochs": steps // _EPOCH, "batch_size": _BATCH, "seed": seed},
        "args": (f"--seed={seed}",),
        "seed": seed,
        "tasks": tuple(
            {"task": f"{job}-{index}", "node": address.partition(":")[0], "gpus": []}
            for job, addresses in CLUSTER.items()
            for index, address in enumerate(addresses)
        ),
        "started_unix": BEGAN_UNIX - 0.5,
        "submitted_unix": BEGAN_UNIX,
        "stopped_unix": BEGAN_UNIX + 10 + steps * _STEP_S,
        "collected": True,
    }
    run = RunDir(runs / run_id)
    run.create(run_info(run_id, **{**given, **changes}))
    draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
    for task in run.read().task_names():
        job, _, index = task.rpartition("-")
        lines = _worker(run_id, int(index), steps, draw) if job == "worker" else _server(run_id)
        write(run, task, lines)
        status = TaskStatus(task, State.SUCCEEDED, exit_code=0, ended_unix=BEGAN_UNIX + 10)
        run.status(task).parent.mkdir(exist_ok=True)
        write_atomically(run.status(task), status.to_json())
    return run


def write(run: RunDir, task: str, records: Iterator[Mapping[str, Any]]) -> None:
    run.records(task).parent.mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    run.records(task).write_text(text, encoding="utf-8")


def _server(run_id: str) -> Iterator[dict[str, Any]]:
    yield {
        "kind": "start", "run": run_id, "attempt": 0, "job_name": "ps", "task_index": 0, "seq": 0,
        "time_unix": BEGAN_UNIX + 2.0, "elapsed_s": 0.0, "status": "starting",
    }  # fmt: skip


def _worker(run_id: str, index: int, steps: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    """Yield the records of one worker, with all fields of the asynchronous program."""
    common = {"run": run_id, "attempt": 0, "job_name": "worker", "task_index": index}
    begin, elapsed = BEGAN_UNIX + 3.0, 0.0
    yield {
        "kind": "start", **common, "seq": 0, "batch_size": _BATCH, "time_unix": begin,
        "elapsed_s": 0.0, "status": "starting",
    }  # fmt: skip
    seq = 0
    stops = sorted({*range(EVERY, steps + 1, EVERY), *range(_EPOCH, steps + 1, _EPOCH)})
    before = 0
    for step in stops:
        each = _STEP_S * draw.lognormvariate(0.0, 0.15)
        elapsed += (step - before) * each
        before, seq = step, seq + 1
        yield {
            "kind": "epoch" if step % _EPOCH == 0 else "step", **common, "seq": seq,
            "epoch": (step - 1) // _EPOCH, "local_step": step,
            "global_step": min(3 * step, 3 * steps - 2 + index),
            "loss": 0.4 + 8 * math.exp(-step / 300) + draw.expovariate(8),
            "staleness": min(int(draw.expovariate(0.6)), 9), "examples": step * _BATCH,
            "step_time_s": each, "time_unix": round(begin + elapsed, 3), "elapsed_s": elapsed,
        }  # fmt: skip
    accuracy = draw.gauss(0.887, 0.003)
    if index == 0:  # the chief evaluates the final parameters and the probe
        seq += 1
        yield {
            "kind": "eval", **common, "seq": seq, "global_step": 3 * steps, "probe": 3 * steps,
            "accuracy": accuracy, "time_unix": round(begin + elapsed, 3), "elapsed_s": elapsed,
        }  # fmt: skip
    yield {
        "kind": "final", **common, "seq": seq + 1, "global_step": 3 * steps, "local_step": steps,
        "accuracy": accuracy, "time_unix": round(begin + elapsed, 3),
        "elapsed_s": elapsed, "status": "succeeded",
    }  # fmt: skip


def records(*rows: Mapping[str, Any]) -> pd.DataFrame:
    columns = ["task", *FIELDS]
    frame = pd.DataFrame([{"kind": "step", "attempt": 0, **row} for row in rows], columns=columns)
    numbers = [name for name, kind in FIELDS.items() if kind is not str]
    return frame.astype(dict.fromkeys(numbers, "Float64"))


def steps(task: str, count: int = 20, later: float = 0, **fixed: Any) -> list[dict[str, Any]]:
    """A record each ten steps and each second, of a run that began at 1000 s of Unix time."""
    return [
        {
            "task": task, "local_step": 10 * n, "global_step": 20 * n, "loss": 8 / n,
            "staleness": n % 3, "examples": 1000 * n, "step_time_s": 0.1,
            "time_unix": 1000.0 + n + later, **fixed,
        }
        for n in range(1, count + 1)
    ]  # fmt: skip
