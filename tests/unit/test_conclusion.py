"""The head of a report: its title, its conclusion, and the warning about unequal lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from syrupy.assertion import SnapshotAssertion

from lab.plots.data import Trace
from lab.report.conclusion import conclude, title, unequal_lengths
from lab.report.loader import ReportRun, with_groups
from lab.store.directory import RunDir
from lab.store.progress import TaskProgress
from lab.store.summarize import summary_of
from lab.store.summary import ResultSummary
from lab.volume.states import State
from tests.support.specs import HOSTILE, run_info

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1", "tf4:1"]}


def run(
    number: int = 1,
    *,
    state: State = State.SUCCEEDED,
    images: float | None = 165_000,
    diverged_at: int | None = None,
    epoch: int | None = 0,
    label: str = "",
    prefix: str = "",
    experiment: str = "async",
    cluster: dict[str, list[str]] | None = None,
    own: bool = False,
    tested: float | None = None,
    **summary: Any,
) -> ReportRun:
    """One run of a report with these facts; others are those of a success."""
    info = run_info(
        f"20260101-0000-{number}",
        experiment,
        state=state,
        seed=number,
        own=own,
        cluster=CLUSTER if cluster is None else cluster,
    )
    known = {"accuracy": 0.919, "global_step": 4950, "wall_s": 12.0, "updates_conserved": True}
    bare = summary_of(info, {}, {task: TaskProgress(task) for task in info.task_names()})
    tasks = [
        replace(task, diverged_at=diverged_at, epoch=epoch, accuracy=tested) for task in bare.tasks
    ]
    found = replace(bare, **{**known, **summary, "tasks": tasks})
    steps = pd.DataFrame({"task": "worker-0", "local_step": 1000.0, "images": [images]})
    steps["images"] = steps["images"].astype(float)
    trace = Trace(label, "", info, steps, pd.DataFrame(), tasks=tasks)
    return ReportRun(RunDir(Path("none")), found, trace, label=label, prefix=prefix)


GOOD = ResultSummary("sum", "local-0", 3.0, 3.0, 3.0, True)
BAD = ResultSummary("ratio", "", None, 1.0, 2.0, False)
NOTHING = {"accuracy": None, "global_step": None, "updates_conserved": None}

ONE: dict[str, dict[str, Any]] = {
    "success": {},
    "degraded": {"updates_conserved": False, "degraded": True},
    "label": {"label": "seat 1", "updates_conserved": None, "wall_s": None},
    "failed": {"state": State.FAILED, "global_step": 312, "wall_s": 7.3},
    "lost": {"state": State.LOST, "global_step": None, "epoch": None},
    "lost at an epoch": {"state": State.LOST, "global_step": None, "epoch": 1},
    "cancelled, diverged": {"state": State.CANCELLED, "diverged_at": 300},
    "trains": {"state": State.TRAINING, "wall_s": None, "global_step": 1200},
    "starts": {"state": State.STARTING, "wall_s": None, "global_step": None, "epoch": None},
    "diverged": {"diverged_at": 1300},
    "no accuracy": {"accuracy": None, "updates_conserved": None},
    "no valid accuracy": {"accuracy": float("nan"), "updates_conserved": None},
    "no step": {
        **NOTHING,
        "experiment": "hello",
        "cluster": {"local": ["tf1:1", "tf2:1"]},
        "epoch": None,
        "results": [GOOD],
    },
    "a bad result": {"updates_conserved": None, "cluster": {}, "results": [GOOD, BAD]},
    "own program": {**NOTHING, "own": True, "epoch": 2},
    "own program that tests": {**NOTHING, "own": True, "epoch": 2, "tested": 0.905},
}


def test_the_conclusion_about_one_run(snapshot: SnapshotAssertion) -> None:
    found = {name: str(conclude([run(**facts)])) for name, facts in ONE.items()}
    assert found == snapshot
    assert "reached" not in "".join(found[name] for name in ("failed", "trains", "diverged"))


def text(*runs: ReportRun) -> str:
    return str(conclude(with_groups(runs)))


def test_only_runs_that_succeeded_are_in_a_mean(snapshot: SnapshotAssertion) -> None:
    failed = run(2, accuracy=0.1, state=State.FAILED)
    diverged = run(3, accuracy=0.1, diverged_at=5)
    assert text(run(1), failed, diverged) == (
        "async reached an accuracy of 91.9%. 2 of the 3 runs are not included: no valid final"
        " accuracy."
    )
    assert {
        "an interval": text(run(1, accuracy=0.91), run(2, accuracy=0.92), run(3, accuracy=0.93)),
        "none": text(failed, diverged, run(4, accuracy=None)),
    } == snapshot


def test_images_after_the_last_step_record_count() -> None:
    short = run(2, images=150_000)
    tasks = [replace(each, local_step=1100) for each in short.summary.tasks]
    more = replace(short, summary=replace(short.summary, tasks=tasks))
    assert "equally many images" not in unequal_lengths([run(global_step=9000), short])
    assert "equally many images: 165,000" in unequal_lengths([run(global_step=9000), more])


def test_of_single_runs_none_is_better_and_no_difference_is_significant(
    snapshot: SnapshotAssertion,
) -> None:
    sync = run(2, experiment="sync", accuracy=0.921, wall_s=25.2)
    longer = run(2, experiment="sync", images=330_000, wall_s=12.1)
    unknown = run(2, experiment="sync", images=None, wall_s=None)
    groups = [run(n, experiment=name) for n, name in enumerate(["async", "sync"] * 2)]
    one, two = (
        replace(each, trace=replace(each.trace, group=f"async, epochs {number}"))
        for number, each in enumerate([run(1), run(2)], 1)
    )
    many = [run(n, experiment=f"e{n}", accuracy=0.9 + n / 100, wall_s=10.0 + n) for n in range(5)]
    found = {
        "single": text(run(1, accuracy=0.915), sync),
        "longer": text(run(1), longer),
        "unknown": text(run(1), unknown),
        "repeated": text(*groups),
        "some repeated": text(*groups[:3]),
        "names with commas": str(conclude([one, two])),
        "many": text(*many),
    }
    assert found == snapshot
    for name, sentences in found.items():
        is_modest = "does not show that one is better" in sentences
        assert is_modest or (name == "repeated" and "No test of the differences" in sentences)


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


def test_unequal_lengths_are_named_with_what_is_comparable() -> None:
    assert unequal_lengths([run(1)]) == ""
    assert unequal_lengths([run(1), run(2, global_step=4953, images=165_200)]) == ""
    assert unequal_lengths([run(1), run(2, global_step=None, images=None, epoch=None)]) == ""
    warning = unequal_lengths([run(1, epoch=2), run(2, global_step=1650, images=55_000)])
    assert warning.startswith(
        "The runs have different lengths (global steps: 1,650 to 4,950; epochs: 1 to 3; images"
        " seen: 55,000 to 165,000). Do not compare their final accuracy"
    )
    warning = unequal_lengths([run(1), run(2, experiment="sync", global_step=1650)])
    assert "different lengths (global steps: 1,650 to 4,950). They saw equally many" in warning
    assert "Compare their final accuracy" in warning


def test_texts_of_a_run_are_short_and_without_control_characters() -> None:
    hostile = HOSTILE * 20
    runs = [run(1, label=hostile), run(2, experiment=hostile)]
    for found in (title(runs), title(runs[:1]), text(*runs), str(conclude(runs[:1]))):
        assert found.isprintable()
        assert len(found) < 500
