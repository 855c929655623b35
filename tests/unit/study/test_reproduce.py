"""Claims against runs: what is evidence and what is not, and faults of programs that are caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest

from lab.base.errors import InconclusiveError, LabError
from lab.study.reproduce.claims import COUNTED, Source, load
from lab.study.reproduce.measures import reference
from lab.study.reproduce.verdicts import (
    Result,
    Verdict,
    check_reproduced,
    decide,
    judge,
    summary,
    values_of,
)
from tests.support.reproducing import (
    OWN,
    RUNS,
    MadeRun,
    Records,
    by_seed,
    chapter_run,
    in_step,
    number,
    run_of,
    slowed,
    source_of,
    worker,
)

SEEDS = range(1, RUNS + 1)
BOOK, BOOK_SYNC, POST, STALE = map(load, ("book-async", "book-sync", "blog-sync", "staleness"))

Change = Callable[[MadeRun], MadeRun]


@cache
def good_runs(role: str = "whole") -> tuple[MadeRun, ...]:
    return tuple(chapter_run(BOOK, seed, role) for seed in SEEDS)


def judged(source: Source, **roles: Sequence[MadeRun]) -> dict[str, Result]:
    given = {role.replace("_", "-"): runs for role, runs in roles.items()}
    runs = {
        role: {run.info.seed or 0: run.read() for run in given.get(role, ())}
        for role in source.recipes
    }
    return {result.claim: result for result in judge(source, runs)}


def book(change: Change = lambda run: run) -> dict[str, Result]:
    return judged(BOOK, whole=[*map(change, good_runs())])


def words(results: dict[str, Result], *kinds: str) -> set[Verdict]:
    return {result.verdict for result in results.values() if result.kind in kinds}


def value_of(source: Source, name: str, **roles: MadeRun) -> float | None:
    claim = next(claim for claim in source.claims if claim.id == name)
    runs: dict[str, Any] = {role: {} for role in source.recipes}
    for role, run in roles.items():
        runs[role.replace("_", "-")] = {run.info.seed: run.read()}
    (value,) = values_of(claim, runs).values()
    return value


NOT, OK, FAILED, UNCLEAR = (
    Verdict.NOT_REPRODUCED, Verdict.OK, Verdict.FAILED, Verdict.UNCLEAR,
)  # fmt: skip


def test_good_runs_of_the_chapter_have_no_deviation() -> None:
    found = judged(BOOK, whole=good_runs(), late_worker=good_runs("late-worker"))
    assert words(found, "setting", "check") == {OK}
    assert words(found, "fitted") <= {Verdict.REPRODUCED, Verdict.INCONCLUSIVE}
    assert words(found, "qualitative") == {Verdict.REPRODUCED}
    assert found["pace"].verdict is Verdict.REPRODUCED
    assert words(found, "measured") == {Verdict.REPRODUCED, Verdict.INCONCLUSIVE}


def test_settings_and_checks_are_no_evidence() -> None:
    found = book()
    assert {found[name].kind for name in ("global-steps", "local-steps.worker-0")} == {"setting"}
    assert (found["accuracies-differ"].kind, found["accuracies-differ"].verdict) == ("check", OK)
    assert summary(found.values()).startswith("3 measured numbers: ")
    assert summary(found.values()).endswith("; 2 statements: 2 REPRODUCED")
    claims = [number(0.6, 9), *[number(1, 0, id=f"s{i}", kind="setting") for i in range(9)]]
    given = {c.id: by_seed([1.0] * 8) for c in claims} | {"number": by_seed([0.5, 0.7] * 4)}
    alone = decide(source_of(claims[0]), given)
    assert decide(source_of(*claims), given)[:1] == alone  # nor do they change a level


def half_speed(run: MadeRun) -> MadeRun:
    """Worker 2 makes half as many steps of its own."""

    def step(index: int, record: dict[str, Any]) -> dict[str, int]:
        own = record["local_step"] // (2 if index == 2 else 1)
        return {"local_step": own, "global_step": int(record["global_step"] * 2.5 / 3)}

    def end(index: int, record: dict[str, Any]) -> dict[str, int]:
        return {"local_step": OWN // 2} if index == 2 and "probe" not in record else {}

    return run.with_records("step", step).with_records("final", end)


def rates(*rates: float | None) -> Change:
    return lambda run: run.with_records("event", lambda i, _: {"learning_rate": rates[i]})


def accuracy_of(run: MadeRun) -> float:
    return next(float(r["accuracy"]) for r in run.workers[0] if "probe" in r)


def at_end(**of_seed: Callable[[MadeRun], object]) -> Change:
    """Another result of the final test of the parameters."""

    def change(run: MadeRun) -> MadeRun:
        facts = {name: value(run) for name, value in of_seed.items()}
        return run.with_records("final", lambda _, r: facts if "probe" in r else {})

    return change


def beside(by: float) -> Change:
    return at_end(accuracy=lambda run: accuracy_of(run) + by)


def lost(updates: int) -> Change:
    return at_end(probe=lambda run: 3 * OWN - (updates if run.info.seed == 3 else 0))


def taking_turns(run: MadeRun) -> MadeRun:
    return run.with_records("step", lambda i, r: {"global_step": 3 * r["local_step"] + i - 2})


def lower(run: MadeRun) -> MadeRun:
    """By 0.006: the size of known faults of programs."""
    accuracy = 0.8834 + (run.info.seed or 0) / 10_000
    return run.with_records("eval", lambda *_: {"accuracy": accuracy})


def idle(run: MadeRun) -> MadeRun:
    return replace(run, workers=(*run.workers[:2], []))


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (lower, {"accuracy-at-end": NOT}),
        (lost(20_625), {"updates-lost": FAILED}),
        (at_end(probe=lambda _: None), {"updates-lost": UNCLEAR}),
        (in_step, {"global-varies": NOT, "pace": NOT, "global-steps": FAILED}),
        (taking_turns, {"global-no-pattern": NOT, "global-varies": NOT}),
        (half_speed, {"pace": NOT, "local-steps.worker-2": FAILED}),
        (idle, {"local-steps.worker-2": FAILED, "pace": Verdict.INCONCLUSIVE,
                "accuracy-at-end": Verdict.INCONCLUSIVE,
                "accuracies-differ": UNCLEAR}),
        (rates(0.0075, 0.0075, 0.0075), {"learning-rate": FAILED}),
        (rates(0.01, 0.01, 0.0075), {"learning-rate": FAILED}),
        (rates(0.01, 0.01, None), {"learning-rate": UNCLEAR}),
        (beside(0.0054), {"reference": FAILED}),
        (beside(-0.0054), {"reference": FAILED}),
        (lambda run: run.but(seed=90 + (run.info.seed or 0)), {"reference": UNCLEAR}),
    ],
    ids=["lower accuracy", "lost updates", "unknown updates", "synchronous", "taking turns",
         "half speed", "an idle worker", "another rate", "a worker's rate", "unknown rate",
         "above the reference", "below the reference", "without a reference"],
)  # fmt: skip
def test_a_fault_of_the_program_is_caught(change: Change, verdicts: dict[str, Verdict]) -> None:
    found = book(change)
    assert {name: found[name].verdict for name in verdicts} == verdicts


def test_a_failed_check_is_the_reason_of_all_claims_on_its_runs() -> None:
    for change, check, reason in (
        (lost(5), "updates-lost", "differs in 1 of 8 runs"),
        (beside(0.0054), "reference", "the interval is outside ±0.002"),
    ):
        found = book(change)
        doubted = f"its runs are not those of the source: {check} FAILED"
        assert found[check].why == reason
        assert found["pace"].verdict is Verdict.INCONCLUSIVE
        assert {found[name].why for name in ("pace", "global-varies")} == {doubted}
    unclear = book(beside(0.0018))
    assert unclear["reference"].why == "the interval reaches beyond ±0.002"
    assert unclear["pace"].verdict is Verdict.REPRODUCED
    assert book(lambda run: idle(lost(5)(run)))["pace"].why.startswith("the run of seed 1 has no")


def test_an_asynchronous_run_that_is_labelled_synchronous_is_caught() -> None:
    found = judged(BOOK_SYNC, whole=good_runs())
    assert found["in-step"].verdict is FAILED
    assert found["global-steps"].verdict is FAILED
    sync = reference("sync").mean()
    as_reference = at_end(accuracy=lambda run: sync[run.info.seed])
    runs = [in_step(as_reference(run)) for run in good_runs()]
    assert judged(BOOK_SYNC, whole=runs)["in-step"].verdict is OK


def test_uncounted_claims_do_not_decide_the_exit_code() -> None:
    fine = [replace(each, verdict=Verdict.REPRODUCED) for each in book().values()]

    def code(**verdicts: Verdict) -> int:
        results = [replace(r, verdict=verdicts.get(r.kind, r.verdict)) for r in fine]
        try:
            check_reproduced([Mock(claims=results)])
        except LabError as error:
            assert isinstance(error, InconclusiveError) == (error.exit_code == 3)
            return error.exit_code
        return 0

    assert sum(result.kind in COUNTED for result in fine) == 5
    unclear = Verdict.INCONCLUSIVE
    assert code() == code(fitted=NOT, setting=FAILED, check=FAILED) == 0
    assert code(fitted=unclear, setting=UNCLEAR, check=UNCLEAR) == 0
    assert code(measured=unclear) == code(qualitative=unclear) == 3
    assert code(measured=NOT, qualitative=unclear) == code(qualitative=NOT) == 1


def paced(*phases: tuple[float, float]) -> Records:
    """A worker with these own steps per second until each time in seconds; a record for each 10."""
    times, now = [], 0.0
    for speed, until in phases:
        while now + 10 / speed <= until:
            now += 10 / speed
            times.append(now)
    return worker(range(len(times)), every=10, times=times)


def slow_run(slow: Sequence[tuple[float, float]], *others: tuple[float, float]) -> MadeRun:
    """Worker 0 is slowed from 100 s to 200 s."""
    workers = [slowed(paced(*slow), 100, 200), paced(*others), paced(*others)]
    return run_of(BOOK_SYNC, "slowed-async", 1, workers)


def known(*times: float) -> Records:
    return worker([1] * len(times), every=10, times=times)


FAULT_AT_END = slow_run([(20, 100), (5, 200)], (20, 100), (6, 200))
ONE_WAITS = run_of(
    BOOK_SYNC, "slowed-async", 1,
    [slowed(paced((5, 300)), 100, 200), paced((20, 300)), known(0, 50, 150, 250, 300)],
)  # fmt: skip
UNKNOWN_FAULT = FAULT_AT_END.with_records("event", lambda *_: {"message": ""})
FROM_FIRST_TO_LAST = run_of(
    BOOK_SYNC, "slowed-async", 1,
    [slowed(known(0, 2, 4, 6, 8, 10, 11, 12, 13, 20), 0, 10),
     known(0, 1, 3, 4, 6, 10, 14, 16, 18, 20)],
)  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "run", "value"),
    [
        # Only records within the fault count for those that run ahead.
        *(("others-run-ahead", slow_run([(20, 100), (5, 200), (other, 300)],
                                        (20, 100), (15, 200), (other, 300)), 3)
          for other in (1, 40)),
        # A slowed worker is compared with the time after the fault.
        *(("slowest-sets-pace", slow_run([(other, 100), (5, 200), (20, 300)],
                                         (other, 100), (6, 200), (20, 300)), 0.3)
          for other in (1, 40)),
        ("slowest-sets-pace", FAULT_AT_END, None),
        # Each worker has records in the time that counts.
        ("slowest-sets-pace", slow_run([(20, 100), (5, 200), (0.11, 300)], (20, 300)), None),
        ("others-run-ahead", ONE_WAITS, None),
        ("slowest-sets-pace", UNKNOWN_FAULT, None),
        ("others-run-ahead", UNKNOWN_FAULT, None),
        ("others-run-ahead", FROM_FIRST_TO_LAST, (50 / 10) / (50 / 10)),
        ("slowest-sets-pace", FROM_FIRST_TO_LAST, (50 / 10) / (40 / 10)),
    ],
)  # fmt: skip
def test_the_speeds_during_and_after_a_fault(claim: str, run: MadeRun, value: float | None) -> None:
    role = {"others-run-ahead": "slowed_async", "slowest-sets-pace": "slowed_sync"}[claim]
    found = value_of(BOOK_SYNC, claim, **{role: run})
    assert found == (value if value is None else pytest.approx(value, rel=0.02))


def with_steps(run: MadeRun, places: slice) -> MadeRun:
    """The same with these records of each worker."""
    return replace(run, workers=tuple(records[places] for records in run.workers))


def test_a_value_needs_the_records_that_it_is_about() -> None:
    """Of a short, silent or odd run: no value, and no error."""
    good = good_runs()[0]
    silent = replace(good, workers=([], *good.workers[1:]))
    stuck = good.with_records("step", lambda *_: {"local_step": 100})
    for run, names in (
        (
            silent,
            ("pace", "accuracy-at-end", "accuracies-differ", "global-varies", "global-no-pattern"),
        ),
        (with_steps(good, slice(4)), ("pace", "global-varies", "global-no-pattern")),
        (stuck, ("pace", "global-varies")),
        (with_steps(good, slice(51)), ("losses",)),
    ):
        assert {name: value_of(BOOK, name, whole=run) for name in names} == dict.fromkeys(names)


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "step"}, {"kind": "step", "local_step": math.nan},
        {"kind": "step", "local_step": True, "global_step": 1, "loss": 1, "time_unix": 1},
        {"kind": "eval", "accuracy": "\x1b[31m"}, {"kind": "event", "message": 5},
        {"kind": "event", "message": "fault: slow:0.3,15s worker-0"},
        {"kind": "final", "local_step": "9"}, {"kind": "event", "learning_rate": "x"},
    ],
)  # fmt: skip
def test_an_invalid_record_has_no_value(line: dict[str, Any]) -> None:
    run = run_of(BOOK_SYNC, "whole", 1)
    run = replace(run, workers=([line], *run.workers[1:]))
    names = ("slowest-sets-pace", "others-run-ahead", "learning-rate")
    for name in names:
        assert value_of(BOOK_SYNC, name, whole=run, slowed_sync=run, slowed_async=run) is None
    assert value_of(BOOK_SYNC, "local-total", whole=run) == 2 * 100


def test_printed_losses_are_compared_with_those_at_the_same_global_steps() -> None:
    steps = next(claim for claim in BOOK.claims if claim.id == "losses").keys["steps"]

    def loss(_: int, record: dict[str, Any]) -> dict[str, float]:
        near = min(abs(record["global_step"] - step) for step in steps) < 400
        return {"loss": 0.25 if near else 9.0}

    run = good_runs()[0].with_records("step", loss)
    assert value_of(BOOK, "losses", whole=run) == pytest.approx(0.25)


def test_steadiness_is_of_neighbours_in_the_second_half() -> None:
    """Wild losses, then as many whose neighbours have a ratio or its inverse, and one more."""

    def run(role: str, ratio: float) -> MadeRun:
        late = [1.0, ratio, 1.0, 1 / ratio] * 15
        losses = [*[100.0, 0.01] * 30, *late[:8], 0.0, math.inf, *late[8:], 5.0]  # two are none
        return run_of(POST, role, 1, [worker(range(len(losses)), losses=losses)])

    runs = {"whole": run("whole", math.e**2), "async": run("async", math.e)}
    assert value_of(POST, "steadier", **runs) == pytest.approx(2.0)


def test_the_growth_of_the_global_step_is_for_each_own_step() -> None:
    # The records are 10 own steps apart, then 20; the global step always grows by 2 for each.
    own = [sum(([10] * 20 + [20] * 20)[:place]) for place in range(1, 41)]
    totals = [2 * local for local in own]

    def run(*totals: list[int]) -> MadeRun:
        made = run_of(BOOK, "whole", 1, [worker(each) for each in totals])
        local = {100 * place: local for place, local in enumerate(own, start=1)}
        return made.with_records("step", lambda _, r: {"local_step": local[r["local_step"]]})

    odd = run([*totals[:-1], totals[-1] + 5])
    assert value_of(BOOK, "global-varies", whole=run(totals)) == 0
    assert value_of(BOOK, "global-varies", whole=odd) == 1 / 39
    assert value_of(BOOK, "global-no-pattern", whole=odd) == 1.0
    assert value_of(BOOK, "global-no-pattern", whole=run(totals, totals[1::2])) is None


def stale(role: str, loss: float, staleness: float = 1.5) -> MadeRun:
    """A run by four workers, or one, with this mean staleness."""
    run = run_of(STALE, role, 1, test_loss=loss)
    return run.with_records("final", lambda *_: {"staleness_sum": int(100 * staleness)})


@pytest.mark.parametrize(
    ("staleness", "mine", "other", "harm"),
    [
        (1.5, 0.6, 0.5, 1.2),
        (1.49, 0.6, 0.5, None),  # less than half of the largest mean staleness of four workers
        (1.5, 0.0, 0.5, None),
        (1.5, 0.6, 0.0, None),
        (1.5, math.inf, 0.5, None),
        (1.5, math.nan, 0.5, None),
    ],
)
def test_the_harm_of_stale_gradients_and_of_a_remedy_is_a_ratio_of_losses_of_one_seed(
    staleness: float, mine: float, other: float, harm: float | None
) -> None:
    several, alone = stale("several", mine, staleness), stale("alone", other, 0)
    wanted = harm if harm is None else pytest.approx(harm)
    assert value_of(STALE, "overshoot", several=several, alone=alone) == wanted
    assert value_of(STALE, "overshoot", several=several.but(seed=2), alone=alone) is None
    for cure in ("rate", "batch"):
        roles = {
            f"alone_small_{cure}": stale(f"alone-small-{cure}", 0.4, 0),
            f"several_small_{cure}": stale(f"several-small-{cure}", 0.4),
        }
        found = value_of(STALE, f"smaller-{cure}", alone=alone, several=several, **roles)
        assert found == wanted
