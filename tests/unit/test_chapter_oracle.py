"""The oracle's trainings of the chapter, and the bands that follow from them."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from benchmarks import chapter_oracle
from lab.reproduce import statistics
from lab.reproduce.claims import load
from lab.reproduce.reference import FILE, Reference, load_trainings, of_mode
from lab.reproduce.statistics import Variance
from lab.task.sdk.data import load_mnist
from tests import oracle


def test_models_trained_together_equal_single_trainings() -> None:
    mnist = load_mnist()
    batches = list(itertools.islice(oracle.worker_batches(mnist.train, 5, 0), 20))
    stack = chapter_oracle.Stack([1, 2])
    losses = np.array([stack.step(*batch, 0.01) for batch in batches])
    for column, seed in enumerate((1, 2)):
        alone = oracle.train(oracle.initial_parameters("softmax", seed), batches, rate=0.01)
        steps = list(alone)
        assert losses[:, column] == pytest.approx([step.loss for step in steps], rel=1e-4)
        weights = stack.weights[:, 10 * column : 10 * column + 10]
        assert weights == pytest.approx(steps[-1].parameters["weights"], abs=1e-5)


def test_the_committed_data_is_what_the_script_makes() -> None:
    """Its first updates, trained again."""
    committed = next(each for each in load_trainings() if each["mode"] == "async")
    mnist = load_mnist()
    order = committed["order"]
    streams = [oracle.worker_batches(mnist.train, 1000 + order, index) for index in range(3)]
    stack = chapter_oracle.Stack(committed["initials"])
    turns = itertools.islice(chapter_oracle.turns(27_500, committed["joins"]), chapter_oracle.EARLY)
    losses = [stack.step(*next(streams[worker]), chapter_oracle.RATE) for worker in turns]
    assert np.mean(losses, axis=0) == pytest.approx(committed["early_loss"], rel=1e-3)


def test_the_data_has_several_orders_of_each_mode() -> None:
    found = [(each["mode"], each["order"]) for each in json.loads(FILE.read_text())["trainings"]]
    assert len(found) == len(set(found))
    assert {mode: sum(each == mode for each, _ in found) for mode, _ in found} == {
        "async": 3,
        "sync": 3,
    }
    assert all(each["variant"] == "" for each in load_trainings())


def test_equally_fast_workers_with_the_books_start_make_the_printed_table() -> None:
    """Within 1%: only the moment at which worker 2 joins was chosen."""
    ends: dict[tuple[int, int], int] = {}
    made = [0, 0, 0]
    for total, worker in enumerate(chapter_oracle.turns(27_500, chapter_oracle.JOINS), start=1):
        made[worker] += 1
        ends[worker, made[worker]] = total
    claims = [each for each in load("book-async").claims if each.id.startswith("global-step.")]
    assert len(claims) == 15
    for claim in claims:
        simulated = ends[claim.keys["worker"], 550 * (claim.keys["epoch"] + 1)]
        assert simulated == pytest.approx(claim.value, rel=0.01)


def test_a_two_way_table_separates_its_spreads() -> None:
    """Many draws with known spreads: the means of the estimates are these."""
    random = np.random.default_rng(1)
    rows, columns = [], []
    for _ in range(400):
        of_rows = 2.0 * random.standard_normal((8, 1))
        of_columns = 0.5 * random.standard_normal((1, 4))
        between, within = statistics.variance_components(
            of_rows + of_columns + random.standard_normal((8, 4))
        )
        rows.append(between.variance)
        columns.append(within.variance)
        assert 3 <= within.freedom <= 24
    # A row's mean still has a quarter of the noise in its cells.
    assert np.mean(rows) == pytest.approx(4 + 1 / 4, rel=0.1)
    assert np.mean(columns) == pytest.approx(0.25 + 1, rel=0.1)


def test_the_interval_of_one_spread_is_the_textbooks() -> None:
    """Mean 10, deviation 2 of 8 draws: 10 ± 5.408 · 2 · √(1 + 1/8)."""
    found = statistics.prediction_interval(10, Variance(4 * (1 + 1 / 8), 7))
    assert found.high - 10 == pytest.approx(5.408 * 2 * math.sqrt(1 + 1 / 8), rel=1e-3)
    assert statistics.prediction_interval(10, Variance(0, 7)) == statistics.Interval(10, 10)


def the_oracle() -> Reference:
    found = of_mode(load_trainings(), "async")
    assert found is not None
    return found


def test_a_known_seed_has_the_narrow_band_and_more_runs_a_narrower_one() -> None:
    def width(seeds: list[int | None]) -> float:
        band = the_oracle().accuracy([82_500] * len(seeds), seeds, 82_500)
        assert band is not None
        return band.ours.high - band.ours.low

    assert width([1, 1, 1]) == width([1])
    assert width([1, 2, 3]) < width([1]) < width([99]) / 2
    assert width([99]) == width([None])
    assert width([1, 99]) > width([1, 2])


def test_bands_of_other_seeds_still_hold_the_prints() -> None:
    for updates, printed in ((72_002, 0.8865), (72_105, 0.8866), (82_500, 0.8894)):
        band = the_oracle().accuracy([updates], [1], updates)
        assert band is not None
        assert printed in band.source


@pytest.mark.parametrize(
    ("mode", "updates"), [("async", 72_000), ("async", 82_500), ("sync", 27_500)]
)
def test_held_out_order_is_in_the_band_of_the_others(mode: str, updates: int) -> None:
    trainings = [each for each in load_trainings() if each["mode"] == mode]
    for held_out in trainings:
        others = of_mode([each for each in trainings if each is not held_out], mode)
        assert others is not None
        for row, seed in enumerate(held_out["initials"]):
            band = others.accuracy([updates], [seed], updates)
            assert band is not None
            assert held_out["accuracy"][f"{updates}"][row] in band.ours
            late = others.late_loss([seed])
            assert held_out["late_loss"][row] in late.ours


def test_one_order_alone_gives_no_band() -> None:
    assert of_mode(load_trainings()[:1], "async") is None
    assert of_mode(load_trainings(), "ring") is None
    assert the_oracle().losses(["0.10"], [1]) is None
    assert the_oracle().accuracy([3_300], [1], 82_500) is None
