"""The summary: the results of a run, from its files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lab.errors import LabError
from lab.run.gpu_metrics import GpuFigures
from lab.run.lifecycle import verdict
from lab.run.progress import LineReader, TaskProgress, read_progress
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.summarize import summarize, summary_of
from lab.run.summary import ResultSummary, Summary, TaskSummary, read_summary, write_summary
from lab.run.tables import result_table
from lab.task.agent.output import Output
from lab.task.agent.record_tags import RecordTags
from lab.task.protocol import RunSpec, TaskStatus
from lab.task.protocol.states import Cause, State
from tests.support.agents import wait_for
from tests.support.fakes import PLAN, record
from tests.support.specs import changed
from tests.support.summaries import INFO, TASKS, folded, good, statuses


def test_a_good_run() -> None:
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    summary = summary_of(INFO, states, good())
    assert summary.global_step == 40
    assert summary.updates_conserved is True
    assert summary.accuracy == 0.75
    assert summary.wall_s == 20.5
    # worker-0's first step ended 9 steps of 0.1 s before its first record; worker-1 recorded its
    # first one, at 106.
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
        ("async", 40, 21, False),  # there are more local steps than updates
        ("sync", 40, 19, True),  # there a local step is no update of its own
        ("sync", 41, 20, False),
        ("async", None, 20, None),  # no data for a verdict
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
    info = RunInfo(run_id="r", spec=RunSpec(experiment=experiment), cluster=PLAN.cluster_spec())
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


def test_a_torn_or_foreign_line_is_skipped_and_counted(tmp_path: Path) -> None:
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
         State.LOST, "worker-0 lost"),
        ({"ps_0": State.FAILED, "worker_0": State.LOST, "worker_1": State.CANCELLED},
         State.FAILED, "ps-0 failed"),
        ({"ps_0": State.CANCELLED, "worker_0": State.CANCELLED, "worker_1": State.SUCCEEDED},
         State.CANCELLED, ""),
        ({"ps_0": State.TRAINING, "worker_0": State.SUCCEEDED, "worker_1": State.SUCCEEDED},
         State.TRAINING, ""),
        ({"ps_0": State.READY, "worker_0": State.PENDING, "worker_1": State.STARTING},
         State.STARTING, ""),
        ({"ps_0": State.READY, "worker_0": State.READY, "worker_1": State.READY},
         State.READY, ""),
        ({"ps_0": State.SUCCEEDED, "worker_0": State.SUCCEEDED}, State.TRAINING, ""),
        ({}, State.PENDING, ""),
    ],
)  # fmt: skip
def test_verdict(states: dict[str, State], state: State, reason: str) -> None:
    info = RunInfo(run_id="r", spec=RunSpec(experiment="async"), cluster=PLAN.cluster_spec())
    assert verdict(info, statuses(**states)) == (state, reason)


def test_the_first_that_failed_is_the_reason() -> None:
    info = RunInfo(run_id="r", spec=RunSpec(experiment="async"), cluster=PLAN.cluster_spec())
    found = {
        "ps-0": TaskStatus("ps-0", State.CANCELLED, ended_unix=9.0),
        "worker-0": TaskStatus("worker-0", State.FAILED, exit_code=1, ended_unix=8.0),
        "worker-1": TaskStatus("worker-1", State.FAILED, signal="SIGKILL", ended_unix=7.0),
    }
    assert verdict(info, found) == (State.FAILED, "worker-1 failed: SIGKILL")


@pytest.mark.parametrize(("state", "shown"), [(State.LOST, "lost"), (State.TRAINING, "starting")])
def test_a_task_that_wrote_no_end_is_lost_when_its_run_has_ended(state: State, shown: str) -> None:
    info = RunInfo(
        run_id="r", spec=RunSpec(experiment="async"), cluster=PLAN.cluster_spec(), state=state
    )
    statuses = {"ps-0": TaskStatus("ps-0", State.STARTING, started_unix=1.0)}
    assert summary_of(info, statuses, folded()).tasks[0].state == shown


def test_a_run_without_records_has_no_numbers() -> None:
    info = RunInfo(run_id="r", spec=RunSpec(experiment="async"), cluster=PLAN.cluster_spec())
    summary = summary_of(info, {}, folded())
    numbers = (summary.global_step, summary.accuracy, summary.first_step_s, summary.steps_per_s)
    assert numbers == (None, None, None, None)
    assert [task.state for task in summary.tasks] == ["lost"] * 3
    assert [task.attempts for task in summary.tasks] == [0] * 3


def printed(folder: Path, task: str, lines: Sequence[tuple[float, str]]) -> TaskProgress:
    """The summary of a program that prints these lines at these times, in seconds."""
    job, _, index = task.rpartition("-")
    path, log, clock = folder / f"{task}.jsonl", folder / f"{task}.log", [0.0]
    with pytest.MonkeyPatch.context() as patch:
        fake = SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep)
        patch.setattr("lab.task.agent.output.unix_time", lambda: clock[0])
        patch.setattr("lab.task.agent.output.time", fake)
        reading, writing = os.pipe()
        output = Output(reading, path, log, lambda _: None, RecordTags("r", 0, job, int(index)))
        output.start()
        for clock[0], line in lines:
            os.write(writing, f"{line}\n".encode())
            wait_for(lambda line=line: log.read_text().endswith(f"{line}\n"), line)  # type: ignore[misc]
        os.close(writing)
        output.finish(5)
    assert output.training == (job == "worker")
    assert output.started
    return read_progress(path, task)


STARTED = (
    "I tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc:316] "
    "Started server with target: grpc://localhost:2222"
)
CLUSTER = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222", "tf4:2222"]}
LISTING = RunInfo(
    run_id="r",
    spec=RunSpec(experiment="listing"),
    state=State.SUCCEEDED,
    cluster=CLUSTER,
    started_unix=100.0,
    stopped_unix=200.0,
)


def test_the_books_prints_add_up_to_a_summary(tmp_path: Path) -> None:
    """The book's own figures: global steps at local steps 5,500 to 27,500, and three accuracies."""
    globals_ = (
        (10896, 22453, 39019, 55513, 72002),
        (11085, 22728, 39074, 55599, 72105),
        (37367, 53859, 70299, 76999, 82499),
    )
    accuracies = (0.8865000009536743, 0.8866000175476074, 0.8894000053405762)
    progress = {"ps-0": printed(tmp_path, "ps-0", [(101.0, STARTED)])}
    for worker, (steps, accuracy) in enumerate(zip(globals_, accuracies, strict=True)):
        lines = [(101.0 + worker, STARTED)]
        for number, step in enumerate(steps):
            lines.append(
                (
                    110.0 + 10 * worker + 5 * number,
                    f"worker={worker},epoch={10 * number + 9},global_step={step}, "
                    f"local_step={5500 * (number + 1)}, loss = {1.25 - number / 4}",
                )
            )
        lines.append((190.0, f"worker={worker}, final accuracy = {accuracy}"))
        progress[f"worker-{worker}"] = printed(tmp_path, f"worker-{worker}", lines)
    summary = summary_of(LISTING, {}, progress)
    workers = summary.tasks[1:]
    assert [task.epoch for task in workers] == [49] * 3
    assert [task.local_step for task in workers] == [27500] * 3
    assert [task.global_step for task in workers] == [72002, 72105, 82499]
    assert [task.loss_records for task in workers] == [2] * 3
    assert [task.loss for task in workers] == [0.375] * 3  # the mean of 0.5 and 0.25
    assert [task.accuracy for task in workers] == list(accuracies)
    assert [task.steps_per_s for task in workers] == [22000 / 20] * 3
    assert summary.global_step == 82499
    assert summary.steps_per_s == round((82499 - 10896) / (150 - 110), 3)
    assert summary.records_lost == 0
    # No output has these: the first task, the effect of the last parameters, the probe.
    assert (summary.first_step_s, summary.accuracy, summary.updates_conserved) == (None,) * 3
    service = summary.tasks[0]
    assert (service.local_step, service.steps_per_s, service.accuracy) == (None,) * 3


