"""Claims against runs: what is evidence and what is not, and faults of programs that are caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.errors import InconclusiveError, LabError
from lab.reproduce import measures
from lab.reproduce.claims import COUNTED, Claim, Source, load
from lab.reproduce.evaluation import Evaluation, check_reproduced, summary
from lab.reproduce.measures import reference
from lab.reproduce.metrics import RunMetrics, Step, WorkerMetrics
from lab.reproduce.verdicts import Result, Verdict, decide, judge
from tests.support.reproducing import (
    OWN,
    RUNS,
    by_seed,
    chapter_run,
    in_step,
    number,
    run_of,
    source_of,
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


def evaluation(results: Sequence[Result]) -> Evaluation:
    return Evaluation(
        name="book-async", source="", summary="", fitted={}, claims=results, runs={}, excluded={}
    )


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


def test_settings_and_checks_are_no_evidence() -> None:
    found = book()
    assert {found[name].kind for name in ("global-steps", "local-steps.worker-0")} == {"setting"}
    assert sum(each.kind in COUNTED for each in found.values()) == 6
    assert summary(found.values()).startswith("6 counted claims: ")
    claims = [number(0.6, 9), *[number(1, 0, id=f"s{i}", kind="setting") for i in range(9)]]
    values = {c.id: by_seed([1.0] * 8) for c in claims} | {"number": by_seed([0.5, 0.7] * 4)}
    alone = decide(source_of(claims[0]), values)["number"]
    assert decide(source_of(*claims), values)["number"] == alone  # nor do they change a level


# Faults of programs.


Change = Callable[[RunMetrics], RunMetrics]


def each_worker(change: Callable[[int, WorkerMetrics], WorkerMetrics]) -> Change:
    return lambda run: with_workers(run, change)


def half_speed(index: int, each: WorkerMetrics) -> WorkerMetrics:
    steps = [replace(s, total=int(s.total * 2.5 / 3)) for s in each.steps]
    if index == 2:
        steps = [replace(s, local=s.local // 2) for s in steps]
    return replace(each, steps=tuple(steps), local_step=OWN // 2 if index == 2 else OWN)


def rates(*each: float | None) -> Change:
    return each_worker(lambda index, worker: replace(worker, rate=each[index]))


def beside(by: float) -> Change:
    return lambda run: replace(run, accuracy=(run.accuracy or 0) + by)


def taking_turns(index: int, each: WorkerMetrics) -> WorkerMetrics:
    steps = (replace(s, total=3 * s.local + index - 2) for s in each.steps)
    return replace(each, steps=tuple(steps))


def lower(run: RunMetrics) -> RunMetrics:
    """By 0.006: the size of known faults of programs."""
    accuracy = 0.8834 + (run.seed or 0) / 10_000
    return with_workers(run, lambda _, each: replace(each, test_accuracy=accuracy))


NOT, FAILED, UNCLEAR = Verdict.NOT_REPRODUCED, Verdict.FAILED, Verdict.UNCLEAR


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (lower, {"accuracy-at-end": NOT}),
        (lambda run: replace(run, updates_lost=20_625 if run.seed == 3 else 0),
         {"updates-lost": FAILED}),
        (lambda run: replace(run, updates_lost=None), {"updates-lost": UNCLEAR}),
        (in_step, {"global-varies": NOT, "pace": NOT, "global-steps": FAILED}),
        (each_worker(taking_turns), {"global-no-pattern": NOT, "global-varies": NOT}),
        (each_worker(half_speed), {"pace": NOT, "local-steps.worker-2": FAILED}),
        (each_worker(lambda index, each: each if index < 2 else WorkerMetrics(())),
         {"local-steps.worker-2": FAILED, "pace": Verdict.INCONCLUSIVE,
          "accuracy-at-end": Verdict.INCONCLUSIVE, "accuracies-differ": Verdict.INCONCLUSIVE}),
        (rates(0.0075, 0.0075, 0.0075), {"learning-rate": FAILED}),
        (rates(0.01, 0.01, 0.0075), {"learning-rate": FAILED}),
        (rates(0.01, 0.01, None), {"learning-rate": UNCLEAR}),
        (beside(0.0), {"reference": Verdict.OK}),
        (beside(0.0054), {"reference": FAILED}),
        (beside(-0.0054), {"reference": FAILED}),
    ],
    ids=["lower accuracy", "lost updates", "unknown updates", "synchronous", "taking turns",
         "half speed", "an idle worker", "another rate", "a worker's rate", "unknown rate",
         "as the reference", "above the reference", "below the reference"],
)  # fmt: skip
def test_a_fault_of_the_program_is_caught(change: Change, verdicts: dict[str, Verdict]) -> None:
    found = book(change)
    assert {name: found[name].verdict for name in verdicts} == verdicts


def test_the_reasons_and_intervals_of_the_verdicts(snapshot: SnapshotAssertion) -> None:
    """Of good runs, and what differs from them after a change."""

    def shown(each: Result) -> str:
        ends = (each.ours, *([each.interval.low, each.interval.high] if each.interval else []))
        values = [value if value is None else float(f"{value:.4g}") for value in ends]
        return f"{each.verdict}: {each.why}; {values} of {len(each.values)}"

    def reasons(change: Change = lambda run: run) -> dict[str, str]:
        found = book(change).values()
        return {each.claim: shown(each) for each in found if each.kind != "fitted"}

    good = reasons()
    changes = {
        "lost updates": lambda run: replace(run, updates_lost=5 if run.seed == 3 else 0),
        "half speed": each_worker(half_speed),
        "beside": beside(0.0054),
        "near the margin": beside(0.0018),
        "not a number": beside(math.nan),
    }
    changed = {
        name: dict(reasons(change).items() - good.items()) for name, change in changes.items()
    }
    assert {"good": good, **changed} == snapshot


def test_a_run_without_a_reference_has_no_difference() -> None:
    other = replace(good_runs()[0], seed=99)
    assert judged(BOOK, whole=[other])["reference"].why == (
        "the run of seed 99 did not record this value"
    )


def test_an_asynchronous_run_that_is_labelled_synchronous_is_caught() -> None:
    found = judged(BOOK_SYNC, whole=good_runs())
    assert found["in-step"].verdict is Verdict.NOT_REPRODUCED
    assert found["global-steps"].verdict is Verdict.FAILED
    sync = reference("sync").mean()
    runs = [replace(in_step(run), accuracy=sync[run.seed or 0]) for run in good_runs()]
    assert judged(BOOK_SYNC, whole=runs)["in-step"].verdict is Verdict.REPRODUCED


def test_uncounted_claims_do_not_decide_the_exit_code() -> None:
    fine = {name: replace(each, verdict=Verdict.REPRODUCED) for name, each in book().items()}

    def code(**changed: Verdict) -> int:
        results = [
            replace(each, verdict=changed.get(each.kind, each.verdict)) for each in fine.values()
        ]
        try:
            check_reproduced([evaluation(results)])
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


FAULT_AT_END = slowed_run([(20, 100), (5, 200)], (20, 100), (6, 200))
UNKNOWN_FAULT = replace(
    FAULT_AT_END, workers=tuple(replace(each, slowed=None) for each in FAULT_AT_END.workers)
)


@pytest.mark.parametrize(
    ("claim", "run", "value"),
    [
        # Only records within the fault count for those that run ahead.
        *(("others-run-ahead", slowed_run([(20, 100), (5, 200), (other, 300)],
                                          (20, 100), (15, 200), (other, 300)), 3)
          for other in (1, 2, 40)),
        # A slowed worker is compared with the time after the fault.
        *(("slowest-sets-pace", slowed_run([(other, 100), (5, 200), (20, 300)],
                                           (other, 100), (6, 200), (20, 300)), 0.3)
          for other in (1, 2, 40)),
        ("slowest-sets-pace", FAULT_AT_END, None),
        ("slowest-sets-pace", UNKNOWN_FAULT, None),
        ("others-run-ahead", UNKNOWN_FAULT, None),
    ],
)  # fmt: skip
def test_the_speeds_during_and_after_a_fault(
    claim: str, run: RunMetrics, value: float | None
) -> None:
    role = claim_of(BOOK_SYNC, claim).role.replace("-", "_")
    found = value_of(BOOK_SYNC, claim, **{role: run})
    assert found == (value if value is None else pytest.approx(value, rel=0.02))


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


def stale(role: str, loss: float, staleness: float = 2.9) -> RunMetrics:
    return run_of(STALE, role, 1, mean_staleness=staleness, results={"test loss": loss})


ALONE, SEVERAL = stale("alone", 0.5, 0), stale("several", 0.6)


@pytest.mark.parametrize("cure", ["rate", "batch"])
@pytest.mark.parametrize(("several", "value"), [(SEVERAL, 1.2), (stale("several", 0.6, 0), None)])
def test_a_remedy_is_measured_by_the_harm_without_it(
    cure: str, several: RunMetrics, value: float | None
) -> None:
    roles = {
        f"alone_small_{cure}": stale(f"alone-small-{cure}", 0.4, 0),
        f"several_small_{cure}": stale(f"several-small-{cure}", 0.4),
    }
    found = value_of(STALE, f"smaller-{cure}", alone=ALONE, several=several, **roles)
    assert found == (value if value is None else pytest.approx(value))
