"""The claim files, the choice of runs, the values read from files, and the display of results."""

from __future__ import annotations

import io
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import truncnorm
from syrupy.assertion import SnapshotAssertion

from lab.base.statistics import SOURCE_LEVEL, Interval
from lab.base.strict_json import dump
from lab.protocol.experiments.faults import parse, parse_trigger
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume.states import State
from lab.study.reproduce.claims import COUNTED, NAMES, Source, load
from lab.study.reproduce.measures import trainings
from lab.study.reproduce.verdicts import (
    Evaluation,
    Result,
    Verdict,
    evaluate,
    read_evaluation,
    results_table,
    summary,
)
from tests.support.reproducing import MadeRun, run_of, worker

BOOK, POST = load("book-async"), load("blog-async")


def claims(source: Source) -> dict[str, Any]:
    return {claim.id: claim for claim in source.claims}


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_file_says_beforehand_what_decides(name: str) -> None:
    source = load(name)
    assert len(claims(source)) == len(source.claims)
    counted = [claim for claim in source.claims if claim.kind in COUNTED]
    assert counted
    for claim in source.claims:
        fitted = source.recipes[claim.role].fitted
        assert not (claim.kind in COUNTED and fitted), claim.id
        if claim.kind in {"measured", "fitted"}:
            assert claim.value is not None, claim.id
            assert (claim.matters or 0) > (1 if claim.scale == "log" else 0), claim.id
            assert claim.fault, claim.id
            assert bool(fitted) is (claim.kind == "fitted"), claim.id
        elif claim.direction:
            assert claim.kind in {"qualitative", "check"}, claim.id
            assert claim.direction in {"above", "below"}, claim.id
            assert claim.unit, claim.id
            assert claim.value is claim.margin is None, claim.id
        else:
            assert claim.kind in {"setting", "check"}, claim.id
            assert (claim.value is None) != (claim.margin is None), claim.id
    for recipe in source.recipes.values():
        assert recipe.runs >= 8
        # A run has these texts as `lab` writes them.
        assert [parse(line).text for line in recipe.faults] == list(recipe.faults)
        assert [str(parse_trigger(at)) for at in recipe.start.values()] == [*recipe.start.values()]
        # All runs show a statement: enough, also with the strictest correction.
        assert 0.5**recipe.runs <= SOURCE_LEVEL / len(counted)
        for quick in (False, True):
            asked = recipe.variant(quick=quick)
            known = EXPERIMENTS[asked.experiment].flags
            for flag, value in {**asked.flags, "seed": 1}.items():
                known[flag].parse(str(value))


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
            effect, unit = (higher, 0.001) if claim.scale == "log" else (lower, 0.0001)
            assert effect - unit < claim.matters <= effect, name


@pytest.mark.parametrize(("source", "count"), [(BOOK, 13), (POST, 9)])
def test_a_deviation_of_a_global_step_is_that_of_a_common_start(source: Source, count: int) -> None:
    rows = [claim for name, claim in claims(source).items() if name.startswith("global-step.")]
    assert len(rows) == count
    for claim in rows:
        assert claim.matters == abs(3 * claim.keys["local_step"] - claim.value), claim.id
        place = f"worker-{claim.keys['worker']}.epoch-"
        place += f"{claim.keys['local_step'] // 550 - 1}." if source is BOOK else ""
        assert place in claim.id or source is POST


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