def test_the_blogs_prints_add_up_to_a_summary(tmp_path: Path) -> None:
    """The blog's first three lines of a worker, padded as its synchronous program pads them."""
    globals_ = ((100, 200, 300), (2882, 3182, 3459), (2052, 2252, 2472))
    progress = {"ps-0": printed(tmp_path, "ps-0", [(101.0, STARTED)])}
    for worker, steps in enumerate(globals_):
        lines = [(101.0, STARTED)]
        lines += [
            (
                110.0 + 10 * worker + 2 * number,
                f"After {100 * (number + 1):4d} training steps ({step:6d} global steps), "
                f"loss on training batch is {0.5 - number / 8:9g}.  (  0.000 sec/batch)",
            )
            for number, step in enumerate(steps)
        ]
        progress[f"worker-{worker}"] = printed(tmp_path, f"worker-{worker}", lines)
    summary = summary_of(LISTING, {}, progress)
    workers = summary.tasks[1:]
    assert [task.epoch for task in workers] == [None] * 3
    assert [task.local_step for task in workers] == [300] * 3
    assert [task.global_step for task in workers] == [300, 3459, 2472]
    assert [task.loss for task in workers] == [0.25] * 3  # the last quarter of three records
    assert [task.accuracy for task in workers] == [None] * 3
    assert [task.steps_per_s for task in workers] == [200 / 4] * 3
    assert summary.global_step == 3459
    assert summary.steps_per_s == round((2472 - 100) / (134 - 110), 3)
    assert (summary.first_step_s, summary.accuracy, summary.updates_conserved) == (None,) * 3
    assert summary.records_lost == 0


