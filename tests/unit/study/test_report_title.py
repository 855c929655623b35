"""The head of a report: its title, and the warning about unequal lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from syrupy.assertion import SnapshotAssertion

from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.summarize import summary_of
from lab.runner.store.task_progress import TaskProgress
from lab.study.plots.data import Trace
from lab.study.report.loader import ReportRun
from lab.study.report.page import has_equal_lengths, title
from tests.support.specs import HOSTILE, run_info

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1", "tf4:1"]}


def run(
    number: int = 1,
    *,
    images: float | None = 165_000,
    label: str = "",
    prefix: str = "",
    experiment: str = "async",
    **summary: Any,
) -> ReportRun:
    info = run_info(
        f"20260101-0000-{number}", experiment, state=State.SUCCEEDED, seed=number, cluster=CLUSTER
    )
    known = {"accuracy": 0.919, "global_step": 4950, "wall_s": 12.0, "updates_conserved": True}
    bare = summary_of(info, {}, {task: TaskProgress(task) for task in info.task_names()})
    found = replace(bare, **{**known, **summary})
    measures = {"local_step": 1000.0, "seen": images, "loss": 1.0}
    data = pd.DataFrame(
        {"task": "worker-0", "measure": measures.keys(), "value": measures.values()}
    )
    trace = Trace(label, "", info, data, tasks=found.tasks)
    return ReportRun(RunDir(Path("none")), found, trace, label=label, prefix=prefix)


def test_the_title_names_the_runs(snapshot: SnapshotAssertion) -> None:
    seats = [run(n, label=f"seat {n // 2}, run {n}", prefix=f"seat {n // 2}") for n in range(12)]
    assert [
        title([run(1)]),
        title([run(1, label="seat 1")]),
        title([run(1), run(2, experiment="sync")]),
        title([run(n) for n in range(3)]),
        title(seats[:4]),
        title(seats),
    ] == snapshot


def test_runs_of_equal_length_saw_as_many_images_or_made_as_many_steps() -> None:
    more = {"global_step": 1650, "images": 165_000}
    assert has_equal_lengths([run(1)])
    assert has_equal_lengths([run(1), run(2, global_step=4953, images=165_200)])
    assert has_equal_lengths([run(1), run(2, experiment="sync", **more)])
    assert has_equal_lengths([run(1), run(2, global_step=None, images=None)])
    assert not has_equal_lengths([run(1), run(2, global_step=1650, images=55_000)])
    assert not has_equal_lengths([run(1), run(2, global_step=1650, images=None)])


def test_images_after_the_last_step_record_count() -> None:
    short = run(2, images=150_000)
    tasks = [replace(each, local_step=1100) for each in short.summary.tasks]
    more = replace(short, summary=replace(short.summary, tasks=tasks))
    assert not has_equal_lengths([run(1), short])
    assert has_equal_lengths([run(1), more])


def test_names_in_the_title_are_short_and_without_control_characters() -> None:
    hostile = HOSTILE * 20
    runs = [run(1, label=hostile), run(2, experiment=hostile)]
    for text in (title(runs), title(runs[:1])):
        assert text.isprintable()
        assert len(text) < 500
