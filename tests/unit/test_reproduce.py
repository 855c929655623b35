"""Claims against runs: what is evidence and what is not, and faults of programs that are caught."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lab.errors import InconclusiveError, LabError
from lab.reproduce import measures
from lab.reproduce.claims import COUNTED, Claim, Source, load
from lab.reproduce.metrics import RunMetrics, Step, WorkerMetrics
from lab.reproduce.reference import reference
from lab.reproduce.verdicts import Result, Verdict, decide, judge
from lab.reproduce.view import summary
from lab.service.evaluation import Evaluation, check_reproduced
from tests.support.reproducing import (
    OWN,
    RUNS,
    by_seed,
    chapter_run,
    in_step,
    number,
    run_of,
    source_of,
    statement,
    worker,
)

SEEDS = range(1, RUNS + 1)
BOOK, BOOK_SYNC, STALE = load("book-async"), load("book-sync"), load("staleness")


@cache
def good_runs(role: str = "whole") -> tuple[RunMetrics, ...]:
    return tuple(chapter_run(BOOK, seed, role) for seed in SEEDS)


def judged(source: Source, **roles: Sequence[RunMetrics]) -> dict[str, Result]:
    """The results of a source, by claim; role names have `_` for `-`."""
    given = {role.replace("_", "-"): runs for role, runs in roles.items()}
    runs = {role: {r.seed or 0: r for r in given.get(role, ())} for role in source.recipes}
    return {each.claim: each for each in judge(source, runs)}


def book(change: Callable[[RunMetrics], RunMetrics] = lambda run: run) -> dict[str, Result]:
    """The results of the book's asynchronous training, with changed runs."""
    return judged(
        BOOK,
        whole=[*map(change, good_runs())],
        late_worker=[*map(change, good_runs("late-worker"))],
    )


def words(found: Mapping[str, Result], *kinds: str) -> set[Verdict]:
    return {each.verdict for each in found.values() if each.kind in kinds}


def with_workers(
    run: RunMetrics, change: Callable[[int, WorkerMetrics], WorkerMetrics]
) -> RunMetrics:
    return replace(run, workers=tuple(change(i, each) for i, each in enumerate(run.workers)))


def claim_of(source: Source, name: str) -> Claim:
    return next(each for each in source.claims if each.id == name)


def value_of(source: Source, name: str, **roles: RunMetrics) -> float | None:
    """The value of one run."""
    runs = {r: {run.seed or 0: run for k, run in roles.items() if k.replace("_", "-") == r}
            for r in source.recipes}  # fmt: skip
    (value,) = measures.values(claim_of(source, name), runs).values()
    return value


def test_good_runs_of_the_chapter_have_no_deviation() -> None:
    found = book()
    assert words(found, "setting", "check") == {Verdict.OK}
    assert words(found, "fitted") <= {Verdict.REPRODUCED, Verdict.INCONCLUSIVE}
    assert words(found, "qualitative") == {Verdict.REPRODUCED}
    assert found["pace"].verdict is Verdict.REPRODUCED
    assert words(found, "measured") == {Verdict.REPRODUCED, Verdict.INCONCLUSIVE}


# What is evidence.


def test_a_printed_accuracy_is_compared_with_our_runs() -> None:
    """0.006 lower: the size of known faults of programs."""

    def lower(run: RunMetrics) -> RunMetrics:
        accuracy = 0.8834 + (run.seed or 0) / 10_000
        return with_workers(run, lambda _, each: replace(each, accuracy=accuracy))

    assert book(lower)["accuracy-at-end"].verdict is Verdict.NOT_REPRODUCED


def test_a_printed_loss_far_from_ours_is_not_reproduced_whatever_the_spread() -> None:
    for spread, word in ((0.01, Verdict.NOT_REPRODUCED), (0.0998, Verdict.INCONCLUSIVE)):
        values = [0.5988 + spread * x for x in (-1.3, -0.9, -0.5, -0.1, 0.1, 0.5, 0.9, 1.3)]
        claim = number(0.4877, 0.1)
        assert decide(source_of(claim), {"number": by_seed(values)})["number"].verdict is word


def test_settings_and_checks_are_no_evidence() -> None:
    found = book()
    assert {found[name].kind for name in ("global-steps", "local-steps.worker-0")} == {"setting"}
    assert sum(each.kind in COUNTED for each in found.values()) == 6
    assert summary(found.values()).startswith("6 counted claims: ")
    claims = [number(0.6, 9), *[number(1, 0, id=f"s{i}", kind="setting") for i in range(9)]]
    values = {c.id: by_seed([1.0] * 8) for c in claims} | {"number": by_seed([0.5, 0.7] * 4)}
    alone = decide(source_of(claims[0]), values)["number"]
    assert decide(source_of(*claims), values)["number"] == alone  # nor do they change a level


