"""The summary: what a run came to, from its files."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.run.directory import RunInfo
from lab.run.lifecycle import verdict
from lab.run.progress import LineReader, TaskProgress, read_progress
from lab.run.summary import Summary, summary_of
from lab.task.protocol import State, TaskStatus
from tests.unit.fakes import PLAN, record

INFO = RunInfo(
    run_id="r",
    experiment="async",
    backend="local",
    state=State.SUCCEEDED,
    cluster=PLAN.cluster_spec(),
    tasks=({"task": "worker-0", "node": "tf2", "gpus": ["0", "1"]},),
    started_unix=100.0,
    stopped_unix=120.5,
)
TASKS = ("ps-0", "worker-0", "worker-1")


def folded(**records: list[dict[str, Any]]) -> dict[str, TaskProgress]:
    """Task → progress; keyword `worker_0` for `worker-0`."""
    found = {task: TaskProgress(task) for task in TASKS}
    for name, each in records.items():
        for one in each:
            found[name.replace("_", "-")].add(one)
    return found


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
            record("worker-1", 0, "step", local_step=10, global_step=20, time_unix=106.0),
            record("worker-1", 1, "final", local_step=20, global_step=40, time_unix=108.0,
                   accuracy=0.625),
        ],
    )  # fmt: skip


def test_a_good_run() -> None:
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    summary = summary_of(INFO, states, good())
    assert summary.global_step == 40
    assert summary.updates_conserved is True
    assert summary.accuracy == 0.75
    assert summary.wall_s == 20.5
    # worker-0's first step ended 9 steps of 0.1 s before its first record; worker-1's at 106.
    assert summary.first_step_s == 6.0
    assert summary.steps_per_s == pytest.approx((35 - 15) / 2)
    assert summary.records_lost == 0
    assert not summary.degraded
    by_name = {task.task: task for task in summary.tasks}
    assert list(by_name) == list(TASKS)
    chief = by_name["worker-0"]
    assert (chief.local_step, chief.global_step, chief.epoch) == (20, 35, 1)
    assert (chief.accuracy, chief.loss, chief.steps_per_s) == (0.5, 1.0, 5.0)
    assert (chief.node, chief.gpus) == ("tf2", ["0", "1"])
    assert by_name["worker-1"].node == "tf3"  # from the cluster spec, where no plan is known


def test_written_and_read_back() -> None:
    summary = summary_of(INFO, statuses(worker_0=State.SUCCEEDED), good())
    assert Summary.from_json(summary.to_json()) == summary
    assert "\n" not in summary.to_json()
    rows = list(csv.DictReader(io.StringIO(summary.to_csv())))
    assert [row["task"] for row in rows] == list(TASKS)
    assert rows[1]["gpus"] == "0 1"
    assert rows[1]["accuracy"] == "0.5"
    assert rows[0]["accuracy"] == ""


@pytest.mark.parametrize(
    ("experiment", "probe", "second", "conserved"),
    [
        ("async", 40, 20, True),
        ("async", 39, 20, False),  # the probe missed an update
        ("async", 40, 19, False),  # a local step is missing
        ("sync", 40, 19, True),  # there a local step is no update of its own
        ("sync", 41, 20, False),
        ("async", None, 20, None),  # nothing to judge by
    ],
)
def test_updates_conserved(
    experiment: str, probe: int | None, second: int, conserved: bool | None
) -> None:
    final = {"probe": probe} if probe is not None else {}
    progress = folded(
        worker_0=[
            record("worker-0", 0, "eval", accuracy=0.5, global_step=40, **final),
            record("worker-0", 1, "final", local_step=20),
        ],
        worker_1=[record("worker-1", 0, "final", local_step=second)],
    )
    info = RunInfo(run_id="r", experiment=experiment, cluster=PLAN.cluster_spec())
    assert summary_of(info, {}, progress).updates_conserved is conserved


@given(
    kept=st.lists(st.booleans(), min_size=1, max_size=60),
    attempts=st.integers(1, 3),
)
def test_records_lost_counts_every_gap_before_the_last_record(
    kept: list[bool], attempts: int
) -> None:
    progress = TaskProgress("worker-0")
    for attempt in range(attempts):
        for seq, is_kept in enumerate(kept):
            if is_kept:
                progress.add({**record("worker-0", seq), "attempt": attempt})
    last = max((number for number, is_kept in enumerate(kept) if is_kept), default=-1)
    assert progress.lost == attempts * kept[: last + 1].count(False)
    assert progress.records == attempts * kept.count(True)


@given(cuts=st.lists(st.integers(0, 400), max_size=20))
def test_records_are_found_wherever_the_pieces_end(cuts: list[int]) -> None:
    lines = [record("worker-0", seq, loss=seq / 7) for seq in range(5)]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = LineReader()
    pieces = [data[start:stop] for start, stop in pairwise(edges)]
    assert [found for piece in pieces for found in reader.feed(piece)] == lines


def test_a_torn_or_foreign_line_is_passed_over_and_its_gap_seen(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    lines = [json.dumps(record("worker-0", seq)) for seq in range(4)]
    path.write_bytes(
        f"{lines[0]}\n{lines[1][:9]}\xff\n[1]\nnull\n{lines[2]}\n{lines[3][:20]}".encode("latin-1")
    )
    progress = read_progress(path, "worker-0")
    assert (progress.records, progress.lost) == (2, 1)
    assert read_progress(tmp_path / "none.jsonl", "x").records == 0


@pytest.mark.parametrize(
    ("states", "state", "reason"),
    [
        ({"ps_0": State.SUCCEEDED, "worker_0": State.SUCCEEDED, "worker_1": State.SUCCEEDED},
         State.SUCCEEDED, ""),
        ({"ps_0": State.CANCELLED, "worker_0": State.SUCCEEDED, "worker_1": State.SUCCEEDED},
         State.SUCCEEDED, ""),
        ({"ps_0": State.FAILED, "worker_0": State.SUCCEEDED, "worker_1": State.SUCCEEDED},
         State.FAILED, "ps-0 failed"),
        ({"ps_0": State.CANCELLED, "worker_0": State.CANCELLED, "worker_1": State.FAILED},
         State.FAILED, "worker-1 failed"),
        ({"ps_0": State.CANCELLED, "worker_0": State.LOST, "worker_1": State.CANCELLED},
         State.FAILED, "worker-0 lost"),
        ({"ps_0": State.CANCELLED, "worker_0": State.CANCELLED, "worker_1": State.SUCCEEDED},
         State.CANCELLED, ""),
        ({"ps_0": State.TRAINING, "worker_0": State.SUCCEEDED, "worker_1": State.SUCCEEDED},
         State.TRAINING, ""),
        ({"ps_0": State.READY, "worker_0": State.PENDING, "worker_1": State.STARTING},
         State.READY, ""),
        ({"ps_0": State.SUCCEEDED, "worker_0": State.SUCCEEDED}, State.TRAINING, ""),
        ({}, State.PENDING, ""),
    ],
)  # fmt: skip
def test_verdict(states: dict[str, State], state: State, reason: str) -> None:
    info = RunInfo(run_id="r", experiment="async", cluster=PLAN.cluster_spec())
    assert verdict(info, statuses(**states)) == (state, reason)


def test_the_first_that_failed_is_the_reason() -> None:
    info = RunInfo(run_id="r", experiment="async", cluster=PLAN.cluster_spec())
    found = {
        "ps-0": TaskStatus("ps-0", State.CANCELLED, ended_unix=9.0),
        "worker-0": TaskStatus("worker-0", State.FAILED, exit_code=1, ended_unix=8.0),
        "worker-1": TaskStatus("worker-1", State.FAILED, signal="SIGKILL", ended_unix=7.0),
    }
    assert verdict(info, found) == (State.FAILED, "worker-1 failed: SIGKILL")


def test_a_run_without_records_has_no_numbers() -> None:
    info = RunInfo(run_id="r", experiment="async", cluster=PLAN.cluster_spec())
    summary = summary_of(info, {}, folded())
    numbers = (summary.global_step, summary.accuracy, summary.first_step_s, summary.steps_per_s)
    assert numbers == (None, None, None, None)
    assert [task.state for task in summary.tasks] == ["lost"] * 3
    assert [task.attempts for task in summary.tasks] == [0] * 3
