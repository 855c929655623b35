"""The values read from a run, its role, and the display of verdicts."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.formatting import band, mean_of_runs
from lab.reproduce import statistics
from lab.reproduce.claims import NAMES, Source, load
from lab.reproduce.evaluate import ClaimResult, ClaimStatus, Observed
from lab.reproduce.run_metrics import Step, WorkerMetrics, read_metrics
from lab.reproduce.run_specs import (
    MODES,
    points,
    recipe_for,
    role_of_point,
    role_of_run,
    worker_counts,
)
from lab.reproduce.statistics import Interval
from lab.reproduce.view import as_json, counts, grouped, notes, path_of, reasons, verdicts_table
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import RunSpec
from lab.task.protocol.experiments import EXPERIMENTS
from lab.task.protocol.states import State
from tests.unit.reproducing import bare_run


def a_run(store: Path, records: list[object], **fields: Any) -> RunDir:
    run = RunDir(store / "20260101-0900-async-1a2b")
    info = RunInfo(
        run_id=run.run_id,
        spec=RunSpec(experiment="async", start={"worker-0": "after 5 steps"}),
        state=State.SUCCEEDED,
        seed=5,
        cluster={"ps": ["tf1:2222"], "worker": ["tf2:2222"]},
        hyperparameters={"epochs": 2, "global_steps": 0},
    )
    run.create(info)
    run.records("worker-0").parent.mkdir()
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    run.records("worker-0").write_text("".join(line + "\n" for line in lines))
    return run


def test_figures_are_read_from_records(tmp_path: Path) -> None:
    step = {"kind": "step", "epoch": 0, "local_step": 100, "global_step": 290, "loss": 1.5}
    run = a_run(
        tmp_path,
        [
            {"kind": "start"},
            {"kind": "event", "status": "ready", "learning_rate": 0.01, "message": "x on ps"},
            {"kind": "event", "message": "fault: slow:0.3,60s worker-0"},
            {"kind": "event", "message": "fault over: slow:0.3,60s worker-0"},
            {**step, "elapsed_s": 2.0},
            {**step, "kind": "epoch", "local_step": 550, "global_step": 1600, "elapsed_s": 9.0},
            {"kind": "eval", "accuracy": 0.75, "global_step": 1650},
            {"kind": "eval", "accuracy": 0.8, "global_step": 1700, "probe": 1690},
            {"kind": "final", "local_step": 560, "global_step": 1700},
        ],
    )
    found = read_metrics(run)
    assert (found.seed, found.succeeded, found.parameters) == (5, True, {"epochs": 2})
    (worker,) = found.workers
    assert worker.steps == (
        Step(100, 290, 0, False, 1.5, 2.0), Step(550, 1600, 0, True, 1.5, 9.0),
    )  # fmt: skip
    assert (worker.accuracy, worker.tested_at, worker.local_steps) == (0.75, 1650, 560)
    assert (worker.rate, worker.disturbed) == (0.01, ("slow:0.3,60s worker-0",))
    assert (found.accuracy, found.updates_lost, found.global_steps) == (0.8, 10, 1700)


def test_a_record_may_be_all_zeros(tmp_path: Path) -> None:
    zeros = {"kind": "step", "epoch": 0, "local_step": 0, "global_step": 0}
    (worker,) = read_metrics(a_run(tmp_path, [{**zeros, "loss": 0.0, "elapsed_s": 0.0}])).workers
    assert worker.steps == (Step(0, 0, 0, False, 0.0, 0.0),)


@pytest.mark.parametrize(
    "bad",
    [
        "not json", "[1]", '{"kind": "step"}',
        '{"kind": "epoch", "local_step": true, "global_step": 1}',
        '{"kind": "eval", "accuracy": "\\u001b[31m"}',
    ],
)  # fmt: skip
def test_an_invalid_record_is_skipped(tmp_path: Path, bad: str) -> None:
    (worker,) = read_metrics(a_run(tmp_path, [bad])).workers
    assert (worker.steps, worker.accuracy, worker.local_steps) == ((), None, 0)


def test_a_run_has_the_role_of_its_start_and_faults() -> None:
    book, sync, blog = load("book-async"), load("book-sync"), load("blog-async")
    slowed = ("slow:0.3,60s worker-0",)

    def role(
        source: Source,
        experiment: str,
        start: Any = None,
        faults: Any = (),
        workers: int = 3,
        **flags: Any,
    ) -> str | None:
        run = bare_run(
            *[WorkerMetrics(())] * workers, experiment=experiment, start=start or {},
            faults=faults, parameters=flags,
        )  # fmt: skip
        return role_of_run(run, source)

    assert role(book, "async-fast") == role(book, "async", {"worker-2": "after 9 steps"}) == "whole"
    ten = {"worker-2": "10s"}
    assert role(book, "async-fast", ten, epochs=2) == "late"
    assert role(book, "async", {"worker-2": "after 10s"}, epochs=50) == "late-long"
    assert role(book, "async-fast", ten, epochs=70) == "late-long"
    assert role(book, "async-fast", ten, epochs=10) is None
    assert role(book, "async-fast", {"worker-2": "1s"}, epochs=2) is None
    assert role(book, "sync") is role(book, "linear") is role(book, "async", faults=slowed) is None
    assert role(sync, "sync-fast") == "whole"
    assert role(sync, "async", epochs=50) == "async"
    assert role(sync, "async", epochs=5) is None
    assert role(sync, "sync", faults=slowed, epochs=12) == "slowed-sync"
    assert role(sync, "async-fast", faults=slowed, epochs=12) == "slowed-async"
    assert role(sync, "sync", faults=("slow:0.9,60s worker-0",), epochs=12) is None
    assert role(sync, "sync", faults=("no fault",), epochs=12) is None
    assert role(blog, "async-mlp") == "whole"
    assert role(blog, "async") is None
    stale = load("staleness")
    flags = {"learning_rate": 1.0, "batch_size": 100, "global_steps": 300, "pause": 0.03}
    assert role(stale, "staleness", **flags) is None  # of three workers
    assert role(stale, "staleness", workers=1, **flags) == "alone"
    assert role(stale, "staleness", workers=4, **flags) == "several"
    assert (
        role(stale, "staleness", workers=4, **{**flags, "batch_size": 20}) == "several-small-batch"
    )
    assert role(stale, "staleness", workers=1, **{**flags, "pause": 0.01}) is None


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_runs_of_a_source_are_possible(name: str, quick: bool) -> None:
    source = load(name)
    roles = set()
    for recipe in source.recipes.values():
        asked = recipe_for(recipe, quick=quick)
        experiment = EXPERIMENTS[asked.experiment]
        for flag, value in {**asked.flags, "seed": 1}.items():
            experiment.flags[flag].parse(str(value))
        roles.add((MODES[asked.experiment], recipe.role))
    assert len(roles) == len(source.recipes)
    several = [points(source, 3, workers) for workers in worker_counts(source)]
    made = [(role_of_point(point), point.repeat) for share in several for point in share]
    first = next(iter(source.recipes))
    assert made[0] == (first, 0)
    assert {role for role, _ in made} == source.recipes.keys()
    assert sum(role == first for role, _ in made) == 3
    assert len(made) == len(set(made))


def test_few_claims_fit_into_80_columns() -> None:
    verdicts = [
        ClaimResult(
            "a", "global step: w2, epoch 49", 82_499.0, Observed(82_499.5, 81_000, 83_000, 3),
            "steps", Interval(80_849, 84_149), ClaimStatus.OUTSIDE_BAND, "off", "fitted", "book",
            "the printed log", "fitted to it",
        ),
        ClaimResult(
            "b", "asynchronously, the others run ahead [of all]", None,
            Observed(0.12345, 0.1, 0.2, 3), "", Interval(0.1, 0.2), ClaimStatus.NOT_COMPARABLE,
            "off", "independent", "book", "the text", "",
        ),
        ClaimResult(
            "c", "global counts vary", None, Observed(0.94, 0.9, 0.98, 3), "of stretches", None,
            ClaimStatus.INSUFFICIENT_RUNS, "few", "independent", "book", "the text", "",
        ),
    ]  # fmt: skip
    text = io.StringIO()
    Console(file=text, width=80).print(verdicts_table(verdicts))
    shown = text.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert "82,500 ±1,000" in shown
    assert "[of all]" in shown
    assert "of stretches" in shown  # no text after that number
    assert "steps" not in shown  # something does
    assert counts(verdicts) == "1 OUTSIDE_BAND, 1 INSUFFICIENT_RUNS, 1 NOT_COMPARABLE"
    assert reasons(verdicts[:2]) == ["a: OUTSIDE_BAND: off", "b: NOT_COMPARABLE: off"]
    assert reasons([verdicts[0]] * 3) == ["a and 2 more: OUTSIDE_BAND: off"]
    assert notes(verdicts) == ["a: fitted to it"]
    assert notes([verdicts[0]] * 3) == ["a and 2 more: fitted to it"]
    # Each place occurs once.
    assert shown.count("book: the printed log") == shown.count("book: the text") == 1
    groups = {group: [each.claim for each in found] for group, found in grouped(verdicts).items()}
    assert groups == {"independent": ["b", "c"], "fitted": ["a"]}


def a_verdict(words: str, word: ClaimStatus, **changes: Any) -> ClaimResult:
    """A claim of the book's log with ours of 82,499.5 in a band."""
    fields: dict[str, Any] = {
        "claim": "a",
        "words": words,
        "source_value": 82_499.0,
        "ours": Observed(82_499.5, 81_000, 83_000, 3),
        "unit": "steps",
        "band": Interval(80_849, 84_149),
        "verdict": word,
        "why": "off",
        "group": "fitted",
        "source": "book",
        "where": "the printed log",
        "note": "",
    }
    return ClaimResult(**{**fields, **changes})


