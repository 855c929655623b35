"""The chapter's claims against runs: good ones pass, and each broken one is caught by its claim."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from lab.reproduce.claims import GROUPS, NAMES, SOURCES, Source, load
from lab.reproduce.evaluate import ClaimResult, ClaimStatus, evaluate_claims
from lab.reproduce.reference import load_trainings, of_mode
from lab.reproduce.run_metrics import RunMetrics, Step, WorkerMetrics
from lab.reproduce.view import verdicts_table
from tests.unit.reproducing import bare_run, chapter_run, training

SEEDS = (1, 2, 3)
BOOK = load("book-async")


@cache
def good_runs() -> tuple[RunMetrics, ...]:
    return tuple(chapter_run(seed) for seed in SEEDS)


def verdicts(
    runs: Sequence[RunMetrics], source: Source = BOOK, **roles: Sequence[RunMetrics]
) -> dict[str, ClaimResult]:
    oracle = of_mode(load_trainings(), source.reference)
    return {each.claim: each for each in evaluate_claims(source, {"whole": runs, **roles}, oracle)}


def off(found: dict[str, ClaimResult]) -> dict[str, ClaimStatus]:
    """The claims that are neither passed nor without a run."""
    fine = {ClaimStatus.PASS, ClaimStatus.INSUFFICIENT_RUNS}
    return {name: each.verdict for name, each in found.items() if each.verdict not in fine}


def test_good_runs_pass_every_claim() -> None:
    found = verdicts(good_runs())
    assert not off(found)
    open_ = {name for name, each in found.items() if each.verdict is ClaimStatus.INSUFFICIENT_RUNS}
    assert open_ == {"late-starter", "long-overlap"}


def test_every_printed_number_of_the_table_is_a_claim() -> None:
    found = verdicts(good_runs())
    table = [each for name, each in found.items() if name.startswith("global-step.")]
    losses = [each for name, each in found.items() if name.startswith("loss.")]
    assert (len(table), len(losses)) == (15, 15)
    assert found["global-step.worker-2.epoch-9"].source_value == 37_367
    assert all(each.ours.n == 3 for each in [*table, *losses])


def test_the_15_losses_are_weak_one_by_one_and_count_together() -> None:
    found = verdicts(good_runs())
    single = [each for name, each in found.items() if name.startswith("loss.")]
    assert {each.group for each in single} == {"uncounted"}
    assert {each.note for each in single} == {"weak: a single batch's loss"}
    printed = [each.source_value for each in single if each.source_value is not None]
    together = found["losses"]
    assert together.source_value == pytest.approx(statistics.geometric_mean(printed))
    assert together.group == "independent"
    assert together.band is not None
    assert together.band.high / together.band.low < 1.5
    assert min(each.band.high / each.band.low for each in single if each.band is not None) > 2.5


def test_the_steps_that_follow_from_the_fitted_start_are_counted_apart() -> None:
    claims = BOOK.claims
    fitted = [claim for claim in claims if claim.group == "fitted"]
    assert [claim.id.partition(".")[0] for claim in fitted] == ["global-step"] * 15
    assert all("the offset is fitted" in claim.note for claim in fitted)
    blog = [claim for claim in load("blog-async").claims if claim.group == "fitted"]
    assert len(blog) == 17
    assert all("both offsets are fitted" in claim.note for claim in blog)
    # A run is given these values, and cannot have others.
    set_up = {claim.id for claim in claims if claim.note.startswith("set-up")}
    assert set_up == {"learning-rate", "batch-size", "epochs"}
    assert {claim.group for claim in claims if claim.id in set_up} == {"uncounted"}
    own = {claim.id for claim in claims if claim.group == "own"}
    assert own == {"updates-lost", "late-loss", "last-tests-best", "late-starter", "long-overlap"}


def test_a_quarter_of_the_updates_lost_is_caught_by_the_probe_and_without_it() -> None:
    broken = [chapter_run(seed, training("lost"), updates_lost=20_625) for seed in SEEDS]
    found = off(verdicts(broken))
    assert found["updates-lost"] is ClaimStatus.OUTSIDE_BAND
    blind = [replace(run, updates_lost=0) for run in broken]
    assert off(verdicts(blind))["accuracy.worker-2"] is ClaimStatus.OUTSIDE_BAND


def test_three_quarters_of_the_rate_are_caught() -> None:
    """By accuracies alone: the program has changed, and no record shows it."""
    found = off(verdicts([chapter_run(seed, training("rate")) for seed in SEEDS]))
    assert found["accuracy.worker-2"] is ClaimStatus.OUTSIDE_BAND


@pytest.mark.parametrize("rates", [(0.0075,) * 3, (0.01, 0.01, 0.0075), (0.01, 0.01, None)])
def test_the_rate_is_the_recorded_one(rates: tuple[float | None, ...]) -> None:
    run = chapter_run(1, parameters={"learning_rate": 0.01, "epochs": 50})
    workers = tuple(
        replace(worker, rate=rate) for worker, rate in zip(run.workers, rates, strict=True)
    )
    assert (
        off(verdicts([replace(run, workers=workers)]))["learning-rate"] is ClaimStatus.OUTSIDE_BAND
    )


def test_a_worker_that_is_idle_is_caught() -> None:
    idle = [chapter_run(seed, own=(27_500, 27_500, 0)) for seed in SEEDS]
    found = off(verdicts(idle))
    assert found["local-steps.worker-2"] is found["global-steps"] is ClaimStatus.OUTSIDE_BAND
    # Also where the others make its steps, so that the total is right.
    others = [chapter_run(seed, own=(41_250, 41_250, 0)) for seed in SEEDS]
    found = off(verdicts(others))
    assert "global-steps" not in found
    assert (
        found["local-steps.worker-0"] is found["local-steps.worker-2"] is ClaimStatus.OUTSIDE_BAND
    )


def in_rounds(run: RunMetrics) -> RunMetrics:
    """The same in the records of a synchronous program: a worker's count is the global one."""
    workers = tuple(
        WorkerMetrics(
            tuple(replace(step, total=step.local) for step in worker.steps),
            worker.accuracy,
            27_500,
        )
        for worker in run.workers
    )
    return replace(run, workers=workers, global_steps=27_500)


