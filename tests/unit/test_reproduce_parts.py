"""The claim files, the choice of runs, the values read from files, and the display of results."""

from __future__ import annotations

import io
import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import truncnorm

from lab.formatting import band
from lab.reproduce.claims import COUNTED, LOG, NAMES, Source, load
from lab.reproduce.metrics import RunMetrics, WorkerMetrics, read_metrics
from lab.reproduce.recipes import choose_runs, points, recipe_for, role_of_point, worker_counts
from lab.reproduce.reference import trainings
from lab.reproduce.statistics import SOURCE_LEVEL, Interval
from lab.reproduce.verdicts import Result, Verdict
from lab.reproduce.view import as_json, path_of, results_table, summary
from lab.strict_json import dump
from lab.task.protocol.experiments import EXPERIMENTS
from tests.support.reproducing import run_of, worker, write_run

BOOK, POST = load("book-async"), load("blog-async")

PRINTED_LOSSES = (
    *(1.2575616836547852, 0.7158586382865906, 0.43712112307548523),
    *(0.3935799300670624, 0.3877961337566376, 0.6955764889717102),
    *(0.5891970992088318, 0.4183048903942108, 0.32243454456329346),
    *(0.5384714007377625, 0.8077645301818848, 0.26333487033843994),
    *(0.6506651043891907, 0.20321622490882874, 0.4170967936515808),
)  # fmt: skip
"""The losses that the book prints, worker by worker."""

POST_LOSSES = {
    "loss-early": {2882: 0.320553, 3182: 0.399293, 3459: 0.502328, 2052: 0.388676, 2252: 0.385591,
                   2472: 0.495955},
    "loss-late": {49116: 0.256622, 49416: 0.194089, 49761: 0.203695, 49163: 0.250214,
                  49463: 0.263818, 49747: 0.242237, 49619: 0.23656, 49935: 0.21213},
}  # fmt: skip
"""The losses that the post prints in its two stretches, by global step."""


def claims(source: Source) -> dict[str, Any]:
    return {claim.id: claim for claim in source.claims}


# The claim files.


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_says_beforehand_what_decides_on_it(name: str) -> None:
    source = load(name)
    assert len(claims(source)) == len(source.claims)
    for claim in source.claims:
        fitted = source.recipes[claim.role].fitted
        assert not (claim.kind in COUNTED and fitted), claim.id
        if claim.kind in {"measured", "fitted"}:
            assert claim.value is not None, claim.id
            assert claim.matters is not None, claim.id
            assert claim.matters > (1 if claim.scale == LOG else 0), claim.id
            assert claim.fault, claim.id
        if claim.kind == "fitted":
            assert all(fitted), claim.id
            assert fitted, claim.id
        if claim.kind == "qualitative":
            assert claim.direction in {"above", "below"}, claim.id
            assert claim.unit, claim.id
        if claim.kind in {"setting", "check"}:
            assert (claim.value is None) != (claim.margin is None), claim.id
    assert any(claim.kind in COUNTED for claim in source.claims)


@pytest.mark.parametrize("name", NAMES)
def test_the_runs_of_a_claim_file_are_possible_and_enough(name: str) -> None:
    source = load(name)
    counted = [claim for claim in source.claims if claim.kind in COUNTED]
    for recipe in source.recipes.values():
        assert recipe.runs >= 8
        # All runs show a statement: enough, also with the strictest correction.
        assert 0.5**recipe.runs <= SOURCE_LEVEL / len(counted)
        for quick in (False, True):
            asked = recipe_for(recipe, quick=quick)
            known = EXPERIMENTS[asked.experiment].flags
            for flag, value in {**asked.flags, "seed": 1}.items():
                known[flag].parse(str(value))


@pytest.mark.parametrize("most", [None, 2, 100])
@pytest.mark.parametrize("name", NAMES)
def test_the_plan_has_the_runs_of_the_claim_file(name: str, most: int | None) -> None:
    source = load(name)
    for quick in (False, True):
        made = [
            (role_of_point(point), point.repeat)
            for workers in worker_counts(source)
            for point in points(source, workers, quick=quick, most=most)
        ]
        assert sorted(made) == sorted(
            (role, repeat)
            for role, recipe in source.recipes.items()
            if recipe.in_quick or not quick
            for repeat in range(min(recipe.runs, most or 99))
        )


