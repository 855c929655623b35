"""The statistics behind RESULTS.md, its measure and its texts; nothing is timed here."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks import class_load, ladder, read_to_count, results, scaling, torchrun
from benchmarks.marks import put
from benchmarks.pairs import Estimate, estimate
from benchmarks.processes import Sample
from benchmarks.results import Target
from benchmarks.scaling import CALIBRATING, Case, Measured, Trial
from benchmarks.trainings import (
    ROOT,
    UnfitError,
    common_time,
    steps_per_second,
)
from lab.protocol.records import Record
from lab.study.simulation.discrete_events import Costs, Forecast, Way, simulate
from lab.study.simulation.machine import ERRORS, SHIPPED, VALIDATED


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        # The sign test's interval at 95%, as in the tables.
        (1, -math.inf, math.inf),
        (5, -math.inf, math.inf),
        (6, 1, 6),  # 96.9%
        (10, 2, 9),  # 97.9%
        (20, 6, 15),  # 95.9%
    ],
)
def test_known_values_have_the_interval_of_the_tables(count: int, low: float, high: float) -> None:
    values = random.Random(count).sample(range(1, count + 1), count)  # noqa: S311
    assert estimate(values) == Estimate((count + 1) / 2, low, high, tuple(values))


@pytest.mark.parametrize(
    ("found", "target", "verdict"),
    [
        ((0.98, 0.97, 0.99), Target("at least", 0.97), "met"),
        ((0.98, 0.96, 0.99), Target("at least", 0.97), "met narrowly"),
        ((0.96, 0.95, 0.98), Target("at least", 0.97), "missed narrowly"),
        ((0.90, 0.89, 0.91), Target("at least", 0.97), "missed"),
        ((0.98, -math.inf, math.inf), Target("at least", 0.97), "met narrowly"),
        ((math.nan, math.nan, math.nan), Target("at least", 0.97), "missed"),
        ((0.1, 0.09, 0.2), Target("at most", 0.2), "met"),
        ((0.3, 0.25, 0.4), Target("at most", 0.2), "missed"),
    ],
)
def test_verdicts(found: tuple[float, float, float], target: Target, verdict: str) -> None:
    assert target.verdict(Estimate(*found, ())) == verdict


def step(task: int, time: float, global_step: int, kind: str = "step") -> Record:
    return {"kind": kind, "task_index": task, "time_unix": time, "global_step": global_step}


def test_the_rate_counts_only_while_all_workers_train() -> None:
    # Alone, worker 0 makes 1,000 steps in a second; together they make 300 a second.
    first = [
        step(0, 9.0, 0),
        step(0, 10.0, 1000),
        step(0, 20.0, 4010, "epoch"),
        step(0, 30.0, 7000),
    ]
    steps = [step(1, 11.0, 1300), step(1, 21.0, 4300), step(1, 26.0, 5800)]
    final = {"kind": "final", "time_unix": 40.0, "global_step": 9_000}
    second = [{"kind": "start", "time_unix": 1.0}, *steps, final]
    records = {"ps-0": [step(0, 0.0, 10**6)], "worker-0": first, "worker-1": second}
    assert steps_per_second(records) == (5800 - 1300) / 15
    assert common_time(records) == (11.0, 26.0)


def test_the_pages_show_the_figures_that_are_kept() -> None:
    kept = results.read()
    assert (results.FOLDER / "RESULTS.md").read_text() == results.markdown(kept)
    for page, marks in (
        ("docs/tutorials/lessons/speed.md", ladder.tables(kept)),
        ("docs/zh/tutorials/lessons/speed.md", ladder.tables(kept)),
        ("docs/evidence/seats.md", class_load.tables(kept)),
    ):
        text = (ROOT / page).read_text()
        for mark, table in marks.items():
            assert put(text, mark, table) == text


def test_gains_are_medians_of_the_rounds_own_ratios() -> None:
    # In the second round everything is half as fast: because of the machine, not of a rung.
    rounds = [[100.0, 200.0, 600.0], [50.0, 100.0, 300.0]] * 5
    lines = ladder.ladder_table({"rungs": ["a", "b", "c"], "rounds": rounds}).splitlines()
    assert lines[2:] == [
        "| a | 75 |  |  |",
        "| b | 150 | 2.00 (2.00 to 2.00) | 2.00 (2.00 to 2.00) |",
        "| c | 450 | 3.00 (3.00 to 3.00) | 6.00 (6.00 to 6.00) |",
    ]


@pytest.mark.parametrize(
    ("key", "ratio_of_rates"), [("ladder-async-listing", 6.0), ("ladder-async", 4.0)]
)
def test_a_ratio_is_the_last_rung_over_the_first(key: str, ratio_of_rates: float) -> None:
    rates = {ladder.LISTED: [100.0] * 6, ladder.ASYNC[0]: [150.0] * 6}
    found = ladder.outcome(key, {rung: rates.get(rung, [600.0] * 6) for rung in ladder.RATIOS[key]})
    assert found.found.median == ratio_of_rates


# ---- `lab run ddp` beside torchrun


def test_the_rates_are_divided_and_the_starts_subtracted() -> None:
    ours, theirs = (90.0, 5.5, 0.25), (100.0, 5.0, 0.25)
    rate, start = torchrun.outcomes([(ours, theirs)] * 10, "--seed=1")
    assert rate.found == estimate([0.9] * 10)
    assert start.found == estimate([0.5] * 10)
    assert (rate.verdict(), start.verdict()) == ("missed", "met")
    with pytest.raises(UnfitError, match="their last losses are"):
        torchrun.outcomes([(ours, (100.0, 5.0, 0.5))], "--seed=1")


# ---- The validation of predictions: its measurements, its fit, its classes; nothing is timed

TRUE = Costs(2e-3, 7e-4, 2e-3, 0.6, 0.5, 5e-4, 2e-3, 7e-4, 1e-3, 1e-6)


def records(*marks: tuple[float, int]) -> list[Record]:
    return [
        Record(
            kind="step",
            time_unix=at,
            elapsed_s=at,
            local_step=step // 2,
            global_step=step,
        )
        for at, step in marks
    ]


def test_a_step_costs_what_was_spent_while_all_trained() -> None:
    of_each = {
        "worker-0": records((10.0, 100), (12.0, 300), (15.5, 650)),
        "worker-1": records((11.0, 200), (13.0, 400), (15.0, 600), (20.0, 1000)),
    }
    spent = {"ps-0": 1.0, "worker-0": 2.0, "worker-1": 3.0}
    samples = [
        Sample(at, {task: each * at for task, each in spent.items()}, 0.0, 6.75 * at)
        for at in (5.0, 11.5, 13.0, 15.2, 18.0)
    ]
    case = Case(Way.ASYNC, 2, 1)
    found = scaling.measured(case, of_each, samples)
    assert found.case == case
    assert found.steps_per_s == pytest.approx(100)
    assert (found.ps_cpu_s, found.worker_cpu_s) == pytest.approx((1 / 100, 5 / 100))
    assert found.taken == pytest.approx(0.75)  # of the 6.75 cores that were busy 6 were ours
    assert Measured.of_json(json.loads(json.dumps(asdict(found)))) == found
    with pytest.raises(UnfitError, match="too short for two samples"):
        scaling.measured(case, of_each, samples[:2])
    with pytest.raises(UnfitError, match="fewer than 5 step records"):
        scaling.measured(case, {name: each[:1] for name, each in of_each.items()}, samples)


def as_measured(case: Case, **changes: float) -> Measured:
    found = simulate(case.shape, TRUE, case.cores, steps=100)
    figures = {
        "steps_per_s": found.steps_per_s,
        "ratios": (0.9, 1.0, 1.1) if case.singly else (),
        "seconds": 5.0,
        "worker_cpu_s": found.worker_cpu_s,
        "ps_cpu_s": found.ps_cpu_s,
        "taken": 0.1,
    }
    return Measured(**asdict(case), **figures | changes)


def a_trial(times: int, off: float, *, is_run: bool = True) -> Trial:
    case = Case(Way.ASYNC, 4, 1)
    forecast = Forecast(100.0, 0.0, 0.0)
    measured = as_measured(case, steps_per_s=100 * (1 + off))
    return Trial(measured, forecast, is_run, times)


def test_nine_of_ten_predictions_are_within_the_printed_error() -> None:
    assert scaling.quantile([0.1, 0.3, 0.2]) == 0.3
    assert scaling.quantile([number / 100 for number in range(1, 21)]) == 0.18
    trials = [a_trial(3, sign * number / 100) for number in range(1, 11) for sign in (-1, 1)]
    (row,) = scaling.classes([*trials, a_trial(1, 0.9), a_trial(1, 0.9)])  # two are no class
    assert (row.error, row.predictions) == (pytest.approx(0.09), 20)
    assert (row.way, row.is_run, row.factor) == ("async", True, 3)


@pytest.mark.parametrize(("off", "verdict"), [(0.149, "met"), (0.151, "missed")])
def test_the_target_is_the_median_of_predictions_from_a_run(off: float, verdict: str) -> None:
    trials = [a_trial(3, off), a_trial(1, -off), a_trial(3, 0.9, is_run=False)]
    (outcome,) = scaling.outcomes(trials)
    assert outcome.verdict() == verdict
    assert outcome.found.values == pytest.approx((off, off))


def test_the_page_and_the_code_are_those_of_the_kept_figures() -> None:
    page = (ROOT / "docs/explanation/scaling.md").read_text("utf-8")
    for (way, is_run, times), error in ERRORS.items():
        source = "a run" if is_run else "shipped machine"
        label = "1" if times == 1 else f"up to {times}"
        row = rf"\| {way} \| {source} \| {label} \| \d+ \| \d+% \| ±{error:.0%} \|"
        assert re.search(row, page)
    kept = json.loads((ROOT / "benchmarks/scaling.json").read_text("utf-8"))
    trainings = [Measured.of_json(row) for row in kept["trainings"]]
    assert all(training.name in page for training in trainings)
    assert f"{SHIPPED.cores} cores" in SHIPPED.label
    assert SHIPPED.shapes == tuple(
        dict.fromkeys(case.shape for case in CALIBRATING if case.batch_size == 100)
    )
    most = (max(getattr(row, name) for row in trainings) for name in ("cores", "workers", "ps"))
    assert tuple(VALIDATED.values()) == tuple(most)


def test_the_share_and_the_counts_of_others_follow_from_the_clock() -> None:
    """Steps of 10 s, of which 4 s are from read to count; another worker counts at 2 s, 8 s, …."""
    counts = 10.0 * np.arange(1, 21)
    one = np.column_stack([counts - 4, counts])
    assert read_to_count.share(one) == (pytest.approx(0.4), 10.0)
    early, late = counts + 2, counts + 8
    assert read_to_count.others_between([one, np.column_stack([late - 1, late])]) == 0.5
    assert read_to_count.others_between([one, np.column_stack([early - 9, early])]) == 0.5
