"""A claim and the runs that answer to it: the verdict; pure functions."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lab.formatting import LEAST_RUNS, counted
from lab.reproduce import measures, qualitative_claims
from lab.reproduce.claims import Claim, Group, Source
from lab.reproduce.qualitative_claims import Runs
from lab.reproduce.reference import Band, Reference
from lab.reproduce.run_metrics import RunFigures
from lab.reproduce.statistics import Interval, mean_interval


class ClaimStatus(enum.StrEnum):
    """What a verdict comes to."""

    PASS = "PASS"  # noqa: S105  (no password)
    OUTSIDE_BAND = "OUTSIDE_BAND"
    TOO_GOOD = "TOO_GOOD"
    INSUFFICIENT_RUNS = "INSUFFICIENT_RUNS"
    NOT_COMPARABLE = "NOT_COMPARABLE"

    @property
    def exit_code(self) -> int:
        """0 it is as claimed, 1 it is not, 3 that cannot be judged."""
        if self is ClaimStatus.PASS:
            return 0
        return 1 if self in {ClaimStatus.OUTSIDE_BAND, ClaimStatus.TOO_GOOD} else 3


@dataclass(frozen=True, slots=True)
class Observed:
    """What our runs have.

    Attributes:
        mean: Over runs; of losses the geometric one.
        low: The lower end of the mean's 95% interval; None of a single run.
        high: The upper end.
        n: Over how many runs.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What is found of one claim.

    Attributes:
        claim: The claim's name.
        words: The claim in words.
        source_value: What the source prints, or None.
        ours: What our runs have.
        unit: Of all of these.
        band: Where our mean has to lie, or None.
        verdict: The word for it.
        why: The reason, in a line.
        group: What it counts as: a key of `GROUPS`.
        source: Who states the claim: a key of `SOURCES`.
        where: The place in the source.
        note: A limit that a reader must know, or "".
    """

    claim: str
    words: str
    source_value: float | None
    ours: Observed
    unit: str
    band: Interval | None
    verdict: ClaimStatus
    why: str
    group: Group
    source: str
    where: str
    note: str


def evaluate_claims(
    source: Source, runs: Mapping[str, Sequence[RunFigures]], reference: Reference | None
) -> list[ClaimResult]:
    """Judge every claim of a source, and whether every run succeeded.

    Args:
        source: The claims.
        runs: Role to all of its runs, also those that failed.
        reference: The oracle's trainings of the same mode, if there are any.
    """
    good = {role: [run for run in runs.get(role, ()) if run.succeeded] for role in source.recipes}
    return [
        _every_run([run for several in runs.values() for run in several]),
        *(_judge(claim, good, reference) for claim in source.claims),
    ]


def _every_run(runs: Sequence[RunFigures]) -> ClaimResult:
    failed = [run.run_id for run in runs if not run.succeeded]
    status = (
        ClaimStatus.OUTSIDE_BAND
        if failed
        else ClaimStatus.PASS
        if runs
        else ClaimStatus.INSUFFICIENT_RUNS
    )
    why = f"see `lab show {failed[0]}`" if failed else ""
    ours = Observed(float(len(failed)) if runs else None, None, None, len(runs))
    band = Interval(0, 0)
    return ClaimResult(
        "runs", "runs that failed", None, ours, "runs", band, status, why, "own", "lab",
        "each run's state", "",
    )  # fmt: skip


def _judge(claim: Claim, runs: Runs, reference: Reference | None) -> ClaimResult:
    if claim.band == "none":
        return _verdict(claim, [], None, ClaimStatus.NOT_COMPARABLE, claim.where)
    answering = runs.get(claim.role, [])
    if not answering:
        why = f"no run of the kind {claim.role!r} succeeded"
        return _verdict(claim, [], None, ClaimStatus.INSUFFICIENT_RUNS, why)
    if not any(_comes_so_far(claim, run) for run in answering):
        return _verdict(
            claim, [], None, ClaimStatus.NOT_COMPARABLE, "the runs were not to go so far"
        )
    if claim.band == "test":
        values, test = qualitative_claims.test(claim, runs)
        found = {
            True: ClaimStatus.PASS,
            False: ClaimStatus.OUTSIDE_BAND,
            None: ClaimStatus.INSUFFICIENT_RUNS,
        }
        return _verdict(claim, values, None, found[test.passed], test.why)
    return _by_value(claim, answering, reference)


def _by_value(claim: Claim, runs: Sequence[RunFigures], reference: Reference | None) -> ClaimResult:
    """A claim that each run has a number of."""
    found = [(run, measures.value(claim, run)) for run in runs]
    values = [value for _, value in found if value is not None]
    odd = [run.run_id for run, value in found if value is not None and not math.isfinite(value)]
    if odd:
        return _verdict(claim, [], None, ClaimStatus.OUTSIDE_BAND, f"no number in run {odd[0]}")
    if len(values) < len(found):
        untold = next(run.run_id for run, value in found if value is None)
        return _verdict(
            claim, values, None, ClaimStatus.OUTSIDE_BAND, f"run {untold} does not tell it"
        )
    if claim.band == "oracle":
        return _by_oracle(claim, runs, values, reference)
    if claim.band == "exact":
        return _exactly(claim, values)
    return _nearly(claim, values)


def _comes_so_far(claim: Claim, run: RunFigures) -> bool:
    """Whether a run was asked to train as long as the claim's place is in."""
    steps, epochs = run.parameters.get("global_steps"), run.parameters.get("epochs")
    if "updates" in claim.keys and isinstance(steps, int):
        return steps >= int(claim.keys["updates"])
    if "epoch" in claim.keys and isinstance(epochs, int) and not steps:
        return epochs > int(claim.keys["epoch"])
    return True