def test_the_deviations_of_the_books_numbers_follow_from_the_reference() -> None:
    """Rounded down: a wider interval could hide the fault."""
    (good, *_), (fault,) = trainings("async"), trainings("async", "rate")
    assert good["order"] == fault["order"]
    lower = statistics.fmean(good["accuracy"]) - statistics.fmean(fault["accuracy"])
    higher = statistics.geometric_mean(fault["printed_loss"]) / statistics.geometric_mean(
        good["printed_loss"]
    )
    for name, claim in claims(BOOK).items():
        if claim.fault == "three quarters of the learning rate":
            effect, unit = (higher, 0.001) if claim.scale == LOG else (lower, 0.0001)
            assert effect - unit < claim.matters <= effect, name


@pytest.mark.parametrize(("source", "step"), [(BOOK, "epoch"), (POST, "local_step")])
def test_a_deviation_of_a_global_step_is_that_of_a_common_start(source: Source, step: str) -> None:
    rows = [claim for name, claim in claims(source).items() if name.startswith("global-step.")]
    assert len(rows) == (13 if source is BOOK else 9)
    for claim in rows:
        together = len((0, 1, 2)) * claim.keys["local_step"]
        assert claim.matters == abs(together - claim.value), claim.id
        if step == "epoch":
            assert claim.keys["local_step"] == 550 * (claim.keys["epoch"] + 1)


def test_the_printed_losses_are_geometric_means_of_those_in_the_sources() -> None:
    found = claims(BOOK)["losses"]
    assert found.value == pytest.approx(statistics.geometric_mean(PRINTED_LOSSES), rel=1e-6)
    assert len(found.keys["steps"]) == 15
    for name, losses in POST_LOSSES.items():
        found = claims(POST)[name]
        assert found.value == pytest.approx(statistics.geometric_mean(losses.values()), rel=1e-5)
        assert list(found.keys["steps"]) == list(losses)


def test_the_deviation_of_the_posts_losses_is_its_l2_term() -> None:
    """1e-4 times half the sum of squares of all weights, which decay by the same term."""
    weights = 784 * 500 + 500 * 10
    at_start = 1e-4 / 2 * weights * 0.1**2 * truncnorm(-2, 2).var()
    assert at_start == pytest.approx(0.1536, abs=1e-4)
    rates = 0.01 * 0.99 ** (np.arange(50_000) / 600)
    decayed = at_start * math.exp(-2 * 1e-4 * rates.sum())
    for name, term in (("loss-early", at_start), ("loss-late", decayed)):
        claim = claims(POST)[name]
        effect = claim.value / (claim.value - term)
        assert 0.98 * effect < claim.matters <= effect, name


# The choice of runs.


