"""The mean staleness of a run: over all steps of all workers, however few of them are recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.cli import main
from lab.formatting import UNKNOWN
from lab.run.progress import TaskProgress
from lab.run.summarize import summary_of
from lab.run.summary import Summary, mean_staleness
from tests.support.fakes import record
from tests.support.specs import run_info

RUN = "20261121-0810-async-aaaa"


class Worker:
    """A worker of an asynchronous training, as `scripts/mnist_async.py` counts and records it."""

    def __init__(self, task: str, record_every: int) -> None:
        self.progress = TaskProgress(task)
        self.record_every = record_every
        self.attempt = 0
        self.begin()

    def begin(self) -> None:
        self.step_at_read: int | None = None
        self.local_step = self.staleness_sum = self.seq = 0

    def restart(self) -> None:
        self.attempt += 1
        self.begin()

    def turn(self, updates: int) -> int:
        """Read, or make the update for the last read; the number of updates made so far."""
        if self.step_at_read is None:
            self.step_at_read = updates
            return updates
        staleness = updates - self.step_at_read
        self.step_at_read = None
        self.local_step += 1
        self.staleness_sum += staleness
        if self.local_step == 1 or self.local_step % self.record_every == 0:
            self.write("step", staleness=staleness)
        return updates + 1

    def write(self, kind: str, **fields: int) -> None:
        made = record(
            self.progress.task, self.seq, kind, attempt=self.attempt, local_step=self.local_step,
            staleness_sum=self.staleness_sum, **fields,
        )  # fmt: skip
        self.progress.add(made)
        self.seq += 1


def summary(workers: Sequence[Worker]) -> Summary:
    hosts = [f"tf{number}:2222" for number in range(len(workers))]
    info = run_info(RUN, experiment="async", cluster={"worker": hosts})
    return summary_of(info, {}, {each.progress.task: each.progress for each in workers})


@given(
    workers=st.integers(1, 6),
    record_every=st.integers(1, 50),
    # Long stretches of one worker are pauses of all others.
    turns=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=60),
    restarts=st.sets(st.integers(0, 59), max_size=3),
)
def test_the_mean_over_all_steps_is_at_most_the_number_of_other_workers(
    workers: int, record_every: int, turns: list[tuple[int, int]], restarts: set[int]
) -> None:
    team = [Worker(f"worker-{index}", record_every) for index in range(workers)]
    updates = 0
    for place, (chosen, count) in enumerate(turns):
        worker = team[chosen % workers]
        if place in restarts:
            worker.write("event")  # nothing of the attempt is unrecorded
            worker.restart()
        for _ in range(count):
            updates = worker.turn(updates)
    for worker in team:
        worker.write("final")
    found = summary(team)
    assert sum(task.staleness_steps or 0 for task in found.tasks) == updates
    if updates:
        assert found.mean_staleness is not None
        assert 0 <= found.mean_staleness <= workers - 1
    else:
        assert found.mean_staleness is None


def test_workers_that_take_turns_reach_the_limit() -> None:
    team = [Worker(f"worker-{index}", 100) for index in range(3)]
    updates = 0
    for worker in team:
        updates = worker.turn(updates)
    for _ in range(1000):
        for worker in team:
            updates = worker.turn(worker.turn(updates))  # update, then read again
    for worker in team:
        worker.write("final")
    assert updates == 3000
    found = summary(team)
    assert found.mean_staleness == pytest.approx(2, abs=0.01)
    assert [task.staleness_steps for task in found.tasks] == [1000] * 3
    assert found.tasks[0].staleness_sum == 2 * 999


def test_the_steps_of_all_attempts_count() -> None:
    worker = Worker("worker-0", 1)
    worker.staleness_sum, worker.local_step = 30, 10
    worker.write("step")
    worker.restart()
    worker.staleness_sum, worker.local_step = 6, 20
    worker.write("final")
    (task,) = summary([worker]).tasks
    assert (task.staleness_sum, task.staleness_steps) == (36, 30)
    assert task.mean_staleness == mean_staleness([task]) == 36 / 30


def test_without_a_sum_or_without_a_step_there_is_no_mean() -> None:
    recorded, idle = Worker("worker-0", 1), Worker("worker-1", 1)
    recorded.progress.add(record("worker-0", 0, local_step=5, staleness=2))
    idle.write("final")
    first, second = summary([recorded, idle]).tasks
    assert (first.staleness_sum, first.staleness_steps, first.mean_staleness) == (None, None, None)
    assert (second.staleness_sum, second.staleness_steps, second.mean_staleness) == (0, 0, None)


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., None]:
    """Stores a run of one worker, with the start of the graph in its first step."""

    def store(run_id: str, **fields: int) -> None:
        folder = tmp_path / run_id
        (folder / "tasks").mkdir(parents=True)
        cluster = {"worker": ["tf1:2222"]}
        info: Any = run_info(run_id, experiment="async", cluster=cluster, started_unix=1000.0)
        (folder / "run.json").write_text(info.to_json())
        lines = [
            record("worker-0", 0, local_step=1, global_step=1, staleness=900, time_unix=1001.0),
            record("worker-0", 1, "final", local_step=300, time_unix=1009.0, **fields),
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "tasks/worker-0.jsonl").write_text(text)

    return store


def test_compare_shows_the_mean_of_all_steps_and_a_dash_for_an_unknown_one(
    tmp_path: Path, stored: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    other = "20261121-0811-async-bbbb"
    stored(RUN, staleness_sum=1200)
    stored(other)
    assert main(["compare", RUN, other, "--runs-dir", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[2:] for row in rows if row[:1] == ["staleness"]] == [["4.00", UNKNOWN]] * 2


def test_show_prints_the_mean_with_its_number_of_steps(
    tmp_path: Path, stored: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    stored(RUN, staleness_sum=1200)
    assert main(["show", RUN, "--runs-dir", str(tmp_path)]) == 0
    assert "mean staleness                     4.00, of 300 steps" in capsys.readouterr().out