def chosen(
    source: Source, runs: Sequence[MadeRun], store: Path
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """The seeds by role, and the reason of each run that is left out."""
    found = evaluate(source, [run.write(store) for run in runs], strict=False)
    return {role: list(seeds) for role, seeds in found.runs.items()}, dict(found.excluded)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_run_of_a_plan_is_used_in_its_role(name: str, quick: bool, tmp_path: Path) -> None:
    source = load(name)
    roles = [role for role, recipe in source.recipes.items() if recipe.in_quick or not quick]
    runs = [run_of(source, role, seed, quick=quick) for role in roles for seed in (1, 2)]
    runs = [run.but(run_id=f"{run.info.run_id}-{place}") for place, run in enumerate(runs)]
    found, reasons = chosen(source, runs, tmp_path)
    assert reasons == {}
    assert found == {role: [1, 2] if role in roles else [] for role in source.recipes}


FIRST, OTHER = run_of(BOOK, "whole", 1), run_of(BOOK, "whole", 2)
QUICK = run_of(BOOK, "whole", 2, quick=True)
SLOW = "fault: slow:0.3,15s worker-0"
INJECTED = [{"kind": "event", "message": SLOW, "time_unix": 1.0}, *OTHER.workers[0]]
MISFIT = "no claim needs a run with its faults and late tasks"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (OTHER.but(seed=1), f"it has the seed of run {FIRST.info.run_id}"),
        (replace(OTHER, workers=FIRST.workers), f"it has the records of run {FIRST.info.run_id}"),
        (OTHER.but(seed=None), "its seed is not recorded"),
        (OTHER.but(state=State.FAILED), "it did not succeed"),
        (run_of(BOOK, "whole", 2, epochs=10), "its epochs is 10, not 50"),
        (run_of(BOOK, "whole", 2, global_steps=500), "its global_steps is 500, not 0"),
        (run_of(BOOK, "whole", 2, learning_rate=0.2), "its learning_rate is 0.2, not the default"),
        (QUICK, "it is a run of async-fast, the first one of async"),
        (OTHER.but(faults=("slow:0.3,15s worker-0",)), MISFIT),
        (replace(OTHER, workers=(INJECTED, *OTHER.workers[1:])), MISFIT),
        (OTHER.but(start={"worker-2": "after 9 steps"}), MISFIT),
        (OTHER.but(faults=("no fault",)), MISFIT),
        (OTHER.but(start={"worker-2": "\x1b[2J"}), MISFIT),
        (OTHER.but(cluster={"ps": ["a:2222"]}), "no claim needs a run with 0 workers"),
        # A quick run on fixed cores is none of the source.
        (run_of(BOOK, "whole", 2, quick=True, one_core=True), "its one_core is True, not False"),
        (OTHER.but(experiment="linear"), "no claim is about a run of linear"),
        (OTHER.but(own=True, program="async.py"), "no claim is about a run of async.py"),
    ],
)  # fmt: skip
def test_a_run_that_is_no_evidence_is_left_out_with_its_reason(
    run: MadeRun, reason: str, tmp_path: Path
) -> None:
    given = [FIRST, run.but(run_id="other"), run_of(BOOK, "whole", 3)]
    found, reasons = chosen(BOOK, given, tmp_path)
    assert reasons == {"other": reason}
    assert found == {"whole": [1, 3], "late-worker": []}


BLOG, STALE = load("blog-sync"), load("staleness")


@pytest.mark.parametrize(
    ("source", "runs", "seeds", "left_out"),
    [
        # A flag without an effect on the training may differ, unless the recipe names it.
        (BOOK, [run_of(BOOK, "whole", record_every=110)], {"whole": [1]}, 0),
        (BLOG, [run_of(BLOG, "whole", record_every=110)], {}, 1),
        # Another number of workers has another role, or none.
        *((STALE, [run_of(STALE, "alone", workers=[worker([1])] * count)], seeds, not seeds)
          for count, seeds in ((1, {"alone": [1]}), (4, {"several": [1]}), (3, {}))),
        # The first run that succeeded decides whether full or quick runs count.
        (BOOK, [*(run_of(BOOK, "whole", n, quick=True) for n in (1, 2)),
                run_of(BOOK, "whole", 3).but(state=State.FAILED)], {"whole": [1, 2]}, 1),
        # Runs without recorded steps are compared by their results.
        (STALE, [run_of(STALE, "alone", seed, [worker([])], test_loss=loss)
                 for seed, loss in ((1, 0.5), (2, 0.6), (3, 0.5))], {"alone": [1, 2]}, 1),
    ],
    ids=["a free flag", "a named flag", "one worker", "four workers", "three workers", "quick",
         "results"],
)  # fmt: skip
def test_runs_have_the_role_whose_recipe_they_follow(
    source: Source, runs: list[MadeRun], seeds: dict[str, list[int]], left_out: int, tmp_path: Path
) -> None:
    found, reasons = chosen(source, runs, tmp_path)
    assert found == {role: seeds.get(role, []) for role in source.recipes}
    assert list(reasons) == [run.info.run_id for run in runs][len(runs) - left_out :]


