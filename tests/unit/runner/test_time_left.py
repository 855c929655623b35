"""The progress of a whole run: its end, and the time left."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lab.base.formatting import about
from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.states import State
from lab.runner.store.run_info import RunInfo
from lab.runner.view import WINDOW, RunProgress
from tests.support.fakes import PLAN, record


def run(experiment: str = "async", *, data_dir: str = "", **hyperparameters: object) -> RunInfo:
    return RunInfo(
        "r",
        RunSpec(experiment, data_dir=data_dir),
        cluster=PLAN.cluster_spec(),
        hyperparameters=hyperparameters,
    )


def step(
    global_step: int, time: float, local_step: int = 100, **fields: object
) -> dict[str, object]:
    examples = 100 * local_step
    more = {"examples": examples, **fields}
    return record(
        "worker-0", 0, global_step=global_step, local_step=local_step, time_unix=time, **more
    )


def resumes(step: int, time: float, **fields: object) -> dict[str, object]:
    return record("worker-0", 1, "event", global_step=step, time_unix=time, **fields)


def fed(info: RunInfo, *records: dict[str, object]) -> RunProgress:
    progress = RunProgress(info)
    for each in records:
        progress.add("worker-0", each)
    return progress


THOUSAND = run(global_steps=1000, epochs=50)


@pytest.mark.parametrize(
    ("records", "share", "left_s"),
    [
        ([], 0, None),
        ([step(200, 10.0), step(400, 14.0)], 0.4, 600 / 50),
        ([step(100, 10.0), step(150, 12.9)], 0.15, None),  # the rate is not stable yet
        ([step(100, 10.0), step(150, 12.9), step(200, 14.0)], 0.2, 800 * 4 / 100),
        ([step(100, 10.0), step(200, 14.0), step(1000, 20.0)], 1, 0),
        ([resumes(600, 1.0)], 0.6, None),
        ([resumes(600, 1.0), step(620, 10.0), step(700, 14.0)], 0.7, 300 / 20),
    ],
)
def test_global_steps_determine_the_end(
    records: list[dict[str, object]], share: float, left_s: float | None
) -> None:
    progress = fed(THOUSAND, *records)
    assert progress.has_end
    assert progress.share({}) == share
    assert progress.left_s({}) == (left_s if left_s is None else pytest.approx(left_s))


@pytest.mark.parametrize(
    ("experiment", "examples", "end"),
    [
        ("async", 100, 2 * 550 * 2),  # every worker makes its epochs
        ("sync", 100, 2 * 550),  # the updates are counted
        ("in-graph", 300, 2 * 183),  # an update has the joined batch of three replicas
    ],
)
def test_epochs_determine_the_end(experiment: str, examples: int, end: int) -> None:
    progress = fed(run(experiment, epochs=2), step(10, 1.0, 10, examples=10 * examples))
    assert progress.end_step({}) == end
    assert progress.share({}) == pytest.approx(10 / end)


@pytest.mark.parametrize(
    ("experiment", "hyperparameters"),
    [
        ("hello", {}),
        ("hello", {"global_steps": 0}),
        ("hello", {"epochs": "many"}),
        ("bert-tiny", {"epochs": 2, "global_steps": 9}),  # its epochs are not those of MNIST
    ],
)
def test_without_known_end_there_is_no_share(
    experiment: str, hyperparameters: dict[str, object]
) -> None:
    progress = fed(run(experiment, **hyperparameters), step(10, 1.0), step(900, 9.0))
    assert not progress.has_end
    assert progress.share({}) is None
    assert progress.left_s({}) is None


def test_with_own_data_the_first_epoch_shows_the_end() -> None:
    info = run(epochs=4, data_dir="/data")
    assert fed(info, step(90, 1.0)).share({}) is None
    assert fed(info, step(90, 1.0), step(100, 2.0, 50, kind="epoch", epoch=0)).end_step({}) == 400


def test_a_restart_goes_back_to_the_checkpoint() -> None:
    start = record("worker-0", 0, "start", attempt=1, time_unix=30.0)
    progress = fed(run("sync", global_steps=1000), step(500, 10.0), step(700, 20.0), start)
    progress.add("worker-1", step(710, 20.5))  # a late record of the first attempt
    progress.add("worker-1", step(710, 30.5))
    assert progress.share({}) == 0
    progress.add("worker-0", resumes(400, 31.0, attempt=1))
    assert (progress.share({}), progress.left_s({})) == (0.4, None)
    progress.add("worker-0", step(410, 32.0, attempt=1))
    progress.add("worker-0", step(450, 36.0, attempt=1))
    assert progress.left_s({}) == pytest.approx(550 / 10)


def test_an_asynchronous_worker_that_restarts_changes_nothing() -> None:
    start = record("worker-0", 0, "start", attempt=1, time_unix=11.0)
    progress = fed(THOUSAND, step(500, 10.0), start, step(520, 12.0))
    progress.add("worker-0", step(540, 13.0, 10, attempt=1))
    assert progress.share({}) == 0.54
    progress.add("worker-1", step(560, 14.0))
    assert progress.share({}) == 0.56


def test_records_that_are_passed_again_change_nothing() -> None:
    again = [step(450, 21.0, attempt=1), step(490, 25.0, attempt=1)]
    records = [step(500, 10.0), resumes(400, 20.0, attempt=1), *again]
    progress = fed(THOUSAND, *records)
    before = progress.share({}), progress.left_s({})
    for each in (*records, records[0]):
        progress.add("worker-0", each)
    assert (progress.share({}), progress.left_s({})) == before


def test_a_failed_worker_makes_no_more_steps() -> None:
    info = run(epochs=1)
    info = replace(info, spec=replace(info.spec, on_failure=OnFailure.CONTINUE))
    progress = fed(info, step(200, 1.0, 150))
    failed = {"worker-0": TaskStatus("worker-0", State.FAILED)}
    assert progress.end_step({}) == 1100
    assert progress.end_step(failed) == 700


def test_the_memory_is_bounded() -> None:
    progress = RunProgress(run(global_steps=10**9))
    for second in range(5000):
        progress.add("worker-0", step(second + 1, 1e9 + second))
    assert len(progress._marks) == WINDOW


@pytest.mark.parametrize("time", [math.nan, math.inf, "soon", None, True])
def test_a_record_without_a_time_is_ignored(time: object) -> None:
    each = {**step(10, 0.0), "time_unix": time}
    assert fed(run(global_steps=20), each).share({}) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (99, "99 s"),
        (120, "2 min"),
        (7800, "2 h 10 min"),
        (1e300, "277,777,777 h 47 min"),
    ],
)
def test_a_rough_time(seconds: float, text: str) -> None:
    assert about(seconds) == text
