"""What the records of a task add up to: steps, rates, losses, and lost records."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.protocol.records.reader import LineReader
from lab.runner.store.summarize import summary_of
from lab.runner.store.summary import Summary
from lab.runner.store.task_progress import TaskProgress, read_progress
from tests.support.fakes import record
from tests.support.summaries import INFO, folded, shown


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
        f"{lines[0]}\n{lines[1][:9]}\xff\n[1]\nnull\n{lines[2]}\n{lines[3]}".encode("latin-1")
    )
    progress = read_progress(path, "worker-0")
    assert (progress.records, progress.lost) == (2, 1)
    assert read_progress(tmp_path / "none.jsonl", "x").records == 0


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


def steps(task: str, *records: tuple[float, int]) -> list[dict[str, Any]]:
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
    assert ("a second" in shown(summary)) is (whole_run is not None)
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


def test_records_without_a_number_are_not_lost_and_a_late_first_one_is_no_first_step() -> None:
    progress = TaskProgress("worker-0")
    late = record("worker-0", 0, local_step=100, time_unix=105.0)
    for fields in (late, {"kind": "event", "attempt": 2}, record("worker-0", 1)):
        progress.add(fields)
    assert (progress.records, progress.lost, progress.attempt) == (3, 0, 2)
    assert progress.first_step_unix is None


def test_the_first_step_may_be_step_0_and_is_counted_back_from_a_later_one() -> None:
    first, later = TaskProgress("worker-0"), TaskProgress("worker-1")
    first.add(record("worker-0", 0, local_step=0, time_unix=110.0))
    later.add(record("worker-1", 0, local_step=10, step_time_s=0.5, time_unix=110.0))
    assert (first.first_step_unix, later.first_step_unix) == (110.0, 105.5)


NAMES = "seq attempt epoch local_step global_step loss accuracy probe time_unix step_time_s message"


@given(
    name=st.sampled_from(NAMES.split()),
    value=st.sampled_from([10**400, -(10**400), 2**63, True, "1", None, [], math.nan]),
)
def test_an_unknown_field_is_accepted(name: str, value: object) -> None:
    good = {"kind": "step", "local_step": 5, "global_step": 5, "time_unix": 101.0}
    progress = folded(worker_0=[good, good | {name: value}, good | {"time_unix": 103.0}])
    summary = summary_of(INFO, {}, progress)
    assert Summary.from_json(summary.to_json()).global_step == 5


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


def test_the_table_describes_the_final_loss_but_not_that_of_an_earlier_version() -> None:
    progress = folded(worker_0=losses(4.0, 2.0))
    assert progress["worker-0"].loss == 2.0  # the live view has the newest one
    summary = summary_of(INFO, {}, progress)
    older = json.loads(summary.to_json())
    for task in older["tasks"]:
        del task["loss_records"]
    del older["results"]
    described = "mean of the last 25% of records, at most 10"
    assert described in shown(summary)
    assert described not in shown(Summary.from_json(json.dumps(older)))


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
    line = f"loss of worker-0                   nan from step {since}"
    assert (line in shown(summary)) is (since is not None)
    # Strict readers take it, and here it is read back as it was.
    raw = json.loads(summary.to_json(), parse_constant=pytest.fail)
    assert raw["tasks"][1].get("loss_is") == ("nan" if since else None)
    again = Summary.from_json(summary.to_json()).tasks[1].loss
    assert again is not None
    assert math.isnan(again) is (since is not None)


def test_the_rate_is_the_newest_attempts_and_the_first_step_the_first_ones() -> None:
    progress = TaskProgress("worker-1")
    for attempt, at, step in ((0, 100.0, 1), (0, 110.0, 500), (1, 130.0, 1), (1, 132.0, 41)):
        progress.add(record("worker-1", step, attempt=attempt, time_unix=at, local_step=step))
    assert (progress.steps_per_s, progress.first_step_unix) == (20.0, 100.0)


def test_a_test_during_the_training_is_not_the_tasks_accuracy() -> None:
    progress = TaskProgress("worker-0")
    progress.add({"kind": "eval", "local_step": 170, "global_step": 500, "accuracy": 0.5})
    assert (progress.accuracy, progress.highest) == (None, 500)
    progress.add({"kind": "eval", "global_step": 900, "accuracy": 0.8})
    assert progress.accuracy == 0.8