def test_the_table_of_verdicts() -> None:
    nothing = Observed(None, None, None, 0)
    alone = {"source_value": None, "band": None}
    verdicts = [
        a_verdict("global step: w2, epoch 49", ClaimStatus.OUTSIDE_BAND),
        a_verdict("global step: w0, epoch 9", ClaimStatus.PASS),
        a_verdict(
            "[of all] others run ahead of it", ClaimStatus.INSUFFICIENT_RUNS, **alone,
            ours=Observed(0.94, 0.9, 0.98, 3), unit="of stretches", where="the text",
        ),
        a_verdict("asynchronously, the loss is as before", ClaimStatus.TOO_GOOD, ours=nothing),
        a_verdict("nothing printed", ClaimStatus.NOT_COMPARABLE, source_value=None),
        a_verdict("nothing expected", ClaimStatus.NOT_COMPARABLE, band=None),
    ]  # fmt: skip
    text = io.StringIO()
    Console(file=text, width=80).print(verdicts_table(verdicts))
    assert [line.rstrip() for line in text.getvalue().splitlines()] == [
        "claim                      source       ours, 95%   band of ours  verdict",
        "─" * 79,
        "global step: w2, epoch 49  82,499   82,500 ±1,000  80,849-84,149  OUTSIDE_",
        "book: the printed log                                             BAND",
        "global step: w0, epoch 9   82,499   82,500 ±1,000  80,849-84,149  PASS",
        "[of all] others run ahead          0.9400 ±0.0400                 INSUFFICIENT_",
        "of it                                of stretches                 RUNS",
        "book: the text",
        "asynchronously, the loss   82,499                  80,849-84,149  TOO_",
        "is as before                                                      GOOD",
        "book: the printed log",
        "nothing printed                     82,500 ±1,000  80,849-84,149  NOT_",
        "                                                                  COMPARABLE",
        "nothing expected           82,499   82,500 ±1,000                 NOT_",
        "                                                                  COMPARABLE",
    ]