def test_claims_on_runs_with_a_fitted_parameter_are_not_counted() -> None:
    fitted = {role for role, recipe in BOOK.recipes.items() if recipe.fitted}
    assert fitted == {"late-worker"}
    assert not [c for c in BOOK.claims if c.role in fitted and c.kind in COUNTED]
    steps = [c for c in BOOK.claims if c.id.startswith(("global-step.", "last-steps."))]
    assert len(steps) == 15
    assert [c.kind for c in steps] == ["fitted"] * 13 + ["setting"] * 2


def test_a_mean_of_three_workers_is_no_steadier_loss() -> None:
    """Each worker's losses have the same spread in both modes; a mean of three has 0.58 of it."""
    post = load("blog-sync")

    def run(role: str, seed: int, spread: float) -> RunMetrics:
        random = np.random.default_rng([seed, len(role)])
        losses = np.exp(spread * random.standard_normal((3, 300)))
        workers = [
            worker(range(5, 1505, 5), every=5, losses=each.tolist(), rate=0.8) for each in losses
        ]
        return run_of(post, role, seed, workers)

    def found(spread: float) -> Verdict:
        return judged(
            post,
            whole=[run("whole", seed, spread) for seed in SEEDS],
            **{"async": [run("async", seed, 0.3) for seed in SEEDS]},
        )["steadier"].verdict

    assert found(0.3) is Verdict.NOT_REPRODUCED
    assert found(0.2) is Verdict.REPRODUCED


def test_finding_no_difference_is_no_evidence() -> None:
    claims = number(0.6, 0.1), statement()
    values = {"number": by_seed([0.1, 1.1] * 4), "statement": by_seed([-1.0, 1.0] * 4)}
    found = decide(source_of(*claims), values).values()
    assert {each.verdict for each in found} == {Verdict.INCONCLUSIVE}


def test_more_runs_do_not_refuse_a_number_that_any_run_could_have() -> None:
    """A third of our spread from our mean: with enough runs, a test of the mean always rejects."""
    values = np.random.default_rng(1).standard_normal(2_000)
    for n in (8, 2_000):
        claim, given = number(0.33, 99), by_seed(values[:n].tolist())
        assert decide(source_of(claim), {"number": given})["number"].verdict is Verdict.REPRODUCED


def test_the_unit_is_the_run() -> None:
    """Thousands of records of one run are one value."""
    found = judged(BOOK, whole=good_runs()[:1])
    for each in found.values():
        assert len(each.values) <= 1
        assert each.kind not in COUNTED or each.verdict is Verdict.INCONCLUSIVE
    assert found["global-varies"].why == "1 of 8 runs"
    assert "in 8 of 8 runs, sign test: p 0.00391" in book()["global-varies"].why


def test_equal_values_of_all_runs_have_no_p_of_zero() -> None:
    claims = [statement(f"s{i}") for i in range(13)]  # 5% over 13 is less than 1/256
    values = {c.id: by_seed([1.0] * 8) for c in claims}
    for several, word in ((claims[:12], Verdict.REPRODUCED), (claims, Verdict.INCONCLUSIVE)):
        found = decide(source_of(*several), values)["s0"]
        assert (found.verdict, found.why.endswith("p 0.00391")) == (word, True)


# Faults of programs.


def test_lost_updates_are_caught() -> None:
    found = book(lambda run: replace(run, updates_lost=20_625 if run.seed == 3 else 0))
    assert found["updates-lost"].verdict is Verdict.FAILED
    assert found["updates-lost"].why == "differs in 1 of 8 runs"
    unknown = book(lambda run: replace(run, updates_lost=None))
    assert unknown["updates-lost"].verdict is Verdict.UNCLEAR


def test_a_synchronous_run_that_is_labelled_asynchronous_is_caught() -> None:
    found = book(in_step)
    assert found["global-varies"].verdict is Verdict.NOT_REPRODUCED
    assert found["pace"].verdict is Verdict.NOT_REPRODUCED
    assert found["global-steps"].verdict is Verdict.FAILED
    with pytest.raises(
        LabError, match="not reproduced: 2 of 6 counted claims, such as pace"
    ) as caught:
        check_reproduced([Evaluation(BOOK, list(found.values()), {})])
    assert caught.value.exit_code == 1


