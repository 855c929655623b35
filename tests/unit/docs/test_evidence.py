"""Figures in the pages of evidence: each follows from a file beside the page."""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from lab.base.tables import show
from lab.runner.result_table import result_table
from lab.runner.store.summary import Summary
from lab.study.batches import Point, RunResult
from lab.study.reproduce.claims import load
from lab.study.reproduce.measures import trainings
from lab.verbs.results import Runs
from lab.verbs.sweep import Sweep
from tests.support import shown
from tests.support.lessons import measured
from tests.support.lessons import task as ended
from tests.support.shown import assert_shows

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs/evidence"
BLOG = (FOLDER / "blog.md").read_text()
CHAPTER = (FOLDER / "chapter.md").read_text()
FULL_RUNS = {
    "blog/async": BLOG,
    "blog/sync": BLOG,
    "chapter/async": CHAPTER,
    "chapter/sync": CHAPTER,
}
QUICK_RUNS = [
    *(f"chapter/async-fast-{seed}" for seed in range(1, 6)),
    *(f"chapter/sync-fast-{seed}" for seed in range(1, 4)),
]


def summary(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{name}.json").read_text())["summary"])


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_evidence_is_linked_from_a_claim(page: Path) -> None:
    others = [each for each in ROOT.glob("docs/**/*.md") if not each.is_relative_to(FOLDER)]
    texts = [each.read_text() for each in (*others, *ROOT.glob("*.md"))]
    assert any(f"evidence/{page.name}" in text for text in texts)


@pytest.mark.parametrize("name", FULL_RUNS)
def test_the_table_of_a_run_agrees_with_its_records(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = summary(name)
    without: dict[str, Any] = dict.fromkeys(Summary.__slots__) | {
        "results": [],
        "left": [],
        "faults": [],
    }
    tasks = [ended(each["task"], **each) for each in kept["tasks"]]
    show(result_table(Summary(**without | kept | {"tasks": tasks})))
    page = f"docs/evidence/{name.partition('/')[0]}.md"
    shown.assert_shows(page, f"run {kept['run_id']}", capsys.readouterr().out)
    assert f"run {kept['run_id']}: " in FULL_RUNS[name]
    assert kept["state"] == "succeeded"
    workers = [task for task in kept["tasks"] if task["job_name"] == "worker"]
    for task in workers:
        last = [row for row in rows(name) if row["task"] == task["task"]][-1]
        assert float(last["loss"]) == pytest.approx(task["loss"], rel=1e-5)
        assert 0 <= task["local_step"] - int(last["local_step"]) < 100
        steps = f"{task['local_step']:,} +{task['global_step']:,}"
        row = rf"^{task['task']} .* {steps} +{task['loss']:.4f} +{task['accuracy']:.4f} "
        assert re.search(row, FULL_RUNS[name], re.MULTILINE)
    made = sum(task["local_step"] for task in workers)
    assert made == kept["global_step"] * (1 if "async" in name else len(workers))
    assert kept["updates_conserved"] is True


def test_the_mean_losses_are_beside_the_posts() -> None:
    """The post's mean is read from the claims; ours is computed here again."""
    claims = [each for each in load("blog-async").claims if each.measure == "losses_near"]
    assert len(claims) == 2
    for claim in claims:
        steps = claim.keys["steps"]
        kept = [(int(row["global_step"]), float(row["loss"])) for row in rows("blog/async")]
        near = [min(kept, key=lambda row: abs(row[0] - step))[1] for step in steps]
        ours = math.exp(statistics.fmean(map(math.log, near)))
        where = f"{min(steps):,} to {max(steps):,}"
        assert f"| {where} | {len(steps)} | {claim.value:.4f} | {ours:.4f} |" in BLOG


@pytest.fixture(scope="module")
def bands() -> dict[str, tuple[float, float]]:
    """Mean ± t s √(1 + 1/n), with SciPy's quantile of Student's t."""
    found = {}
    for way in ("async", "sync"):
        sample = trainings(way)[0]["accuracy"]
        wide = float(stats.t.ppf(0.9995, len(sample) - 1)) * math.sqrt(1 + 1 / len(sample))
        half = wide * statistics.stdev(sample)
        found[way] = (statistics.mean(sample) - half, statistics.mean(sample) + half)
    return found


@pytest.mark.parametrize(
    ("page", "mode"),
    [
        ("docs/evidence/chapter.md", "async"),
        ("docs/evidence/chapter.md", "sync"),
        ("docs/tutorials/lessons/async.md", "async"),
        ("docs/tutorials/lessons/speed.md", "async"),
        ("docs/zh/tutorials/lessons/speed.md", "async"),
        ("docs/tutorials/lessons/sync.md", "sync"),
        ("notebooks/06_reproduce.py", "sync"),
    ],
)
def test_a_page_quotes_the_band(
    bands: dict[str, tuple[float, float]], page: str, mode: str
) -> None:
    text = (ROOT / page).read_text()
    assert all(f"{limit:.4f}" in text for limit in bands[mode])


@pytest.mark.parametrize("name", ["chapter/async", "chapter/sync", *QUICK_RUNS])
def test_every_accuracy_of_the_chapter_is_in_its_band(
    bands: dict[str, tuple[float, float]], name: str
) -> None:
    kept = summary(name)
    low, high = bands["async" if "async" in name else "sync"]
    accuracies = [task["accuracy"] for task in kept["tasks"] if task["job_name"] == "worker"]
    assert len(accuracies) == 3
    assert all(low <= accuracy <= high for accuracy in accuracies)
    assert kept["updates_conserved"] is True
    assert kept["records_lost"] == 0


@pytest.mark.parametrize("name", QUICK_RUNS)
def test_a_quick_run_has_its_row(name: str) -> None:
    kept = summary(name)
    seed = name.rpartition("-")[2]
    assert f"--seed={seed}" in json.loads((FOLDER / f"{name}.json").read_text())["argv"]
    figures = f"{kept['accuracy']:.4f} | {kept['global_step']:,} | yes |"
    assert f"| {kept['experiment']} | {seed} | {figures}" in CHAPTER


def test_the_lesson_shows_the_ends_of_the_runs_with_a_killed_task() -> None:
    lesson = (ROOT / "docs/tutorials/lessons/in-graph.md").read_text()
    for name in ("killed-client", "killed-worker"):
        kept = summary(f"in-graph/{name}")
        row = rf"^\| `{kept['experiment']}`, .* \| {kept['state']} \| {kept['global_step']:,} \|$"
        assert re.search(row, lesson, re.MULTILINE)


def test_the_page_on_staleness_shows_the_tables_of_its_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Kept(RunResult):
        def metrics(self) -> dict[str, float]:
            return {name: float(text) for name, text in metrics[id(self.point)].items() if text}

    parameters = ("workers", "learning_rate", "batch_size")
    summary, results = measured().summary, list[RunResult]()
    metrics: dict[int, dict[str, str]] = {}
    for row in rows("staleness"):
        assert row.pop("run_id")
        assert row.pop("state") == summary.state
        point = Point({name: row.pop(name) for name in parameters}, int(row.pop("repeat")))
        metrics[id(point)] = row
        results.append(Kept(point, summary))
    made = Sweep("workers", results, Runs([]), len(results))
    made.show()
    printed = capsys.readouterr().out
    print(printed)
    assert_shows("docs/evidence/staleness.md", "workers  learning_rate", printed)


def test_the_rule_of_the_share_is_beside_the_measured_staleness() -> None:
    """Both sides are measured; the page's rows and its bounds follow from them."""
    page = (FOLDER / "staleness.md").read_text()
    apart: dict[tuple[str, int], list[float]] = {}
    for row in rows("read-to-count"):
        name = {"mnist_async.py": "async", "staleness.py": "staleness"}[row["program"]]
        workers, share, staleness = (
            int(row["workers"]),
            float(row["share"]),
            float(row["staleness"]),
        )
        rule = (workers - 1) * share
        apart.setdefault((name, workers), []).append(100 * (rule / staleness - 1))
        cells = f"{float(row['step_ms']):.1f} ms | {share:.3f} | {rule:.3f} | {staleness:.3f}"
        line = f"| {name} | {workers} | {row['seed']} | {int(row['steps']):,} | {cells}"
        assert f"{line} | {apart[name, workers][-1]:+.1f}% |" in page
        assert 0 <= float(row["by_clock"]) / staleness - 1 < 0.0225
    assert (
        max(abs(each) for (name, _), pair in apart.items() for each in pair if name == "async")
        < 2.55
    )
    spans = [
        f"{min(apart['staleness', n]):.0f} to {max(apart['staleness', n]):.0f}" for n in (2, 4, 8)
    ]
    assert spans == ["33 to 43", "14 to 15", "0 to 7"]
    assert f"It is {spans[0]}% too high for two workers, {spans[1]}% for four" in page


def test_the_decision_on_request_numbers_counts_the_kept_runs() -> None:
    """The sentences say what `listings.csv` has, and each training that succeeded is whole."""
    page = (ROOT / "docs/explanation/decisions/programs.md").read_text()
    text = " ".join(page.split())
    kept = rows("listings")
    assert [int(row["run"]) for row in kept] == [*range(1, len(kept) + 1)]
    interrupted = [row for row in kept if row["state"] == "interrupted"]
    ended = [row for row in kept if row not in interrupted]
    with_theirs = [row for row in ended if row["request_numbers"] == "tensorflow"]
    with_ours = [row for row in ended if row["request_numbers"] == "lab"]
    whole = [row for row in ended if row["state"] == "succeeded"]
    reasons = [row["reason"] for row in ended if row["state"] == "failed"]
    refused = [sum(int(row["refused"]) for row in of) for of in (with_theirs, with_ours)]
    assert f"the {len(kept)} whole runs that we started" in text
    assert len(interrupted) == 1
    assert "One was interrupted." in text
    assert len(ended) == len(with_theirs) + len(with_ours)
    for words, of in (("TensorFlow's own numbers", with_theirs), ("that don't repeat", with_ours)):
        count = sum(row in whole for row in of)
        assert f"{words}, {count} of {len(of)} succeeded" in text
    assert refused == [6, 0]
    assert "in these, six steps were refused" in text
    assert "20 of 20 succeeded, and no step was refused" in text
    assert sum("no new global step for 300 s" in reason for reason in reasons) == 3
    assert "Three hung" in text
    assert sum("SIGXCPU" in reason or "SIGABRT" in reason for reason in reasons) == 2
    assert len(reasons) == 5
    assert {row["counted"] for row in whole} == {row["steps"] for row in whole} == {"82500"}
    assert "with 82,500 steps" in text
    short = max(int(row["steps"]) - int(row["global_step"]) for row in whole)
    assert f"it was up to {short} short" in text
