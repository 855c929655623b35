"""The notebooks' sample runs: complete, small, without machine names, and true to their text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pandas as pd
import pytest

import lab
from lab.cli import main
from lab.runner.store.summarize import summarize
from lab.study.reproduce.claims import load
from tests.support.shown import assert_shows
from tools.samples import INDEX, RECIPES, SAMPLES

MADE = json.loads(INDEX.read_text("utf-8"))
NAMES = [name for recipe in RECIPES for name in recipe.names]
MOST_BYTES = 3_000_000


def sample(name: str) -> lab.Run:
    return lab.find(MADE[name]["run"], runs_dir=SAMPLES)


def test_the_index_is_complete_and_its_runs_are_small() -> None:
    commands = {name: f"lab {each.command}" for each in RECIPES for name in each.names}
    assert {name: each["command"] for name, each in MADE.items()} == commands
    there = {path.name for path in SAMPLES.iterdir() if path.is_dir()}
    assert there == {each["run"] for each in MADE.values()}
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_a_whole_run_without_a_path_of_a_machine(name: str) -> None:
    run = sample(name)
    files = {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}
    names = run.info.task_names()
    of_tasks = {f"tasks/{task}.jsonl" for task in names} | {f"status/{task}.json" for task in names}
    assert files == {"run.json", "summary.json", *of_tasks}
    for file in files:  # TensorFlow's names of devices, `/job:ps/task:0`, are no paths
        text = re.sub(
            r"/(job|replica|task|device):[\w:]+", "", (run.path / file).read_text("utf-8")
        )
        assert re.findall(r'(?<![\w.])/(?:\w[\w.-]*/)+\w+|(?<=")/', text) == []
    # `lab show` and `lab report` read the files, a notebook the summary.
    found = summarize(run.directory)
    assert found == run.summary
    assert (found.state, found.records_lost) == ("succeeded", 0)
    assert {task.state for task in found.tasks} == {"succeeded"}
    assert all(task.time_s for task in found.tasks)
    assert found.as_expected
    assert run.records().attrs["damaged"] == ()
    assert (run.info.git or {}).get("dirty") is False
    assert found.global_step == run.records()["global_step"].max()


def test_the_chapter_is_the_books_within_two_and_a_half_percent() -> None:
    run = sample("chapter")
    assert run.summary.global_step == 82_500
    assert run.summary.updates_conserved
    ends = run.records().query("kind == 'epoch'").set_index(["epoch", "task"])["global_step"]
    for claim in load("book-async").claims:
        if claim.id.startswith("global-step."):
            worker, epoch = claim.keys["worker"], claim.keys["local_step"] // 550 - 1
            assert ends[epoch, f"worker-{worker}"] == pytest.approx(claim.value, rel=0.025)


def parted(run: lab.Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The steps before the fault, and those after it as long as all train."""
    steps, records = run.steps(), run.records()
    faults = records[records["message"].str.startswith("fault: ", na=False)]
    began = faults["time_unix"].min()
    first_end = steps.groupby("task", observed=True)["time_unix"].max().min()
    return steps[steps["time_unix"] < began], steps[steps["time_unix"].between(began, first_end)]


def left_of_the_pace(name: str) -> float:
    """Updates per second after the fault as a share of those before."""

    def pace(part: pd.DataFrame) -> float:
        counted, times = part["global_step"], part["time_unix"]
        return float((counted.max() - counted.min()) / (times.max() - times.min()))

    before, after = parted(sample(name))
    return pace(after) / pace(before)


def own_steps(steps: pd.DataFrame) -> pd.Series:
    spans = steps.groupby("task", observed=True)["local_step"].agg(["min", "max"])
    return spans["max"] - spans["min"]


def share_of_the_slow(run: lab.Run) -> float:
    """The steps of the slow worker after the fault, as a share of those of the slower other."""
    own = own_steps(parted(run)[1])
    return float(own["worker-2"] / min(own["worker-0"], own["worker-1"]))


def staleness_of_the_slow(run: lab.Run, measure: str) -> float:
    """The staleness of the slow worker after the fault, as a multiple of the others'."""
    found = parted(run)[1].groupby("task", observed=True)["staleness"].agg(measure)
    return float(found["worker-2"] / max(found["worker-0"], found["worker-1"]))


def pace(name: str) -> float:
    return float(sample(name).summary.steps_per_s or 0)


def loss(name: str) -> float:
    results = {each.name: each.value for each in sample(name).summary.results}
    return float(results["test loss"] or 0)


PARAMETERS = 4 * (784 * 500 + 500 + 500 * 10 + 10)
MOST = 12.5e6 / PARAMETERS


@pytest.mark.parametrize(
    ("measured", "low", "high"),
    [
        (lambda: sample("async").summary.mean_staleness, 0.5, 2),
        # A straggler costs sync most, a backup worker little, and async its own steps alone:
        # on cores that all share the others even gain by it.
        (lambda: left_of_the_pace("sync-straggler"), 0.2, 0.45),
        (lambda: left_of_the_pace("sync-backup"), 0.7, 1.1),
        (lambda: left_of_the_pace("async-straggler"), 0.7, 1.1),
        (lambda: share_of_the_slow(sample("async-straggler")), 0, 0.4),
        # With a backup worker three gradients are computed for an update of two.
        (lambda: share_of_the_slow(sample("sync-backup")), 0, 0.5),
        (lambda: sample("sync-backup").steps().groupby("task", observed=True)["local_step"].max()
         .sum() / (3 * 1650), 0.99, 1.01),
        # The slow worker's gradients are the stale ones.
        (lambda: staleness_of_the_slow(sample("async-straggler"), "mean"), 1, 100),
        (lambda: staleness_of_the_slow(sample("async-straggler"), "max"), 3, 100),
        # A moving average needs three more calls.
        (lambda: pace("links-1-worker") / pace("links-average"), 2.25, 2.75),
        (lambda: loss("staleness-8") / loss("staleness-1"), 1.2, 9),
        # A second server does not help where one holds the matrix.
        (lambda: pace("links-2-servers") / pace("links-4-workers"), 0.85, 1.15),
        # Links are the limit, and the ring is the quicker: 400 images a step, not 100.
        (lambda: pace("links-1-worker") / MOST, 0.4, 0.6),
        (lambda: pace("links-4-workers") / MOST, 0.8, 1.2),
        (lambda: pace("links-ring") / MOST * 4, 1.5, 9),
    ],
    ids=["staleness", "sync", "backup", "async", "slow async", "slow backup", "backup's steps",
         "mean", "most", "average", "loss", "servers", "one worker", "four workers", "ring"],
)  # fmt: skip
def test_a_sample_shows_what_its_notebook_says(
    measured: Callable[[], float], low: float, high: float
) -> None:
    assert low < measured() <= high


def test_async_keeps_each_update_and_sync_makes_one_of_three() -> None:
    found, sync = sample("async").summary, sample("sync").summary
    assert (found.global_step, found.updates_conserved) == (3 * 3 * 550, True)
    assert sync.global_step == 3 * 550
    assert len({task.accuracy for task in sync.tasks if task.job_name == "worker"}) == 1


def test_the_page_on_the_first_run_shows_such_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    run = json.loads(INDEX.read_text())["async"]["run"]
    assert main(["show", run, "--runs-dir", str(SAMPLES)]) == 0
    assert_shows("docs/start/first-run.md", "run ", capsys.readouterr().out, figures=False)