def _exactly(claim: Claim, values: Sequence[float]) -> ClaimResult:
    wanted = float(claim.value or 0)
    off = [value for value in values if value != wanted]
    why = f"{len(off)} of {len(values)} runs differ" if off else "in every run"
    status = ClaimStatus.OUTSIDE_BAND if off else ClaimStatus.PASS
    return _verdict(claim, values, Interval(wanted, wanted), status, why)


def _nearly(claim: Claim, values: Sequence[float]) -> ClaimResult:
    """The mean lies within a share of what is printed."""
    wanted, share = float(claim.value or 0), float(claim.band)
    band = Interval(wanted * (1 - share), wanted * (1 + share))
    mean = float(np.mean(values))
    why = f"{100 * (mean / wanted - 1):+.1f}% off, may be {100 * share:g}%"
    if len(values) < LEAST_RUNS:
        why = f"{counted(len(values), 'run')}, and the mean of {LEAST_RUNS} is judged"
        return _verdict(claim, values, band, ClaimStatus.INSUFFICIENT_RUNS, why)
    status = ClaimStatus.PASS if mean in band else ClaimStatus.OUTSIDE_BAND
    return _verdict(claim, values, band, status, why)


def _by_oracle(
    claim: Claim, runs: Sequence[RunFigures], values: Sequence[float], reference: Reference | None
) -> ClaimResult:
    """Our mean lies where the oracle's seeds say, and the source where any seed's run may."""
    band = None if reference is None else _band(claim, runs, reference)
    if band is None:
        return _verdict(
            claim, values, None, ClaimStatus.NOT_COMPARABLE, "the oracle has no such place"
        )
    mean = _mean(claim, values)
    if mean not in band.ours:
        better = (mean > band.ours.high) if claim.better == "high" else (mean < band.ours.low)
        good = bool(claim.better) and better
        why = "better than this training can be" if good else "not what the oracle comes to"
        status = ClaimStatus.TOO_GOOD if good else ClaimStatus.OUTSIDE_BAND
        return _verdict(claim, values, band.ours, status, why)
    if claim.value is None:
        return _verdict(claim, values, band.ours, ClaimStatus.PASS, "as the oracle")
    low, high = band.source.low, band.source.high
    why = f"one run lies in {low:.4f} to {high:.4f}"
    status = ClaimStatus.PASS if claim.value in band.source else ClaimStatus.OUTSIDE_BAND
    where = "" if status is ClaimStatus.PASS else ", and the printed value does not"
    return _verdict(claim, values, band.ours, status, why + where)


def _band(claim: Claim, runs: Sequence[RunFigures], reference: Reference) -> Band | None:
    seeds = [run.seed for run in runs]
    if claim.measure == "accuracy":
        tested = [run.workers[claim.keys["worker"]].tested_at or run.global_steps for run in runs]
        return reference.accuracy(tested, seeds, claim.keys["updates"])
    if claim.measure == "late_loss":
        return reference.late_loss(seeds)
    return reference.losses(measures.places(claim), seeds)


_GEOMETRIC: Final = ("loss_at", "losses_at")
"""Measures whose mean over runs is the geometric one."""


def _mean(claim: Claim, values: Sequence[float]) -> float:
    if claim.measure in _GEOMETRIC:
        return float(np.exp(np.mean(np.log(values))))
    return float(np.mean(values))


def _verdict(
    claim: Claim, values: Sequence[float], band: Interval | None, status: ClaimStatus, why: str
) -> ClaimResult:
    if not values:
        ours = Observed(None, None, None, 0)
    else:
        interval = mean_interval(values)
        low, high = (interval.low, interval.high) if interval else (None, None)
        if (
            claim.measure in _GEOMETRIC
            and (logs := mean_interval(np.log(values).tolist())) is not None
        ):
            low, high = float(np.exp(logs.low)), float(np.exp(logs.high))
        ours = Observed(_mean(claim, values), low, high, len(values))
    return ClaimResult(
        claim.id, claim.words, claim.value, ours, claim.unit, band, status, why, claim.group,
        claim.source, claim.where, claim.note,
    )  # fmt: skip