def chosen(
    source: Source, runs: Sequence[RunMetrics]
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """The seeds by role, and the reason of each run that is left out."""
    reasons: dict[str, str] = {}
    found = choose_runs(source, runs, lambda run, reason: reasons.update({run.run_id: reason}))
    return {role: list(each) for role, each in found.items()}, reasons


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_run_of_a_plan_is_used_in_its_role(name: str, quick: bool) -> None:
    source = load(name)
    roles = [role for role, recipe in source.recipes.items() if recipe.in_quick or not quick]
    runs = [run_of(source, role, seed, quick=quick) for role in roles for seed in (1, 2)]
    found, reasons = chosen(source, runs)
    assert reasons == {}
    assert found == {role: [1, 2] if role in roles else [] for role in source.recipes}


def test_runs_without_recorded_steps_are_compared_by_their_results() -> None:
    source = load("staleness")
    runs = [
        replace(run_of(source, "alone", seed), workers=(worker([]),), results={"test loss": loss})
        for seed, loss in ((1, 0.5), (2, 0.6), (3, 0.5))
    ]
    found, reasons = chosen(source, runs)
    assert found["alone"] == [1, 2]
    assert reasons == {runs[2].run_id: f"it has the records of run {runs[0].run_id}"}


FIRST = run_of(BOOK, "whole", 1)
OTHER = run_of(BOOK, "whole", 2, run_id="other")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (replace(OTHER, seed=1), f"it has the seed of run {FIRST.run_id}"),
        (replace(OTHER, workers=FIRST.workers), f"it has the records of run {FIRST.run_id}"),
        (replace(OTHER, seed=None), "its seed is not recorded"),
        (replace(OTHER, succeeded=False), "it did not succeed"),
        (run_of(BOOK, "whole", 2, run_id="other", flags={"epochs": 10}),
         "its epochs is 10, not 50"),
        (run_of(BOOK, "whole", 2, run_id="other", flags={"global_steps": 500}),
         "its global_steps is 500, not the default"),
        (run_of(BOOK, "whole", 2, run_id="other", flags={"learning_rate": 0.02}),
         "its learning_rate is 0.02, not the default"),
        (run_of(BOOK, "whole", 2, run_id="other", quick=True),
         "it is a quick run beside full ones"),
        (replace(OTHER, faults=("slow:0.3,15s worker-0",)),
         "no claim wants the fault 'slow:0.3,15s worker-0'"),
        (replace(OTHER, workers=(worker([1], faults=("pause:9s worker-1",)), *OTHER.workers[1:])),
         "no claim wants the fault 'pause:9s worker-1'"),
        (replace(OTHER, start={"worker-2": "after 9 steps"}),
         "its start, faults or number of workers is that of no claim"),
        (replace(OTHER, faults=("no fault",)), "no claim wants the fault 'no fault'"),
        (replace(OTHER, start={"worker-2": "\x1b[2J"}),
         "its start, faults or number of workers is that of no claim"),
        (replace(OTHER, workers=()), "its start, faults or number of workers is that of no claim"),
        (replace(OTHER, experiment="linear"), "no claim is about a run of linear"),
        (replace(OTHER, experiment="async.py"), "no claim is about a run of async.py"),
    ],
)  # fmt: skip
def test_a_run_that_is_no_evidence_is_left_out_with_its_reason(
    run: RunMetrics, reason: str
) -> None:
    third = run_of(BOOK, "whole", 3)
    found, reasons = chosen(BOOK, [FIRST, run, third])
    assert reasons == {"other": reason}
    assert found == {"whole": [1, 3], "late-worker": []}


def test_a_quick_run_on_fixed_cores_is_none_of_the_source() -> None:
    run = run_of(BOOK, "whole", quick=True)
    without = {name: value for name, value in run.parameters.items() if name != "one_core"}
    assert chosen(BOOK, [run])[1] == {}
    assert chosen(BOOK, [replace(run, parameters=without)])[1] == {
        run.run_id: "its one_core is the default, not False"
    }


def test_flags_without_an_effect_on_the_training_may_differ() -> None:
    assert chosen(BOOK, [run_of(BOOK, "whole", flags={"record_every": 110})])[1] == {}
    post = load("blog-sync")  # whose recipe names this flag
    assert len(chosen(post, [run_of(post, "whole", flags={"record_every": 110})])[1]) == 1


def test_workers_of_another_number_have_another_role_or_none() -> None:
    stale = load("staleness")
    of = {n: run_of(stale, "alone", workers=[worker([1])] * n) for n in (1, 3, 4)}
    assert chosen(stale, [of[1]])[0]["alone"] == [1]
    assert chosen(stale, [of[4]])[0]["several"] == [1]
    assert len(chosen(stale, [of[3]])[1]) == 1


def test_the_earliest_runs_are_kept_and_no_more_than_the_claim_file_asks_for() -> None:
    runs = [run_of(BOOK, "whole", seed) for seed in range(20, 0, -1)]
    found, reasons = chosen(BOOK, runs)
    assert found["whole"] == [*range(20, 12, -1)]
    why = "the claim file asks for 8 runs, and there are as many earlier ones"
    assert reasons == {run.run_id: why for run in runs[8:]}