def test_the_first_step_of_the_tower_program_is_its_first_print(tmp_path: Path) -> None:
    lines = [(101.0, STARTED)]
    lines += [
        (
            110.0 + step,
            f"2017-10-31 16:00:00.123456: step {step}, loss = 2.31 "
            "(8123.4 examples/sec; 0.012 sec/batch)",
        )
        for step in (0, 10, 20)
    ]
    info = RunInfo("r", RunSpec("towers"), cluster={"worker": ["tf1:2222"]}, started_unix=100.0)
    summary = summary_of(info, {}, {"worker-0": printed(tmp_path, "worker-0", lines)})
    assert (summary.first_step_s, summary.tasks[0].steps_per_s) == (10.0, 1.0)
    assert (summary.tasks[0].local_step, summary.steps_per_s) == (20, None)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_changed_clock_changes_no_rate(jump_s: float) -> None:
    steps: list[dict[str, object]] = [
        record("worker-0", seq, local_step=10 * seq, global_step=20 * seq, loss=1.0)
        | {"elapsed_s": 5.0 + seq, "time_unix": 1000.0 + seq + (jump_s if seq >= 3 else 0.0)}
        for seq in range(1, 6)
    ]
    note = {"kind": "event", "message": "fault: x", "elapsed_s": 9.0, "time_unix": 1001.5}
    found = folded(worker_0=[*steps[:2], note, *steps[2:]])
    progress = found["worker-0"]
    assert progress.steps_per_s == 10.0
    assert progress.trained == (1001.0, 1005.0)
    assert summary_of(INFO, {}, found).steps_per_s == 20.0


def test_a_late_first_record_gives_no_first_step() -> None:
    progress = folded(worker_0=[record("worker-0", 0, local_step=100, time_unix=105.0)])
    assert progress["worker-0"].first_step_unix is None


def steps(task: str, *records: tuple[float, int]) -> list[dict[str, Any]]:
    """Step records: their times, and their local and global step."""
    return [
        record(task, seq, "step", local_step=step, global_step=step, time_unix=time_unix)
        for seq, (time_unix, step) in enumerate(records)
    ]


@pytest.mark.parametrize(
    ("first", "second", "whole_run", "of_first"),
    [
        ([(105.0, 100)], [(105.5, 100)], None, None),  # one record a task, of the same step
        ([(105.0, 100)], [(105.5, 130)], None, None),  # and of two
        ([(105.0, 100), (107.0, 100)], [], None, None),  # as a step's record and its epoch's
        ([(105.0, 100), (105.0, 120)], [], None, None),
        ([(105.0, 100), (107.0, 120)], [(106.0, 110)], 10.0, 10.0),
        ([(105.0, 100)], [(106.0, 90), (107.0, 120)], 10.0, None),
        ([(105.0, 100), (106.0, 90)], [], None, None),  # it was started again
    ],
)
def test_a_rate_needs_two_steps_of_one_task(
    first: list[tuple[float, int]],
    second: list[tuple[float, int]],
    whole_run: float | None,
    of_first: float | None,
) -> None:
    progress = folded(worker_0=steps("worker-0", *first), worker_1=steps("worker-1", *second))
    summary = summary_of(INFO, {}, progress)
    assert summary.steps_per_s == whole_run
    assert summary.tasks[1].steps_per_s == of_first
    shown = io.StringIO()
    Console(file=shown, width=80).print(result_table(summary))
    assert ("a second" in shown.getvalue()) is (whole_run is not None)
    assert json.loads(summary.to_json())["steps_per_s"] == whole_run


