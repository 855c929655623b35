"""The head of a report: its title, its conclusion, and the warning about unequal lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab.plots.data import Trace
from lab.report.conclusion import conclude, title, unequal_lengths
from lab.report.loader import ReportRun, grouped
from lab.run.progress import TaskProgress
from lab.run.store import RunDir
from lab.run.summarize import summary_of
from lab.run.summary import ResultSummary
from lab.task.protocol.states import State
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
    **summary: Any,
) -> ReportRun:
    """One run of a report with these facts; others are those of a success."""
    info = run_info(
        f"20260101-0000-{number}",
        experiment,
        state=state,
        seed=number,
        cluster=CLUSTER if cluster is None else cluster,
    )
    known = {"accuracy": 0.919, "global_step": 4950, "wall_s": 12.0, "updates_conserved": True}
    bare = summary_of(info, {}, {task: TaskProgress(task) for task in info.task_names()})
    tasks = [replace(task, diverged_at=diverged_at, epoch=epoch) for task in bare.tasks]
    found = replace(bare, **{**known, **summary, "tasks": tasks})
    steps = pd.DataFrame({"images": [images]}, dtype=float)
    trace = Trace(label, "", info, steps, pd.DataFrame())
    return ReportRun(RunDir(Path("none")), found, trace, label=label, prefix=prefix)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            {},
            "async with 3 workers reached an accuracy of 91.9% at step 4,950 after 12.0 s; every"
            " update was counted.",
        ),
        (
            {"updates_conserved": False, "degraded": True},
            "async with 3 workers reached an accuracy of 91.9% at step 4,950 after 12.0 s; not"
            " every update was counted; some of its tasks did not succeed.",
        ),
        (
            {"label": "seat 1", "updates_conserved": None, "wall_s": None},
            "seat 1: async with 3 workers reached an accuracy of 91.9% at step 4,950.",
        ),
        (
            {"state": State.FAILED, "global_step": 312, "wall_s": 7.3},
            "async with 3 workers failed at step 312 after 7.3 s.",
        ),
        (
            {"state": State.LOST, "global_step": None, "epoch": None},
            "async with 3 workers was lost after 12.0 s.",
        ),
        (
            {"state": State.LOST, "global_step": None, "epoch": 1},
            "async with 3 workers was lost at epoch 2 after 12.0 s.",
        ),
        (
            {"state": State.CANCELLED, "diverged_at": 300},
            "async with 3 workers was cancelled at step 4,950 after 12.0 s; from step 300 on, a"
            " loss is not finite.",
        ),
        (
            {"state": State.TRAINING, "wall_s": None, "global_step": 1200},
            "async with 3 workers has not ended: it is training at step 1,200.",
        ),
        (
            {"state": State.STARTING, "wall_s": None, "global_step": None, "epoch": None},
            "async with 3 workers has not ended: it is starting.",
        ),
        (
            {"diverged_at": 1300},
            "async with 3 workers diverged: from step 1,300 on, a loss is not finite.",
        ),
        (
            {"accuracy": None, "updates_conserved": None},
            "async with 3 workers succeeded at step 4,950 after 12.0 s, and recorded no"
            " accuracy of the final parameters.",
        ),
        (
            {"accuracy": float("nan"), "updates_conserved": None},
            "async with 3 workers succeeded at step 4,950 after 12.0 s, and recorded no"
            " accuracy of the final parameters.",
        ),
        (
            {
                "experiment": "hello",
                "cluster": {"local": ["tf1:1", "tf2:1"]},
                "accuracy": None,
                "global_step": None,
                "epoch": None,
                "updates_conserved": None,
                "results": [ResultSummary("sum", "local-0", 3.0, 3.0, 3.0, True)],
            },
            "hello with 2 tasks succeeded after 12.0 s, and recorded no step; all results are as"
            " expected.",
        ),
        (
            {
                "updates_conserved": None,
                "cluster": {},
                "results": [
                    ResultSummary("sum", "", 3.0, 3.0, 3.0, True),
                    ResultSummary("ratio", "", None, 1.0, 2.0, False),
                ],
            },
            "async reached an accuracy of 91.9% at step 4,950 after 12.0 s; 1 of 2 results not as"
            " expected.",
        ),
    ],
)
def test_the_conclusion_about_one_run(facts: dict[str, Any], expected: str) -> None:
    assert str(conclude([run(**facts)])) == expected


def text(*runs: ReportRun) -> str:
    return str(conclude(grouped(runs)))


def test_repeats_have_a_mean_with_its_interval() -> None:
    assert text(run(1, accuracy=0.91), run(2, accuracy=0.92), run(3, accuracy=0.93)) == (
        "async reached an accuracy of 92.0% ± 2.5 percentage points (mean of 3 runs, 95% interval)."
    )


def test_only_runs_that_succeeded_are_in_a_mean() -> None:
    failed = run(2, accuracy=0.1, state=State.FAILED)
    diverged = run(3, accuracy=0.1, diverged_at=5)
    assert text(run(1), failed, diverged) == (
        "async reached an accuracy of 91.9%. 2 of the 3 runs are not included: no valid final"
        " accuracy."
    )
    assert text(failed, diverged, run(4, accuracy=None)) == (
        "None of the 3 runs of async ended with a valid accuracy."
    )


def test_of_single_runs_none_is_better() -> None:
    sync = run(2, experiment="sync", accuracy=0.921, wall_s=25.2)
    assert text(run(1, accuracy=0.915), sync) == (
        "sync reached an accuracy of 92.1%, async 91.5%; sync took 2.1 times as long. Each group"
        " has one run, so this does not show that one is better."
    )
    longer = run(2, experiment="sync", images=330_000, wall_s=12.1)
    assert text(run(1), longer) == (
        "async reached an accuracy of 91.9%, sync 91.9%; their wall times are about equal. The runs"
        " saw different numbers of images. Each group has one run, so this does not show that one"
        " is better."
    )
    unknown = run(2, experiment="sync", images=None, wall_s=None)
    assert "; " not in text(run(1), unknown)
    assert "The number of images that each run saw is not known." in text(run(1), unknown)


def test_no_difference_is_called_significant() -> None:
    groups = [run(n, experiment=name) for n, name in enumerate(["async", "sync"] * 2)]
    assert text(*groups) == (
        "async reached an accuracy of 91.9% ± 0.0 percentage points, sync 91.9% ± 0.0 percentage"
        " points (means of 2 runs each, 95% intervals); their wall times are about equal. No test"
        " of the differences was made."
    )
    assert text(*groups[:3]).startswith(
        "async reached an accuracy of 91.9% ± 0.0 percentage points (2 runs), sync 91.9% (1 run)"
        " (means, 95% intervals); their"
    )
    assert text(*groups).endswith("equal. No test of the differences was made.")
    assert text(*groups[:3]).endswith(
        "Some groups have one run, so this does not show that one is better."
    )


def test_names_with_commas_are_quoted() -> None:
    one, two = (
        replace(each, trace=replace(each.trace, group=f"async, epochs {number}"))
        for number, each in enumerate([run(1), run(2)], 1)
    )
    assert str(conclude([one, two])).startswith(
        "'async, epochs 1' reached an accuracy of 91.9%, 'async, epochs 2' 91.9%; "
    )


def test_many_groups_are_a_range() -> None:
    many = [run(n, experiment=f"e{n}", accuracy=0.9 + n / 100, wall_s=10.0 + n) for n in range(5)]
    assert text(*many).startswith(
        "the accuracies of 5 groups are from 90.0% (e0) to 94.0% (e4); their wall times are from"
        " 10.0 s to 14.0 s. "
    )


def test_the_title_names_the_runs() -> None:
    assert title([run(1)]) == "async: run 20260101-0000-1"
    assert title([run(1, label="seat 1")]) == "async: seat 1"
    assert title([run(1), run(2, experiment="sync")]) == (
        "async, sync: 2 runs (20260101-0000-1, 20260101-0000-2)"
    )
    assert title([run(n) for n in range(3)]) == "async: 3 runs"
    seats = [run(n, label=f"seat {n // 2}, run {n}", prefix=f"seat {n // 2}") for n in range(12)]
    assert title(seats[:4]) == "async: 4 runs (seat 0, seat 1)"
    assert title(seats) == "async: 12 runs (seat 0, seat 1, seat 2, seat 3 and 2 more)"


def test_runs_of_equal_length_have_no_warning() -> None:
    assert unequal_lengths([run(1)]) == ""
    assert unequal_lengths([run(1), run(2, global_step=4953, images=165_200)]) == ""
    assert unequal_lengths([run(1), run(2, global_step=None, images=None, epoch=None)]) == ""


def test_unequal_lengths_are_named_with_what_is_comparable() -> None:
    shorter = run(2, global_step=1650, images=55_000)
    warning = unequal_lengths([run(1, epoch=2), shorter])
    assert warning.startswith(
        "The runs have different lengths (global steps: 1,650 to 4,950; epochs: 1 to 3; images"
        " seen: 55,000 to 165,000). Do not compare their final accuracy"
    )
    assert "Compare the curves of the loss at equal positions" in warning
    synchronous = run(2, experiment="sync", global_step=1650)
    warning = unequal_lengths([run(1), synchronous])
    assert "different lengths (global steps: 1,650 to 4,950). They saw equally many" in warning
    assert "Compare their final accuracy" in warning


def test_texts_of_a_run_are_short_and_without_control_characters() -> None:
    hostile = HOSTILE * 20
    runs = [run(1, label=hostile), run(2, experiment=hostile)]
    for found in (title(runs), title(runs[:1]), text(*runs), str(conclude(runs[:1]))):
        assert found.isprintable()
        assert len(found) < 500


def test_of_an_own_program_the_last_accuracy_is_known() -> None:
    about = run(accuracy=None, global_step=None, updates_conserved=None, epoch=2)
    info = replace(about.info, spec=replace(about.info.spec, own=True))
    tested = [replace(task, accuracy=0.905) for task in about.summary.tasks]
    own = replace(about, trace=replace(about.trace, info=info))
    text = "async with 3 workers succeeded at epoch 3 after 12.0 s"
    assert str(conclude([own])) == f"{text}."
    own = replace(own, summary=replace(about.summary, tasks=tested))
    assert str(conclude([own])) == f"{text}; the last accuracy is 90.5%."