def test_the_choice_does_not_depend_on_results() -> None:
    """Runs with any losses, accuracies and global steps, in one order."""
    draw = random.Random(1)  # noqa: S311

    def drawn(seed: int) -> RunMetrics:
        workers = [
            worker([draw.randrange(9)], losses=[draw.random()], accuracy=draw.random())
            for _ in range(3)
        ]
        return run_of(BOOK, "whole", seed, workers, accuracy=draw.random(), updates_lost=9)

    first = chosen(BOOK, [drawn(seed) for seed in range(12)])
    for _ in range(5):
        assert chosen(BOOK, [drawn(seed) for seed in range(12)]) == first


def test_quick_runs_are_used_if_no_full_run_succeeded() -> None:
    quick = [run_of(BOOK, "whole", seed, quick=True) for seed in (1, 2)]
    failed = run_of(BOOK, "whole", 3, succeeded=False)
    assert chosen(BOOK, [*quick, failed]) == (
        {"whole": [1, 2], "late-worker": []}, {failed.run_id: "it did not succeed"}
    )  # fmt: skip


# Values from files.


def test_the_files_of_a_run_hold_its_metrics(tmp_path: Path) -> None:
    slowed = worker([3, 6, 9], accuracy=0.5, slowed=(1.0, 2.5), faults=("slow:0.3,15s worker-0",))
    run = run_of(
        BOOK, "late-worker", 7, [slowed, worker([2, 5, 8], accuracy=0.6, rate=0.02)],
        accuracy=0.75, updates_lost=10, faults=("slow:0.3,15s worker-0",),
    )  # fmt: skip
    assert read_metrics(write_run(tmp_path, run)) == run


@pytest.mark.parametrize(
    "line",
    [
        "not json", "[1]", '{"kind": "step"}', '{"kind": "step", "local_step": NaN}',
        '{"kind": "step", "local_step": true, "global_step": 1, "loss": 1, "time_unix": 1}',
        '{"kind": "step", "local_step": 1, "global_step": 1, "loss": "1", "time_unix": 1}',
        '{"kind": "eval", "accuracy": "\\u001b[31m"}', '{"kind": "event", "message": 5}',
        '{"kind": "event", "message": "fault: slow:0.3,15s worker-0"}',
        '{"kind": "final", "local_step": "9"}', '{"kind": "event", "learning_rate": "x"}',
    ],
)  # fmt: skip
def test_an_invalid_record_has_no_value(tmp_path: Path, line: str) -> None:
    directory = write_run(tmp_path, run_of(BOOK, "whole", 1, [WorkerMetrics(())]))
    directory.records("worker-0").write_text(f"{line}\n")
    (found,) = read_metrics(directory).workers
    assert replace(found, faults=()) == WorkerMetrics(())


# The display.


def long_results(source: Source) -> list[Result]:
    """A result of each claim, each with the longest reason and every verdict in turn."""
    words = itertools.cycle(Verdict)
    results = []
    for claim in source.claims:
        ours = 12.3456 if claim.value is None else claim.value * 1.01
        fault = claim.fault or "one of the three workers at half speed"
        why = f"within, but it is 10,000 wide, and {fault} would change this by a factor of 1.1140"
        interval = None if claim.kind == "qualitative" else Interval(0.9 * ours, 1.1 * ours)
        if claim.margin is not None:
            ours, interval = -0.0012, Interval(-0.0032, -0.0011)
        results.append(
            Result(
                claim.id, claim.text, claim.kind, claim.where, claim.value, ours, interval,
                claim.unit, {1: 1.0}, next(words), why,
            )
        )  # fmt: skip
    return results