def test_a_handful_of_records_shows_no_pattern_and_no_variation() -> None:
    """Of a short run: no verdict, neither good nor bad."""
    run = good_runs()[0]
    few = tuple(replace(worker, steps=worker.steps[-3:]) for worker in run.workers)
    found = verdicts([replace(run, workers=few)])
    for name in ("global-varies", "global-no-pattern"):
        assert found[name].verdict is ClaimStatus.INSUFFICIENT_RUNS


def test_a_synchronous_run_that_is_labelled_async_is_caught() -> None:
    sync = [in_rounds(run) for run in good_runs()]
    found = off(verdicts(sync))
    assert found["global-steps"] is found["global-varies"] is ClaimStatus.OUTSIDE_BAND
    # Also where it makes as many updates, and where some of its records are odd.
    longer = [replace(run, global_steps=82_500) for run in sync]
    assert off(verdicts(longer))["global-varies"] is ClaimStatus.OUTSIDE_BAND
    odd = [with_odd_records(run) for run in longer]
    assert off(verdicts(odd))["global-varies"] is ClaimStatus.OUTSIDE_BAND


def with_odd_records(run: RunMetrics) -> RunMetrics:
    """A tenth of the records have a global step that is up to a round further."""

    def of(worker: WorkerMetrics) -> WorkerMetrics:
        steps = (
            replace(step, total=step.total + (0 if nth % 10 else 1 + nth % 3))
            for nth, step in enumerate(worker.steps)
        )
        return replace(worker, steps=tuple(steps))

    return replace(run, workers=tuple(map(of, run.workers)))


def test_synchronous_runs_pass_the_oracles_claims() -> None:
    """One order of the batches represents the runs, the others the oracle."""
    *others, held_out = [each for each in load_trainings() if each["mode"] == "sync"]
    source, oracle = load("book-sync"), of_mode(others, "sync")
    runs = [
        replace(in_rounds(chapter_run(seed, held_out, joins=0)), experiment="sync", start={})
        for seed in SEEDS
    ]
    found = {each.claim: each.verdict for each in evaluate_claims(source, {"whole": runs}, oracle)}
    named = ["accuracy.worker-0", "late-loss", "in-step", "global-steps", "local-total"]
    assert {found[name] for name in named} == {ClaimStatus.PASS}
    # Asynchronous runs under that name make too many updates, and march in no step.
    found = {
        each.claim: each.verdict for each in evaluate_claims(source, {"whole": good_runs()}, oracle)
    }
    assert found["in-step"] is found["global-steps"] is ClaimStatus.OUTSIDE_BAND