def test_global_steps_alone_have_a_rate_and_a_time() -> None:
    """Programs of others often print nothing but the global step."""
    progress = folded(
        worker_0=[record("worker-0", n, global_step=10 * n, time_unix=100.0 + n) for n in (1, 3)],
        worker_1=[record("worker-1", 0, "epoch", epoch=4, loss=0.5, time_unix=101.0)],
    )
    assert summary_of(INFO, {}, progress).steps_per_s == 10.0
    assert progress["worker-0"].trained == (101.0, 103.0)
    assert progress["worker-1"].trained == (101.0, 101.0)


def test_a_record_without_seq_is_not_lost() -> None:
    progress = TaskProgress("worker-0")
    for fields in (record("worker-0", 0), {"kind": "event", "attempt": 2}, record("worker-0", 1)):
        progress.add(fields)
    assert (progress.records, progress.lost, progress.attempt) == (3, 0, 2)


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**63, True, "1", None, [], float("nan")])
@pytest.mark.parametrize(
    "name", ["seq", "attempt", "epoch", "local_step", "global_step", "loss", "accuracy", "probe",
             "time_unix", "step_time_s", "message"],
)  # fmt: skip
def test_an_unknown_field_is_accepted(name: str, value: object) -> None:
    good = {"kind": "step", "local_step": 5, "global_step": 5, "time_unix": 101.0}
    progress = folded(worker_0=[good, good | {name: value}, good | {"time_unix": 103.0}])
    summary = summary_of(INFO, {}, progress)
    assert Summary.from_json(summary.to_json()).global_step == 5


def test_final_figures_of_another_type_are_not_known() -> None:
    ends = {"kind": "eval", "probe": 5, "global_step": "five", "accuracy": [0.5]}
    summary = summary_of(INFO, {}, folded(worker_0=[ends]))
    assert (summary.accuracy, summary.updates_lost, summary.updates_conserved) == (None,) * 3


def test_records_that_the_volume_refused_are_lost() -> None:
    ended = {
        "worker-0": TaskStatus("worker-0", State.FAILED, records_lost=5),
        "ps-0": TaskStatus("ps-0", State.FAILED, records_lost=1),
    }
    gap = [record("worker-0", 0), record("worker-0", 3)]
    assert summary_of(INFO, ended, folded(worker_0=gap)).records_lost == 6
    assert summary_of(INFO, {}, folded(worker_0=gap)).records_lost == 2


def losses(*values: float, kind: str = "step", attempt: int = 0) -> list[dict[str, Any]]:
    return [
        record("worker-0", seq, kind, loss=value, attempt=attempt)
        for seq, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("records", "final", "count"),
    [
        ([], None, None),
        (losses(4.0), 4.0, 1),
        # The last quarter of the records counts, rounded up.
        (losses(9.0, 9.0, 9.0, 4.0), 4.0, 1),
        (losses(9.0, 9.0, 9.0, 4.0, 2.0), 3.0, 2),
        (losses(9.0, 9.0, 9.0, 4.0, 2.0, kind="epoch"), 3.0, 2),
        # At most ten records count.
        (losses(*[99.0] * 90, *[1.0] * 5, *[3.0] * 5), 2.0, 10),
        # Only the last attempt counts.
        ([*losses(*[9.0] * 10), *losses(1.0, 2.0, 3.0, attempt=1)], 3.0, 1),
        ([*losses(9.0, 7.0), record("worker-0", 0, "start", attempt=1)], 7.0, 1),
        ([*losses(9.0, 7.0), *losses(5.0, kind="eval", attempt=1)], 7.0, 1),
        # Tests of the model are no steps.
        ([*losses(4.0, 2.0), *losses(100.0, kind="eval")], 2.0, 1),
        (losses(4.0, 2.0, kind="eval"), 2.0, None),
        ([*losses(4.0), record("worker-0", 1, loss="x"), record("worker-0", 2)], 4.0, 1),
        # What is not finite stays visible, and what the training recovered from does not.
        (losses(1.0, 2.0, math.inf), math.inf, None),
        (losses(*[1.0] * 9, math.nan, 3.0, 5.0), 5.0, 1),
    ],
)
def test_the_final_loss_is_the_mean_of_the_last_step_records(
    records: list[dict[str, Any]], final: float | None, count: int | None
) -> None:
    progress = folded(worker_0=records)
    task = summary_of(INFO, {}, progress).tasks[1]
    assert (task.loss, task.loss_records) == (final, count)