def printed(source: Source, results: Sequence[Result]) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=80).print(results_table(source, results))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_a_source_is_complete_within_80_columns(name: str) -> None:
    source = load(name)
    results = long_results(source)
    lines = printed(source, results)
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    head = lines[0]
    places = [head.index(column) for column in ("claim", "verdict", "why")]
    claim = "".join(line[: places[1]].replace(" ", "") for line in lines)
    words = "".join(line[places[1] : places[2]].strip() for line in lines)
    why = "".join(line[places[2] :].replace(" ", "") for line in lines)
    for result in results:
        assert result.why.replace(" ", "") in why
        for text in (result.text, result.where):  # the columns of numbers are between the lines
            assert all(word in claim for word in text.split()), result.claim
    for word in Verdict:  # NOT_REPRODUCED contains REPRODUCED
        assert words.count(word) == sum(word in each.verdict for each in results), word


def test_the_table_is_understood_without_the_documents() -> None:
    found = {claim.id: claim for claim in BOOK.claims}
    results = [
        Result(
            c.id, c.text, c.kind, c.where, c.value, ours, interval, c.unit, {1: 1.0}, verdict, why
        )
        for c, ours, interval, verdict, why in (
            (found["pace"], 2.98, Interval(2.9, 3.06), Verdict.REPRODUCED, "within"),
            (found["accuracies-differ"], 0.0004, None, Verdict.INCONCLUSIVE, "7 of 8 runs"),
            (found["global-step.worker-2.epoch-9.step-5500"], 30_000.0, Interval(29_000, 31_000),
             Verdict.NOT_REPRODUCED, "outside"),
        )
    ]  # fmt: skip
    assert [line.rstrip() for line in printed(BOOK, results)] == [
        "claim                    printed           ours  verdict       why",
        "─" * 74,
        "numbers that the source",
        "measured",
        "global steps for each     2.9985         2.9800  REPRODUCED    within",
        "step of worker 0                  2.9000-3.0600",
        "its lines of epochs 29",
        "and 49",
        "",
        "statements without a",
        "number",
        "the workers' final                       0.0004  INCONCLUSIVE  7 of 8 runs",
        "accuracies differ                         apart",
        "the text on the final",
        "accuracies",
        "",
        "not counted: numbers",
        "that follow from a",
        "fitted parameter (the",
        "start of worker 2 at",
        "20,900 steps)",
        "global step: worker-2,    37,367         30,000  NOT_          outside",
        "epoch 9, step 5,500               29,000-31,000  REPRODUCED",
        "the lines of all",
        "workers and epochs",
    ]
    assert summary(results) == "2 counted claims: 1 REPRODUCED, 1 INCONCLUSIVE"


def test_text_from_outside_is_shown_escaped() -> None:
    (result, *_) = long_results(BOOK)
    evil = replace(result, text="\x1b[2J", where="\x9b2J", why="\x1b]0;x\x07", verdict=Verdict.OK)
    shown = "".join(printed(BOOK, [evil]))
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert "\\x1b[2J" in shown


def test_a_value_that_is_no_number_is_shown_and_is_valid_json() -> None:
    (result, *_) = long_results(BOOK)
    odd = replace(result, ours=None, interval=None, values={1: math.nan})
    assert printed(BOOK, [odd])
    found = as_json(BOOK, [odd], {"whole": {1: "run"}}, {"other": "a reason"})
    assert '"1": null' in dump(found)
    assert found["runs"] == {"whole": {1: "run"}}
    assert found["excluded"] == {"other": "a reason"}
    assert found["fitted"] == {"late-worker": ("the start of worker 2 at 20,900 steps",)}


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.88, 0.895, "0.8800-0.8950"), (3, 3, "3"), (-0.0012, 0.0005, "-0.0012 to 0.0005")],
)
def test_an_interval_is_shown_by_its_ends(low: float, high: float, text: str) -> None:
    assert band(low, high) == text


def test_two_results_of_one_second_have_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.reproduce.view.time.strftime", lambda *_: "20261122-081000")
    names = []
    for _ in range(3):
        path = path_of(tmp_path, BOOK)
        path.touch()
        names.append(path.name)
    stem = "reproduce-book-async-20261122-081000"
    assert names == [f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"]
