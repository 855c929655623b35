"""The steps of a training that a recorder writes, and what it computes for them."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.protocol.records import Record, parse_record
from lab.task.sdk import recorder
from lab.task.sdk.recorder import Recorder

FLAGS = Namespace(record_every=100, batch_size=10, eval_every=250)


class Training:
    """A recorder of the chief with a clock that only the test moves."""

    def __init__(self, path: Path) -> None:
        self.now_s = 1000.0
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.recorder = Recorder("worker", 0, descriptor=self._descriptor)

    def steps(self, first: int, last: int, each_s: float = 0.01, **fields: Any) -> None:
        for step in range(first, last + 1):
            self.now_s += each_s
            self.recorder.step(step, step, **fields)

    def records(self) -> list[Record]:
        found = [parse_record(line) for line in self._path.read_text().splitlines()]
        return [record for record in found if record is not None]

    def column(self, name: str, kind: str = "") -> list[Any]:
        return [record.get(name) for record in self.records() if kind in {"", record["kind"]}]

    def close(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    made = Training(tmp_path / "records")
    monkeypatch.setattr(recorder, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    yield made
    made.close()


EPOCHS = "step 1, step 100, epoch 150, step 200, epoch 300"


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ({}, "step 1, step 100, step 200, step 300"),
        ({"local_steps_per_epoch": 150}, EPOCHS),
        ({"global_steps_per_epoch": 150, "last_step": 310}, f"{EPOCHS}, step 310"),
    ],
    ids=["no epochs", "epochs of local steps", "epochs of global steps, and the last step"],
)
def test_the_first_step_each_hundredth_and_the_end_of_an_epoch_are_recorded(
    training: Training, begin: dict[str, int], expected: str
) -> None:
    training.recorder.begin_training(FLAGS, **begin)
    training.steps(1, 310)
    records = training.records()
    assert ", ".join(f"{each['kind']} {each['local_step']}" for each in records) == expected
    assert all(each["examples"] == 10 * each["local_step"] for each in records)


def test_a_call_with_several_steps_is_recorded_if_one_of_them_is_due(training: Training) -> None:
    training.recorder.begin_training(FLAGS, examples_per_step=30)
    for last in (1, 99, 110, 190, 210, 299):
        training.recorder.step(last, last)
    assert training.column("local_step") == [1, 110, 210]
    assert training.column("examples") == [30, 3300, 6300]


def test_slow_steps_are_recorded_every_five_seconds(training: Training) -> None:
    training.recorder.begin_training(FLAGS)
    training.steps(1, 9, each_s=2.0)
    assert training.column("local_step") == [1, 4, 7]


def test_an_epoch_of_a_resumed_training_counts_from_its_global_step(training: Training) -> None:
    training.recorder.begin_training(FLAGS, 550, global_steps_per_epoch=550)
    training.recorder.step(1, 551)
    training.recorder.step(2, 1100)
    assert training.column("kind") == ["step", "epoch"]
    assert training.column("epoch") == [1, 1]


def test_times_are_means_since_the_last_record_without_tests(training: Training) -> None:
    training.recorder.begin_training(FLAGS)
    training.steps(1, 50, each_s=0.01, wait_time_s=0.004)
    training.now_s += 7.0
    training.recorder.write("eval", global_step=50, accuracy=0.5)
    training.recorder.write("eval", global_step=50, accuracy=0.5)
    training.steps(51, 100, each_s=0.03, wait_time_s=0.008)
    first, second = training.column("step_time_s", "step")
    assert first == pytest.approx(0.01)
    assert second == pytest.approx((49 * 0.01 + 50 * 0.03) / 99)
    assert training.column("wait_time_s", "step") == pytest.approx(
        [0.004, (49 * 0.004 + 50 * 0.008) / 99]
    )


def test_staleness_adds_up_over_all_steps_or_is_given(training: Training) -> None:
    training.recorder.begin_training(FLAGS)
    training.steps(1, 100, staleness=2)
    training.recorder.step(200, 600, staleness=1, staleness_sum=300)
    training.recorder.finish(accuracy=0.5)
    assert training.column("staleness", "step") == [2, 2, 1]
    assert training.column("staleness_sum") == [2, 200, 300, 300]


@pytest.mark.parametrize(
    ("tested", "due"),
    [
        ((), {249: False, 250: True, 251: True}),
        ((250,), {251: False, 499: False, 500: True}),
        ((760,), {999: False, 1000: True}),
    ],
)
def test_a_test_is_due_when_its_global_step_is_reached(
    training: Training, tested: tuple[int, ...], due: dict[int, bool]
) -> None:
    training.recorder.begin_training(FLAGS)
    for step in tested:
        training.recorder.write("eval", global_step=step)
    found = {}
    for step in due:
        training.recorder.step(step, step)
        found[step] = training.recorder.test_is_due()
    assert found == due


@pytest.mark.parametrize(("task_index", "eval_every"), [(1, 250), (0, 0)])
def test_no_test_is_due(tmp_path: Path, task_index: int, eval_every: int) -> None:
    with (tmp_path / "records").open("wb") as file:
        recorder = Recorder("worker", task_index, descriptor=file.fileno())
        recorder.begin_training(Namespace(record_every=1, batch_size=1, eval_every=eval_every))
        recorder.step(10_000, 10_000)
        assert not recorder.test_is_due()


def test_a_task_without_steps_ends_at_the_step_from_which_it_began(training: Training) -> None:
    training.recorder.begin_training(FLAGS, 7, local_steps_per_epoch=5)
    training.recorder.finish(accuracy=0.5)
    (record,) = training.records()
    assert (record["epoch"], record["local_step"], record["global_step"]) == (0, 0, 7)
    assert record["status"] == "succeeded"