@pytest.mark.parametrize(
    ("word", "style"),
    [
        (ClaimStatus.PASS, "\x1b[32mPASS"),
        (ClaimStatus.OUTSIDE_BAND, "\x1b[1;31mOUTSIDE_"),
        (ClaimStatus.TOO_GOOD, "\x1b[1;31mTOO_"),
        (ClaimStatus.INSUFFICIENT_RUNS, "\x1b[33mINSUFFICIENT_"),
        (ClaimStatus.NOT_COMPARABLE, "\x1b[2mNOT_"),
    ],
)
def test_a_verdict_has_its_colour_and_a_place_is_dim(word: ClaimStatus, style: str) -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, color_system="standard")
    console.print(verdicts_table([a_verdict("global step", word)]))
    assert style in text.getvalue()
    assert "\x1b[2mbook: the printed log" in text.getvalue()


@pytest.fixture
def far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time is nine hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Etc/GMT-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_greenwich")
def test_a_result_has_a_file_of_its_own_and_the_time_in_utc(tmp_path: Path) -> None:
    source = load("book-async")
    # `time.gmtime` reads a coarser clock, which is some milliseconds late.
    before = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)
    first, made = path_of(tmp_path, source), as_json(source, [], [])["made"]
    after = datetime.now(UTC)
    named = datetime.strptime(f"{first.name}+0000", "reproduce-book-async-%Y%m%d-%H%M%S.json%z")
    assert before <= named <= after
    assert before <= datetime.fromisoformat(made) <= after