def test_the_newest_loss_remains_for_the_live_view() -> None:
    assert folded(worker_0=losses(4.0, 2.0))["worker-0"].loss == 2.0


def test_the_table_describes_the_final_loss_but_not_that_of_an_earlier_version() -> None:
    summary = summary_of(INFO, {}, folded(worker_0=losses(4.0, 2.0)))
    older = json.loads(summary.to_json())
    for task in older["tasks"]:
        del task["loss_records"]
    for each, is_described in ((summary, True), (Summary.from_json(json.dumps(older)), False)):
        shown = io.StringIO()
        Console(file=shown, width=80).print(result_table(each))
        assert ("mean of the last 25% of records, at most 10" in shown.getvalue()) is is_described


def test_a_diverged_loss_stays_one() -> None:
    progress = folded(
        worker_0=[record("worker-0", 0, loss=0.5), record("worker-0", 1, loss=float("inf"))]
    )
    assert progress["worker-0"].loss == float("inf")


@pytest.mark.parametrize(
    ("losses", "since"),
    [
        ((0.5, 0.4), None),
        ((0.5, math.nan, math.nan), 200),
        ((0.5, math.inf, math.nan), 200),
        ((math.nan, 0.5, 0.4), None),
        ((math.nan, 0.5, math.nan), 300),
    ],
)
def test_a_diverged_training_has_its_step(losses: tuple[float, ...], since: int | None) -> None:
    records = [
        record("worker-0", place, loss=loss, global_step=100 * (place + 1))
        for place, loss in enumerate(losses)
    ]
    summary = summary_of(INFO, {}, folded(worker_0=records))
    assert summary.tasks[1].diverged_at == since
    shown = io.StringIO()
    Console(file=shown, width=80).print(result_table(summary))
    line = f"loss of worker-0                   nan from step {since}"
    assert (line in shown.getvalue()) is (since is not None)
    # Strict readers take it, and here it is read back as it was.
    raw = json.loads(summary.to_json(), parse_constant=pytest.fail)
    assert raw["tasks"][1].get("loss_is") == ("nan" if since else None)
    again = Summary.from_json(summary.to_json()).tasks[1].loss
    assert again is not None
    assert math.isnan(again) is (since is not None)


def set_back() -> dict[str, TaskProgress]:
    """A ps failed at step 40; all went on from the checkpoint of step 25."""
    return folded(
        worker_0=[
            record("worker-0", 0, "step", local_step=20, global_step=38, time_unix=105.0),
            record("worker-0", 0, "event", attempt=1, global_step=25, time_unix=110.0,
                   message="resumes from the checkpoint of step 25"),
            record("worker-0", 1, "step", attempt=1, local_step=9, global_step=45,
                   time_unix=115.0),
            record("worker-0", 2, "event", attempt=2, global_step=41, time_unix=120.0),
            record("worker-0", 3, "eval", attempt=2, accuracy=0.75, global_step=60, probe=59),
        ],
        worker_1=[
            record("worker-1", 0, "step", local_step=19, global_step=40, time_unix=105.1),
            record("worker-1", 0, "step", attempt=1, local_step=5, global_step=30,
                   time_unix=114.0),
        ],
    )  # fmt: skip


def test_redone_steps_are_counted() -> None:
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    summary = summary_of(INFO, states, set_back())
    assert summary.steps_redone == (40 - 25) + (45 - 41)
    assert (summary.updates_conserved, summary.updates_lost) == (False, 1)
    assert summary_of(INFO, states, good()).steps_redone == 0


def test_the_rate_is_the_newest_attempts_and_the_first_step_the_first_ones() -> None:
    progress = TaskProgress("worker-1")
    for attempt, at, step in ((0, 100.0, 1), (0, 110.0, 500), (1, 130.0, 1), (1, 132.0, 41)):
        progress.add(record("worker-1", step, attempt=attempt, time_unix=at, local_step=step))
    assert progress.steps_per_s == 20.0
    assert progress.first_step_unix == 100.0


def test_last_state_of_an_ended_attempt_is_not_from_records() -> None:
    progress = good()
    progress["worker-1"].local_step = 12
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    assert summary_of(INFO, states, progress).updates_conserved is False
    again = states | {"worker-1": TaskStatus("worker-1", State.SUCCEEDED, attempt=1)}
    assert summary_of(INFO, again, progress).updates_conserved is True
    without = states | {"worker-1": TaskStatus("worker-1", State.FAILED)}
    summary = summary_of(INFO, without, progress)
    assert (summary.updates_conserved, summary.degraded) == (True, True)