def long_results(source: Source) -> list[Result]:
    """A result of each claim, each with the longest reason and every verdict in turn."""
    words = itertools.cycle(Verdict)
    results = []
    for claim in source.claims:
        ours = 12.3456 if claim.value is None else claim.value * 1.01
        fault = claim.fault or "one of the three workers at half speed"
        why = f"within, but it is 10,000 wide, and {fault} would change this by a factor of 1.1140"
        interval = None if claim.direction else Interval(0.9 * ours, 1.1 * ours)
        if claim.margin is not None:
            ours, interval = -0.0012, Interval(-0.0032, -0.0011)
        results.append(
            Result(
                claim.id, claim.text, claim.kind, claim.where, claim.value, ours, interval,
                claim.unit, {1: 1.0}, next(words), why,
            )
        )  # fmt: skip
    return results


def evaluation(source: Source, results: Sequence[Result]) -> Evaluation:
    fitted = {role: recipe.fitted for role, recipe in source.recipes.items() if recipe.fitted}
    return Evaluation(
        name=source.name, source=source.title, summary="", fitted=fitted, claims=results,
        runs={}, excluded={},
    )  # fmt: skip


def printed(source: Source, results: Sequence[Result]) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=80).print(results_table(evaluation(source, results)))
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


def test_the_table_is_understood_without_the_documents(snapshot: SnapshotAssertion) -> None:
    found = claims(BOOK)
    results = [
        Result(c.id, c.text, c.kind, c.where, c.value, ours, interval, c.unit, {1: 1.0}, verdict,
               why)
        for c, ours, interval, verdict, why in (
            (found["pace"], 2.98, Interval(2.9, 3.06), Verdict.REPRODUCED, "within"),
            (found["global-varies"], 0.4, None, Verdict.INCONCLUSIVE, "7 of 8 runs"),
            (found["global-step.worker-2.epoch-9.step-5500"], 30_000.0, Interval(29_000, 31_000),
             Verdict.NOT_REPRODUCED, "outside"),
            (found["global-step.worker-2.epoch-19.step-11000"], 50_000.0, None, Verdict.OK, ""),
        )
    ]  # fmt: skip
    assert [line.rstrip() for line in printed(BOOK, results)] == snapshot
    assert summary(results) == ("1 measured number: 1 REPRODUCED; 1 statement: 1 INCONCLUSIVE")


def test_text_from_outside_is_shown_escaped_and_no_number_is_no_value() -> None:
    (result, *_) = long_results(BOOK)
    evil = replace(result, text="\x1b[2J", where="\x9b2J", why="\x1b]0;x\x07", verdict=Verdict.OK)
    odd = replace(evil, ours=None, interval=None, values={1: math.nan})
    shown = "".join(printed(BOOK, [evil, odd]))
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert shown.count("\\x1b[2J") == 2
    assert '"1": null' in dump(evaluation(BOOK, [odd]).json)


def test_each_result_has_its_own_file(tmp_path: Path) -> None:
    found = evaluation(BOOK, [])
    paths = {found.save(tmp_path / "runs") for _ in range(3)}
    assert len(paths) == 3
    assert [read_evaluation(path) for path in paths] == [found] * 3
