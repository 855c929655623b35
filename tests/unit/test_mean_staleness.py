"""The mean staleness of a run: over all steps of all workers, however few of them are recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


@pytest.mark.parametrize(
    ("attempts", "summed", "steps", "mean"),
    [
        ([(30, 10)], 30, 10, 3.0),
        ([(30, 10), (6, 20)], 36, 30, 1.2),  # the steps of all attempts count
        ([(0, 0)], 0, 0, None),
        ([], None, None, None),
    ],
)
def test_the_mean_is_of_all_attempts_and_needs_a_sum_and_a_step(
    attempts: list[tuple[int, int]], summed: int | None, steps: int | None, mean: float | None
) -> None:
    worker = Worker("worker-0", 1)
    worker.progress.add(record("worker-0", 0, local_step=5, staleness=2, attempt=0))
    for number, (worker.staleness_sum, worker.local_step) in enumerate(attempts):
        worker.attempt, worker.seq = number, worker.seq + 1
        worker.write("final")
    (task,) = summary([worker]).tasks
    assert (task.staleness_sum, task.staleness_steps, task.mean_staleness) == (summed, steps, mean)
    assert mean_staleness([task]) == mean


def store(folder: Path, run_id: str, **fields: int) -> None:
    """Store a run of one worker, with the start of the graph in its first step."""
    (folder / run_id / "tasks").mkdir(parents=True)
    cluster = {"worker": ["tf1:2222"]}
    info: Any = run_info(run_id, experiment="async", cluster=cluster, started_unix=1000.0)
    (folder / run_id / "run.json").write_text(info.to_json())
    lines = [
        record("worker-0", 0, local_step=1, global_step=1, staleness=900, time_unix=1001.0),
        record("worker-0", 1, "final", local_step=300, time_unix=1009.0, **fields),
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / run_id / "tasks/worker-0.jsonl").write_text(text)


def test_commands_print_the_mean_of_all_steps_and_a_dash_for_an_unknown_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "20261121-0811-async-bbbb"
    store(tmp_path, RUN, staleness_sum=1200)
    store(tmp_path, other)
    assert main(["compare", RUN, other, "--runs-dir", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[2:] for row in rows if row[:1] == ["staleness"]] == [["4.00", UNKNOWN]] * 2
    assert main(["show", RUN, "--runs-dir", str(tmp_path)]) == 0
    assert "mean staleness                     4.00, of 300 steps" in capsys.readouterr().out