# ---- Every field of a summary


def test_every_field_of_a_task_that_failed() -> None:
    progress = folded(
        worker_0=[
            record("worker-0", 0, "step", local_step=10, global_step=15, time_unix=105.0, epoch=0),
            record("worker-0", 1, "step", local_step=20, global_step=16, time_unix=108.0, epoch=1,
                   loss=0.25),
            record("worker-0", 2, "final", accuracy=0.5),
        ]
    )  # fmt: skip
    status = TaskStatus(
        "worker-0", State.FAILED, attempt=2, cause=Cause.EXIT_CODE, exit_code=3,
        started_unix=100.0, ended_unix=112.34567,
    )  # fmt: skip
    gpus = {"worker-0": GpuFigures(0.12345, 1024, 250.98765)}
    addresses = {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:2222"]}
    info = replace(INFO, cluster=addresses)  # a task's row names its node, not its address
    summary = summary_of(info, {"worker-0": status}, progress, gpus)
    assert summary.tasks[1] == TaskSummary(
        task="worker-0",
        job_name="worker",
        task_index=0,
        node="tf2",
        gpus=["0", "1"],
        state="failed",
        exit_code=3,
        attempts=3,
        epoch=1,
        local_step=20,
        global_step=16,
        loss=0.25,
        accuracy=0.5,
        steps_per_s=3.333,
        time_s=12.346,
        cause="exit code",
        gpu_utilisation=0.123,
        gpu_memory_bytes=1024,
        gpu_power_w=250.988,
        loss_records=1,
    )


def test_every_field_of_a_task_without_status_and_records() -> None:
    summary = summary_of(INFO, {}, folded())
    absent = [None] * 8
    assert summary.tasks[2] == TaskSummary(
        "worker-1", "worker", 1, "tf3", [], "lost", None, 0, *absent[:7]
    )


def test_a_task_that_was_never_started_has_no_attempt_and_no_duration() -> None:
    ended = TaskStatus("worker-0", State.CANCELLED, ended_unix=112.5)
    started = TaskStatus("worker-1", State.TRAINING, started_unix=100.0)
    summary = summary_of(INFO, {"worker-0": ended, "worker-1": started}, folded())
    assert [(task.attempts, task.time_s) for task in summary.tasks[1:]] == [(0, None), (1, None)]
    assert [task.cause for task in summary.tasks] == [None] * 3


def test_every_field_of_a_run() -> None:
    info = RunInfo(
        run_id="20261123-async",
        spec=RunSpec(experiment="async", resumed_from="before"),
        backend="compose",
        state=State.FAILED,
        reason="worker-1 failed",
        cluster=PLAN.cluster_spec(),
        started_unix=100.0,
    )
    progress = good()
    progress["worker-1"].lost = 2
    progress["ps-0"].lost = 1
    states = statuses(worker_0=State.SUCCEEDED, worker_1=State.FAILED)
    states["worker-0"] = TaskStatus("worker-0", State.SUCCEEDED, ended_unix=109.98765)
    summary = summary_of(info, states, progress)
    assert summary == Summary(
        run_id="20261123-async",
        experiment="async",
        backend="compose",
        state="failed",
        reason="worker-1 failed",
        degraded=False,  # only a run that succeeded can be
        global_step=40,
        updates_conserved=True,
        updates_lost=0,
        steps_redone=0,
        resumed_from="before",
        accuracy=0.75,
        wall_s=9.988,  # to the end of the last task
        first_step_s=6.0,
        steps_per_s=10.0,
        records_lost=3,
        tasks=summary.tasks,
        results=[],
    )


def test_a_run_without_any_end_has_no_duration() -> None:
    info = RunInfo("r", RunSpec("async"), cluster=PLAN.cluster_spec(), started_unix=100.0)
    assert summary_of(info, {}, folded()).wall_s is None


def test_the_first_step_is_known_only_when_every_worker_made_one() -> None:
    progress = folded(worker_0=[record("worker-0", 0, local_step=1, time_unix=105.0)])
    assert summary_of(INFO, {}, progress).first_step_s is None
    progress["worker-1"].first_step_unix = 107.1234
    assert summary_of(INFO, {}, progress).first_step_s == 7.123


def test_one_step_record_has_no_rate() -> None:
    mark = record("worker-0", 0, local_step=1, global_step=1, time_unix=105.0)
    assert summary_of(INFO, {}, folded(worker_0=[mark])).steps_per_s is None


def test_only_a_worker_makes_a_run_degraded() -> None:
    whole = statuses(worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    assert not summary_of(INFO, whole | statuses(ps_0=State.FAILED), good()).degraded
    assert summary_of(INFO, whole | statuses(worker_1=State.LOST), good()).degraded
    assert not summary_of(INFO, statuses(worker_0=State.SUCCEEDED), good()).degraded


@pytest.mark.parametrize(
    ("changes", "conserved"),
    [
        ({}, False),  # 12 + 20 local steps, and the probe has 40
        ({"resumed_from": "before"}, True),  # the earlier run's steps are not in these records
        ({"own": True}, True),  # a program of the user's own with the experiment's name
        ({"experiment": "unknown"}, True),
        ({"experiment": "sync"}, True),
    ],
)
def test_local_steps_are_added_up_only_where_each_is_an_update(
    changes: dict[str, Any], conserved: bool
) -> None:
    progress = good()
    progress["worker-1"].local_step = 12
    info = changed(INFO, **changes)
    assert summary_of(info, {}, progress).updates_conserved is conserved


def test_a_worker_without_steps_adds_none() -> None:
    final = record("worker-0", 0, "eval", accuracy=0.5, global_step=20, probe=20)
    progress = folded(worker_0=[final, record("worker-0", 1, "final", local_step=20)])
    assert summary_of(INFO, {}, progress).updates_conserved is True


def test_a_probe_without_a_global_step_decides_nothing() -> None:
    progress = folded(worker_0=[record("worker-0", 0, "eval", accuracy=0.5, probe=20)])
    summary = summary_of(INFO, {}, progress)
    assert (summary.updates_conserved, summary.updates_lost) == (None, None)
    assert summary.accuracy == 0.5


def test_steps_are_redone_from_the_peak_between_two_resumptions() -> None:
    chief = TaskProgress(
        "worker-0",
        peaks={0: (110.0, 40), 1: (119.0, 33)},
        resumed=[(110.0, 25), (120.0, 30)],
    )
    # At 110 the first attempt's peak counts, and it does not count again at 120.
    assert summary_of(INFO, {}, folded() | {"worker-0": chief}).steps_redone == (40 - 25) + (
        33 - 30
    )


def test_the_results_that_are_missing_follow_those_that_were_found() -> None:
    info = RunInfo("r", RunSpec("linear"), state=State.SUCCEEDED, cluster=PLAN.cluster_spec())
    found = record("worker-1", 0, "result", name="b", value=10.0, low=9.9, high=10.1)
    progress = folded(worker_1=[found])
    b = ResultSummary("b", "worker-1", 10.0, 9.9, 10.1, True)
    assert summary_of(info, {}, progress).results == [
        b,
        ResultSummary("w", "", None, None, None, False),
    ]
    # A program of the user's own with that name has no registered results.
    assert summary_of(changed(info, own=True), {}, progress).results == [b]
    assert summary_of(replace(info, state=State.FAILED), {}, progress).results == [b]


# ---- The files of a run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run whose first worker trained on one GPU; its ps wrote no status."""
    found = RunDir(tmp_path / "runs" / "r")
    found.create(INFO)
    for folder in ("tasks", "status"):
        (found.path / folder).mkdir()
    records = [
        record("worker-0", 0, local_step=1, global_step=1, time_unix=105.0),
        record("worker-0", 1, local_step=9, global_step=9, time_unix=109.0),
        record("worker-0", 2, "eval", accuracy=0.5, global_step=12, probe=12),
    ]
    found.records("worker-0").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    samples = [
        {"task": "worker-0", "gpu": "GPU-0", "time_unix": at, "utilisation": share,
         "memory_used_bytes": 512, "power_w": 100.0}
        for at, share in ((101.0, 0.0), (106.0, 0.5), (108.0, 1.0))
    ]  # fmt: skip
    found.gpu_samples.write_text("".join(f"{json.dumps(each)}\n" for each in samples))
    restarted = TaskStatus("worker-0", State.SUCCEEDED, attempt=1)
    found.status("worker-0").write_text(restarted.to_json())
    return found


def test_a_run_is_summed_up_from_its_files(run: RunDir) -> None:
    summary = summarize(run)
    service, chief, other = summary.tasks
    assert (service.state, chief.state, other.state) == ("lost", "succeeded", "lost")
    assert (chief.local_step, chief.steps_per_s) == (9, 2.0)
    # Only the samples from the first step record to the last count.
    assert (chief.gpu_utilisation, chief.gpu_memory_bytes, chief.gpu_power_w) == (0.75, 512, 100.0)
    assert (summary.run_id, summary.global_step, summary.wall_s) == ("r", 12, 20.5)
    # The worker was restarted, so that its records need not hold all 12 steps.
    assert summary.updates_conserved is True


def test_a_written_summary_is_read_back_and_its_table_has_a_row_for_each_task(run: RunDir) -> None:
    summary = summarize(run)
    write_summary(run, summary)
    assert read_summary(run.summary_path) == summary
    assert run.summary_path.read_text() == summary.to_json() + "\n"
    table = (run.path / "summary.csv").read_bytes().decode()  # a text would hide its line ends
    header, *rows = table.splitlines(keepends=True)
    assert header == (
        "task,job_name,task_index,node,gpus,state,exit_code,attempts,epoch,local_step,global_step,"
        "loss,accuracy,steps_per_s,time_s,cause,gpu_utilisation,gpu_memory_bytes,gpu_power_w,"
        "diverged_at,loss_records,staleness_sum,staleness_steps\n"
    )
    assert rows == [
        "ps-0,ps,0,tf1,,lost,,0,,,,,,,,,,,,,,,\n",
        "worker-0,worker,0,tf2,0 1,succeeded,,0,,9,12,,,2.0,,,0.75,512,100.0,,,,\n",
        "worker-1,worker,1,tf3,,lost,,0,,,,,,,,,,,,,,,\n",
    ]


def test_results_are_read_back() -> None:
    found = record("worker-0", 0, "result", name="w", value=2.0, low=1.9, high=2.1)
    summary = summary_of(INFO, {}, folded(worker_0=[found]))
    assert summary.results == [ResultSummary("w", "worker-0", 2.0, 1.9, 2.1, True)]
    assert Summary.from_json(summary.to_json()) == summary
    # Summaries of earlier versions have no results.
    raw = json.loads(summary.to_json())
    del raw["results"]
    assert Summary.from_json(json.dumps(raw)) == replace(summary, results=[])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is no JSON"),
        ("[]", "its JSON is no object"),
        ("{}", "missing required field `run_id`"),
        ('{"tasks": [{"task": 1}]}', r"Expected `str`, got `int` - at `\$.tasks\[0\].task`"),
        ('{"tasks": ' + "[" * 5_000 + "]" * 5_000 + "}", "nested too deeply"),
    ],
)
def test_a_damaged_summary_is_named_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "summary.json"
    assert read_summary(path) is None
    path.write_text(text)
    with pytest.raises(LabError, match=rf"summary\.json: .*{reason}"):
        read_summary(path)