def test_workers_that_take_turns_have_a_pattern() -> None:
    """A strict order of the workers: the remainder of the global step never changes."""

    def turn(index: int, worker: WorkerMetrics) -> WorkerMetrics:
        steps = tuple(
            replace(s, total=3 * s.local + index + 3 * (s.local // 110 % 7)) for s in worker.steps
        )
        return replace(worker, steps=steps)

    runs = [
        replace(run, workers=tuple(turn(i, w) for i, w in enumerate(run.workers)))
        for run in good_runs()
    ]
    assert off(verdicts(runs))["global-no-pattern"] is ClaimStatus.OUTSIDE_BAND


def test_test_images_among_the_training_images_are_too_good() -> None:
    found = off(verdicts([chapter_run(seed, training("leak")) for seed in SEEDS]))
    assert found["accuracy.worker-2"] is ClaimStatus.TOO_GOOD


def test_a_run_that_failed_is_in_the_result() -> None:
    runs = [*good_runs(), replace(chapter_run(4), succeeded=False)]
    found = verdicts(runs)
    assert off(found) == {"runs": ClaimStatus.OUTSIDE_BAND}
    assert (found["runs"].ours.mean, found["runs"].ours.n) == (1, 4)
    assert runs[3].run_id in found["runs"].why
    assert found["global-steps"].ours.n == 3


def test_one_run_is_too_few_for_means_and_enough_for_counts() -> None:
    found = verdicts(good_runs()[:1])
    assert found["global-steps"].verdict is ClaimStatus.PASS
    assert found["global-step.worker-0.epoch-9"].verdict is ClaimStatus.INSUFFICIENT_RUNS
    assert found["last-tests-best"].verdict is ClaimStatus.INSUFFICIENT_RUNS


def test_without_a_run_nothing_passes() -> None:
    assert {each.verdict for each in verdicts([]).values()} == {ClaimStatus.INSUFFICIENT_RUNS}


def test_a_shorter_run_is_not_compared_beyond_its_end() -> None:
    short = [replace(run, parameters={"epochs": 10}) for run in good_runs()]
    found = verdicts(short)
    assert found["epochs"].verdict is ClaimStatus.OUTSIDE_BAND
    assert found["global-step.worker-0.epoch-9"].verdict is ClaimStatus.PASS
    assert found["global-step.worker-0.epoch-19"].verdict is ClaimStatus.NOT_COMPARABLE


def test_without_the_start_schedule_the_table_is_another_one() -> None:
    found = off(verdicts([chapter_run(seed, joins=0) for seed in SEEDS]))
    assert found["global-step.worker-2.epoch-9"] is ClaimStatus.OUTSIDE_BAND
    assert "global-steps" not in found


def test_a_mean_two_per_cent_off_is_the_limit() -> None:
    def moved(share: float) -> ClaimStatus:
        def of(worker: WorkerMetrics) -> WorkerMetrics:
            ends = tuple(
                replace(s, total=round(10_896 * share)) if s.ends_epoch and s.epoch == 9 else s
                for s in worker.steps
            )
            return replace(worker, steps=ends)

        runs = [replace(run, workers=(of(run.workers[0]), *run.workers[1:])) for run in good_runs()]
        return verdicts(runs)["global-step.worker-0.epoch-9"].verdict

    assert moved(1.019) is moved(0.981) is ClaimStatus.PASS
    assert moved(1.021) is moved(0.979) is ClaimStatus.OUTSIDE_BAND


def test_an_unrecorded_figure_does_not_pass() -> None:
    run = good_runs()[0]
    bare = replace(run, workers=(WorkerMetrics(()), *run.workers[1:]), updates_lost=None)
    found = verdicts([bare])
    assert found["updates-lost"].verdict is ClaimStatus.OUTSIDE_BAND
    assert found["accuracy.worker-0"].verdict is ClaimStatus.OUTSIDE_BAND
    assert found["loss.worker-0.epoch-9"].verdict is ClaimStatus.OUTSIDE_BAND
    assert found["global-varies"].verdict is ClaimStatus.INSUFFICIENT_RUNS


@pytest.mark.parametrize("place", [0, 1])
def test_the_last_to_end_must_be_the_best(place: int) -> None:
    def with_best(run: RunMetrics, best: float) -> RunMetrics:
        workers = list(run.workers)
        ends = sorted(range(3), key=lambda worker: workers[worker].tested_at or 0)
        index = ends[place]
        workers[index] = replace(workers[index], accuracy=best)
        return replace(run, workers=tuple(workers))

    good = verdicts(good_runs())["last-tests-best"]
    assert good.verdict is ClaimStatus.PASS
    worse = verdicts([with_best(run, 0.95) for run in good_runs()])["last-tests-best"]
    assert worse.verdict is ClaimStatus.OUTSIDE_BAND
    assert worse.ours.mean is not None
    assert worse.ours.mean < 0


def test_a_nan_loss_is_outside_and_can_be_shown() -> None:
    def diverged(step: Step) -> Step:
        return replace(step, loss=math.nan)

    run = good_runs()[0]
    workers = tuple(
        replace(worker, steps=tuple(map(diverged, worker.steps))) for worker in run.workers
    )
    found = verdicts([replace(run, workers=workers)])
    assert found["late-loss"].verdict is ClaimStatus.OUTSIDE_BAND
    assert found["late-loss"].ours.mean is None
    assert "is NaN" in found["late-loss"].why
    assert verdicts_table(list(found.values())).row_count == len(found)


def test_workers_without_records_are_not_in_step() -> None:
    run = bare_run(*[WorkerMetrics(())] * 3)
    found = verdicts([run], load("book-sync"))
    assert found["in-step"].verdict is ClaimStatus.INSUFFICIENT_RUNS


def late(begins: int, epochs: int = 2) -> RunMetrics:
    """A run in which worker 2 begins when the others have made this number of updates."""
    made = 550 * epochs
    others = WorkerMetrics((Step(made, 2 * made, epochs - 1, True, 1.0, 1.0),))
    last = WorkerMetrics((Step(110, begins + 110, 0, False, 2.0, 10.0),))
    return bare_run(others, others, last, parameters={"epochs": epochs}, start={"worker-2": "10s"})


@pytest.mark.parametrize(
    ("begins", "word"), [(2_200, ClaimStatus.PASS), (2_199, ClaimStatus.OUTSIDE_BAND)]
)
def test_a_late_starter_meets_a_finished_run(begins: int, word: ClaimStatus) -> None:
    found = verdicts(good_runs(), late=[late(begins)])
    assert found["late-starter"].verdict is word


@pytest.mark.parametrize(
    ("begins", "word"), [(54_999, ClaimStatus.PASS), (55_000, ClaimStatus.OUTSIDE_BAND)]
)
def test_in_a_long_training_a_late_starter_meets_the_others(begins: int, word: ClaimStatus) -> None:
    found = verdicts([], **{"late-long": [late(begins, 50)]})
    assert found["long-overlap"].verdict is word


def test_a_late_starter_without_records_is_not_skipped() -> None:
    met = late(20_000, 50)
    silent = replace(met, run_id="silent", workers=(*met.workers[:2], WorkerMetrics(())))
    found = verdicts([], **{"late-long": [met, silent]})["long-overlap"]
    assert found.verdict is ClaimStatus.INSUFFICIENT_RUNS
    assert "run silent" in found.why


def test_a_late_starters_steps_count_also_where_none_has_a_record_of_its_own() -> None:
    """Less than a hundred of them, before the others were done."""
    source = load("blog-async")
    few = replace(late(0), workers=(*late(0).workers[:2], WorkerMetrics((), ended_at=7)))
    none = replace(late(0), workers=(*late(0).workers[:2], WorkerMetrics(())))
    assert verdicts([], source, late=[few])["late-starter"].verdict is ClaimStatus.OUTSIDE_BAND
    assert verdicts([], source, late=[none])["late-starter"].verdict is ClaimStatus.PASS


def test_a_worker_that_was_not_slowed_sets_no_pace() -> None:
    steps = [Step(550 * e, 550 * e, e - 1, True, 1.0, float(e)) for e in range(1, 13)]
    run = bare_run(*[WorkerMetrics(tuple(steps))] * 3, faults=("slow:0.3 worker-0",))
    found = verdicts([], load("book-sync"), **{"slowed-sync": [run]})["slowest-sets-pace"]
    assert found.verdict is ClaimStatus.INSUFFICIENT_RUNS
    assert "0 epochs beside a slowed worker" in found.why


def losses(spread: float, updates: int, workers: int) -> RunMetrics:
    """Losses that wobble by so much."""
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(5)

    def worker(index: int) -> WorkerMetrics:
        wobble = np.exp(spread * random.standard_normal(updates))
        totals = range(1, updates + 1)
        steps = [
            Step(n, n if workers == 3 else 3 * n + index, 0, False, float(w), n / 10)
            for n, w in zip(totals, wobble, strict=True)
        ]
        return WorkerMetrics(tuple(steps))

    return bare_run(*map(worker, range(3)))


def test_the_mean_of_three_losses_is_steadier_than_one_of_them() -> None:
    sync, other = losses(0.3, 600, 3), losses(0.3, 600, 1)
    source = load("book-sync")
    found = verdicts([sync], source, **{"async": [other]})["steadier"]
    assert found.verdict is ClaimStatus.PASS
    assert found.ours.mean == pytest.approx(3**-0.5, rel=0.15)
    assert (
        verdicts([other], source, **{"async": [sync]})["steadier"].verdict
        is ClaimStatus.OUTSIDE_BAND
    )
    assert verdicts([sync], source)["steadier"].verdict is ClaimStatus.INSUFFICIENT_RUNS
    few = verdicts([losses(0.3, 60, 3)], source, **{"async": [other]})["steadier"]
    assert few.verdict is ClaimStatus.INSUFFICIENT_RUNS
    assert few.why.startswith("15 and 450 pairs, the test needs 100")


def test_the_blogs_losses_are_those_of_a_run_or_not() -> None:
    source = load("blog-async")
    claims = {claim.id: claim for claim in source.claims}
    printed = claims["loss-early"].keys["printed"]

    def told(factor: float) -> ClaimStatus:
        steps = tuple(
            Step(700 + n, 2_100 + n, 1, False, loss * factor, 1.0)
            for n, loss in enumerate(printed * 3)
        )
        run = bare_run(
            WorkerMetrics(steps), experiment="async-mlp", parameters={"global_steps": 50_000}
        )
        return verdicts([run], source)["loss-early"].verdict

    assert told(1.0) is told(1.05) is ClaimStatus.PASS
    assert told(0.4) is ClaimStatus.OUTSIDE_BAND  # as a synchronous training's at its higher rate


def test_unprinted_values_cannot_be_compared() -> None:
    found = verdicts([], load("blog-sync"))
    assert found["table"].verdict is found["accuracy"].verdict is ClaimStatus.NOT_COMPARABLE


@pytest.mark.parametrize("name", NAMES)
def test_every_source_is_readable_and_claim_names_are_unique(name: str) -> None:
    source = load(name)
    ids = [claim.id for claim in source.claims]
    assert len(ids) == len(set(ids))
    assert all(claim.where and claim.words for claim in source.claims)
    assert {claim.group for claim in source.claims} <= GROUPS.keys()
    assert {claim.source for claim in source.claims} <= SOURCES.keys()
    # Our own check is unique, and every other claim has its source.
    assert all((claim.group == "own") == (claim.source == "lab") for claim in source.claims)
    assert {claim.role for claim in source.claims} <= source.recipes.keys()


def test_verdicts_have_exit_codes() -> None:
    codes: dict[Any, int] = {word: word.exit_code for word in ClaimStatus}
    assert codes == {
        "PASS": 0, "OUTSIDE_BAND": 1, "TOO_GOOD": 1, "INSUFFICIENT_RUNS": 3, "NOT_COMPARABLE": 3,
    }  # fmt: skip