def test_two_results_of_one_second_have_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.reproduce.view.time.strftime", lambda *_: "20261122-081000")
    names = []
    for _ in range(3):
        path = path_of(tmp_path, load("book-sync"))
        path.touch()
        names.append(path.name)
    stem = "reproduce-book-sync-20261122-081000"
    assert names == [f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"]


def test_only_a_source_with_a_reference_names_one() -> None:
    named = {name: load(name).reference for name in NAMES}
    assert named == {
        "book-async": "async", "book-sync": "sync", "blog-async": "", "blog-sync": "",
        "staleness": "",
    }  # fmt: skip


def test_a_row_of_a_table_is_a_claim() -> None:
    book = {claim.id: claim for claim in load("book-async").claims}
    found = book["global-step.worker-2.epoch-9"]
    assert (found.words, found.value, found.unit) == (
        "global step: w2, epoch 9",
        37_367,
        "steps",
    )
    assert found.keys == {"worker": 2, "epoch": 9}
    blog = {claim.id: claim for claim in load("blog-async").claims}
    found = blog["global-step.worker-0.step-17400"]
    assert (found.words, found.value) == ("global step: w0, step 17,400", 49_116)
    assert found.keys == {"worker": 0, "local_step": 17_400, "updates": 49_116}


def test_a_mean_has_its_interval_from_three_runs_on() -> None:
    of = (10_900.0, 10_678.1, 11_113.9)
    assert mean_of_runs(*of, 2) == "10,900"
    assert mean_of_runs(*of, 3) == mean_of_runs(*of, None) == "10,900 ±218"
    assert mean_of_runs(0.9, 0.9, 0.9, 3) == mean_of_runs(0.9, None, None, 3) == "0.9000"
    assert mean_of_runs(0.9, 0.8, None, 3) == mean_of_runs(0.9, None, 0.8, 3) == "0.9000"
    assert (band(1.5, 2), band(3, 3)) == ("1.5000-2", "3")


def test_tests_reject_without_an_effect() -> None:
    assert statistics.ttest_p([0.0, 0.0, 0.0]) == 1
    assert statistics.ttest_p([0.1, 0.1, 0.1]) == 0
    assert statistics.ttest_p([0.3, 0.2, 0.25]) < 0.05 < statistics.ttest_p([0.3, -0.2, 0.1])
    assert statistics.brown_forsythe_p([1.0, 1.0], [2.0, 2.0]) == 1
    assert statistics.chi2_p([]) == statistics.chi2_p([[0, 0, 0]]) == 1
    assert statistics.chi2_p([[90, 5, 5]]) < 1e-6
    assert statistics.chi2_p([[33, 30, 37]]) > 0.1
    assert statistics.wilcoxon_p([1.0, 1.0], [1.0, 1.0]) == 1
    assert statistics.wilcoxon_p([2.0] * 10, [1.0] * 10, 1.5) < 0.01
    assert statistics.mean_interval([1.0]) is None
    assert statistics.binomial_p(50, 100) > 0.5
    assert statistics.binomial_p(70, 100) < 0.001