def test_a_summary_with_a_state_that_is_none_is_damaged(run: RunDir) -> None:
    text = summarize(run).to_json()
    for state in ('"state": "succeeded"', '"state": "lost"'):
        assert state in text
        with pytest.raises(ValueError, match="'happy' is not a valid State"):
            Summary.from_json(text.replace(state, '"state": "happy"', 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is no JSON"),
        ('{"task": "ps-0", "state": "happy"}', r"Invalid enum value 'happy' - at `\$.state`"),
        ('{"task": 5, "state": "failed"}', r"Expected `str`, got `int` - at `\$.task`"),
    ],
)
def test_a_damaged_status_is_named_with_its_key(run: RunDir, text: str, reason: str) -> None:
    run.status("ps-0").write_text(text)
    with pytest.raises(LabError, match=rf"status/ps-0\.json: {reason}"):
        summarize(run)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_status_that_is_no_file_is_not_waited_for(run: RunDir, kind: str) -> None:
    path = run.status("ps-0")
    make = {"pipe": os.mkfifo, "link": lambda at: at.symlink_to("/dev/zero"), "folder": os.mkdir}
    make[kind](path)
    with pytest.raises((LabError, IsADirectoryError)):
        summarize(run)


def test_a_test_during_the_training_is_not_the_tasks_accuracy() -> None:
    progress = TaskProgress("worker-0")
    progress.add({"kind": "eval", "local_step": 170, "global_step": 500, "accuracy": 0.5})
    assert (progress.accuracy, progress.highest) == (None, 500)
    progress.add({"kind": "eval", "global_step": 900, "accuracy": 0.8})
    assert progress.accuracy == 0.8
