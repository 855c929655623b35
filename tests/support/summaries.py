"""Statuses of tasks that ended, and the run that they belong to."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.states import State
from lab.runner.result_table import result_table
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import Summary
from lab.runner.store.task_progress import TaskProgress
from tests.support.fakes import PLAN, record

INFO = RunInfo(
    run_id="r",
    spec=RunSpec(experiment="async"),
    backend="local",
    state=State.SUCCEEDED,
    cluster=PLAN.cluster_spec(),
    tasks=({"task": "worker-0", "node": "tf2", "gpus": ["0", "1"]},),
    started_unix=100.0,
    stopped_unix=120.5,
)


TASKS = ("ps-0", "worker-0", "worker-1")


def statuses(**states: State) -> dict[str, TaskStatus]:
    return {
        name.replace("_", "-"): TaskStatus(name.replace("_", "-"), state, ended_unix=1.0)
        for name, state in states.items()
    }


def good() -> dict[str, TaskProgress]:
    return folded(
        worker_0=[
            record("worker-0", 0, "step", local_step=10, global_step=15, time_unix=105.0,
                   step_time_s=0.1, loss=1.0, epoch=0),
            record("worker-0", 1, "epoch", local_step=20, global_step=35, time_unix=107.0, epoch=1),
            record("worker-0", 2, "eval", accuracy=0.5, global_step=36),
            record("worker-0", 3, "eval", accuracy=0.75, global_step=40, probe=40),
            record("worker-0", 4, "final", accuracy=0.5, local_step=20, global_step=35),
        ],
        worker_1=[
            record("worker-1", 0, "step", local_step=1, global_step=20, time_unix=106.0),
            record("worker-1", 1, "final", local_step=20, global_step=40, time_unix=108.0,
                   accuracy=0.625),
        ],
    )  # fmt: skip


def folded(**records: list[dict[str, Any]]) -> dict[str, TaskProgress]:
    found = {task: TaskProgress(task) for task in TASKS}
    for name, each in records.items():
        for one in each:
            found[name.replace("_", "-")].add(one)
    return found


def shown(summary: Summary) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80).print(result_table(summary))
    return stream.getvalue()