def test_an_asynchronous_run_that_is_labelled_synchronous_is_caught() -> None:
    found = judged(BOOK_SYNC, whole=good_runs())
    assert found["in-step"].verdict is Verdict.NOT_REPRODUCED
    assert found["global-steps"].verdict is Verdict.FAILED
    sync = reference("sync").by_seed
    runs = [replace(in_step(run), accuracy=sync[run.seed or 0]) for run in good_runs()]
    assert judged(BOOK_SYNC, whole=runs)["in-step"].verdict is Verdict.REPRODUCED


def test_workers_that_take_turns_are_caught() -> None:
    def turn(index: int, each: WorkerMetrics) -> WorkerMetrics:
        return replace(
            each, steps=tuple(replace(s, total=3 * s.local + index - 2) for s in each.steps)
        )

    found = book(lambda run: with_workers(run, turn))
    assert found["global-no-pattern"].verdict is Verdict.NOT_REPRODUCED
    assert found["global-varies"].verdict is Verdict.NOT_REPRODUCED


def test_an_idle_worker_is_caught() -> None:
    def idle(index: int, each: WorkerMetrics) -> WorkerMetrics:
        return each if index < 2 else WorkerMetrics(())

    found = book(lambda run: with_workers(run, idle))
    assert found["local-steps.worker-2"].verdict is Verdict.FAILED
    assert not {found[n].verdict for n in ("pace", "accuracy-at-end", "accuracies-differ")} & {
        Verdict.REPRODUCED
    }


