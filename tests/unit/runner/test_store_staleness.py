"""The mean staleness of a run: over all steps of all workers, however few of them are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.base.formatting import UNKNOWN
from lab.cli import main
from lab.runner.store.summarize import summary_of
from lab.runner.store.summary import mean_staleness
from lab.runner.store.task_progress import TaskProgress
from tests.support.fakes import record
from tests.support.specs import run_info

RUN = "20261121-0810-async-aaaa"


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
    progress = TaskProgress("worker-0")
    progress.add(record("worker-0", 0, local_step=5, staleness=2))
    for attempt, (staleness_sum, local_step) in enumerate(attempts):
        more = {"staleness_sum": staleness_sum, "local_step": local_step, "attempt": attempt}
        progress.add(record("worker-0", 1 + attempt, "final", **more))
    info = run_info(RUN, experiment="async", cluster={"worker": ["tf1:2222"]})
    (task,) = summary_of(info, {}, {"worker-0": progress}).tasks
    assert (task.staleness_sum, task.staleness_steps, task.mean_staleness) == (summed, steps, mean)
    assert mean_staleness([task]) == mean


def test_the_mean_of_a_run_weighs_the_workers_by_their_steps() -> None:
    workers = {f"worker-{index}": TaskProgress(f"worker-{index}") for index in range(2)}
    for (task, progress), (summed, steps) in zip(
        workers.items(), [(300, 100), (20, 300)], strict=True
    ):
        progress.add(record(task, 0, "final", staleness_sum=summed, local_step=steps))
    info = run_info(RUN, experiment="async", cluster={"worker": ["tf1:2222", "tf2:2222"]})
    assert summary_of(info, {}, workers).mean_staleness == 320 / 400


def store(folder: Path, run_id: str, **fields: int) -> None:
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