def test_a_worker_at_half_speed_is_caught() -> None:
    def of(index: int, each: WorkerMetrics) -> WorkerMetrics:
        steps = [replace(s, total=int(s.total * 2.5 / 3)) for s in each.steps]
        if index == 2:
            steps = [replace(s, local=s.local // 2) for s in steps]
        return replace(each, steps=tuple(steps), ended_at=OWN // 2 if index == 2 else OWN)

    found = book(lambda run: with_workers(run, of))
    assert found["pace"].verdict is Verdict.NOT_REPRODUCED
    assert found["pace"].ours == pytest.approx(2.5, abs=0.01)
    assert found["local-steps.worker-2"].verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("rates", "word"),
    [((0.0075,) * 3, Verdict.FAILED), ((0.01, 0.01, 0.0075), Verdict.FAILED),
     ((0.01, 0.01, None), Verdict.UNCLEAR)],
)  # fmt: skip
def test_a_wrong_learning_rate_is_caught(rates: Sequence[float | None], word: Verdict) -> None:
    found = book(lambda run: with_workers(run, lambda i, each: replace(each, rate=rates[i])))
    assert found["learning-rate"].verdict is word


def test_an_accuracy_beside_the_reference_is_caught() -> None:
    for shift, word in ((0.0, Verdict.OK), (0.0054, Verdict.FAILED), (-0.0054, Verdict.FAILED)):
        found = book(lambda run, by=shift: replace(run, accuracy=(run.accuracy or 0) + by))
        assert found["reference"].verdict is word
    other = replace(good_runs()[0], seed=99)
    assert judged(BOOK, whole=[other])["reference"].why == (
        "the run of seed 99 did not record this value"
    )


def test_uncounted_claims_do_not_decide_the_exit_code() -> None:
    fine = {name: replace(each, verdict=Verdict.REPRODUCED) for name, each in book().items()}

    def code(**changed: Verdict) -> int:
        results = [
            replace(each, verdict=changed.get(each.kind, each.verdict)) for each in fine.values()
        ]
        try:
            check_reproduced([Evaluation(BOOK, results, {})])
        except LabError as error:
            assert isinstance(error, InconclusiveError) == (error.exit_code == 3)
            return error.exit_code
        return 0

    failed, unclear = Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE
    assert code() == code(fitted=failed, setting=Verdict.FAILED, check=Verdict.FAILED) == 0
    assert code(fitted=unclear, setting=Verdict.UNCLEAR, check=Verdict.UNCLEAR) == 0
    assert code(measured=unclear) == code(qualitative=unclear) == 3
    assert code(measured=failed, qualitative=unclear) == code(qualitative=failed) == 1


# Single values.


def paced(*phases: tuple[float, float], slowed: tuple[float, float] | None = None) -> WorkerMetrics:
    """A worker with these own steps per second until each time in seconds; a record for each 10."""
    steps, now, local = [], 0.0, 0
    for speed, until in phases:
        while now + 10 / speed <= until:
            now, local = now + 10 / speed, local + 10
            steps.append(Step(local, local, 0.5, now))
    return WorkerMetrics(tuple(steps), slowed=slowed)


def slowed_run(slow: Sequence[tuple[float, float]], *others: tuple[float, float]) -> RunMetrics:
    """Worker 0 is slowed from 100 s to 200 s."""
    workers = [paced(*slow, slowed=(100.0, 200.0)), paced(*others), paced(*others)]
    return run_of(BOOK_SYNC, "slowed-async", 1, workers)


@pytest.mark.parametrize("after", [1, 2, 40])
def test_only_records_within_a_fault_count_for_those_that_run_ahead(after: int) -> None:
    run = slowed_run([(20, 100), (5, 200), (after, 300)], (20, 100), (15, 200), (after, 300))
    found = value_of(BOOK_SYNC, "others-run-ahead", slowed_async=run)
    assert found == pytest.approx(3, rel=0.02)


@pytest.mark.parametrize("before", [1, 2, 40])
def test_a_slowed_worker_is_compared_with_the_time_after_the_fault(before: int) -> None:
    run = slowed_run([(before, 100), (5, 200), (20, 300)], (before, 100), (6, 200), (20, 300))
    found = value_of(BOOK_SYNC, "slowest-sets-pace", slowed_sync=run)
    assert found == pytest.approx(0.3, rel=0.02)


def test_a_run_without_a_known_fault_has_no_value() -> None:
    run = with_workers(slowed_run([(20, 300)], (20, 300)), lambda _, w: replace(w, slowed=None))
    assert value_of(BOOK_SYNC, "others-run-ahead", slowed_async=run) is None
    assert value_of(BOOK_SYNC, "slowest-sets-pace", slowed_sync=run) is None
    early = slowed_run([(20, 100), (5, 200)], (20, 100), (6, 200))  # it ends with the fault
    assert value_of(BOOK_SYNC, "slowest-sets-pace", slowed_sync=early) is None


def test_a_value_needs_the_records_that_it_is_about() -> None:
    """Of a short, silent or odd run: no value, and no error."""
    silent = replace(good_runs()[0], workers=(WorkerMetrics(()), *good_runs()[0].workers[1:]))
    few = with_workers(good_runs()[0], lambda _, each: replace(each, steps=each.steps[-3:]))
    stuck = with_workers(
        good_runs()[0],
        lambda _, each: replace(each, steps=tuple(replace(s, local=100) for s in each.steps)),
    )
    for run, names in (
        (silent, ("pace", "accuracy-at-end", "global-varies", "global-no-pattern")),
        (few, ("pace", "global-varies", "global-no-pattern")),
        (stuck, ("pace", "global-varies")),
    ):
        assert {name: value_of(BOOK, name, whole=run) for name in names} == dict.fromkeys(names)
    short = with_workers(good_runs()[0], lambda _, each: replace(each, steps=each.steps[:50]))
    assert value_of(BOOK, "losses", whole=short) is None


def test_printed_losses_are_compared_with_those_at_the_same_global_steps() -> None:
    steps = claim_of(BOOK, "losses").keys["steps"]

    def of(_: int, each: WorkerMetrics) -> WorkerMetrics:
        near = (min(abs(s.total - step) for step in steps) < 400 for s in each.steps)
        found = zip(each.steps, near, strict=True)
        return replace(each, steps=tuple(replace(s, loss=0.25 if n else 9.0) for s, n in found))

    run = with_workers(good_runs()[0], of)
    assert value_of(BOOK, "losses", whole=run) == pytest.approx(0.25)


def stale(role: str, loss: float, staleness: float = 2.9, seed: int = 1) -> RunMetrics:
    return run_of(STALE, role, seed, mean_staleness=staleness, results={"test loss": loss})


def test_the_harm_of_stale_gradients_is_the_ratio_of_the_losses_of_one_seed() -> None:
    alone, several = stale("alone", 0.5, 0), stale("several", 0.6)
    assert value_of(STALE, "overshoot", alone=alone, several=several) == pytest.approx(1.2)
    fresh, diverged = replace(several, mean_staleness=1.4), stale("several", float("nan"))
    other = stale("alone", 0.5, 0, seed=2)
    assert value_of(STALE, "overshoot", alone=alone, several=fresh) is None
    assert value_of(STALE, "overshoot", alone=alone, several=diverged) is None
    assert value_of(STALE, "overshoot", alone=other, several=several) is None


@pytest.mark.parametrize("cure", ["rate", "batch"])
def test_a_remedy_is_measured_by_the_harm_without_it(cure: str) -> None:
    roles = {
        "alone": stale("alone", 0.5, 0),
        "several": stale("several", 0.6),
        f"alone_small_{cure}": stale(f"alone-small-{cure}", 0.4, 0),
        f"several_small_{cure}": stale(f"several-small-{cure}", 0.4),
    }
    assert value_of(STALE, f"smaller-{cure}", **roles) == pytest.approx(1.2)
    assert value_of(STALE, f"smaller-{cure}", **{**roles, "several": stale("several", 0.6, 0)}) is (
        None
    )
