"""Evaluate claims on runs; all functions are pure."""

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
from lab.reproduce.run_metrics import RunMetrics
from lab.reproduce.statistics import Interval, mean_interval


class ClaimStatus(enum.StrEnum):
    """The verdict on a claim."""

    PASS = "PASS"  # noqa: S105  (no password)
    OUTSIDE_BAND = "OUTSIDE_BAND"
    TOO_GOOD = "TOO_GOOD"
    INSUFFICIENT_RUNS = "INSUFFICIENT_RUNS"
    NOT_COMPARABLE = "NOT_COMPARABLE"

    @property
    def exit_code(self) -> int:
        """0: the claim holds; 1: it does not hold; 3: it cannot be evaluated."""
        if self is ClaimStatus.PASS:
            return 0
        return 1 if self in {ClaimStatus.OUTSIDE_BAND, ClaimStatus.TOO_GOOD} else 3


@dataclass(frozen=True, slots=True)
class Observed:
    """The value of our runs.

    Attributes:
        mean: The mean over runs; for losses the geometric mean.
        low: The lower end of the mean's 95% interval; None for a single run.
        high: The upper end.
        n: The number of runs.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The result of one claim. It is also a row of the JSON file.

    Attributes:
        claim: The claim's name.
        words: The claim as a text for users.
        source_value: The value that the source prints, or None.
        ours: The value of our runs.
        unit: The unit of these values.
        band: The interval that must contain our mean, or None.
        verdict: The verdict.
        why: The reason, in a line.
        group: The group in which it is counted: a key of `GROUPS`.
        source: The author of the claim: a key of `SOURCES`.
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
    source: Source, runs: Mapping[str, Sequence[RunMetrics]], reference: Reference | None
) -> list[ClaimResult]:
    """Evaluate every claim of a source, and whether every run succeeded.

    Args:
        source: The source.
        runs: All runs by role, including failed runs.
        reference: The NumPy reference of the same mode, if there is one.
    """
    good = {role: [run for run in runs.get(role, ()) if run.succeeded] for role in source.recipes}
    return [
        _all_succeeded([run for several in runs.values() for run in several]),
        *(_evaluate(claim, good, reference) for claim in source.claims),
    ]


def _all_succeeded(runs: Sequence[RunMetrics]) -> ClaimResult:
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


def _evaluate(claim: Claim, runs: Runs, reference: Reference | None) -> ClaimResult:
    if claim.band == "none":
        return _result(claim, [], None, ClaimStatus.NOT_COMPARABLE, claim.where)
    of_role = runs.get(claim.role, [])
    if not of_role:
        why = f"no run with the role {claim.role!r} succeeded"
        return _result(claim, [], None, ClaimStatus.INSUFFICIENT_RUNS, why)
    if not any(_is_long_enough(claim, run) for run in of_role):
        return _result(
            claim, [], None, ClaimStatus.NOT_COMPARABLE, "the runs are too short for this claim"
        )
    if claim.band == "test":
        values, test = qualitative_claims.test(claim, runs)
        found = {
            True: ClaimStatus.PASS,
            False: ClaimStatus.OUTSIDE_BAND,
            None: ClaimStatus.INSUFFICIENT_RUNS,
        }
        return _result(claim, values, None, found[test.passed], test.why)
    return _by_value(claim, of_role, reference)


def _by_value(claim: Claim, runs: Sequence[RunMetrics], reference: Reference | None) -> ClaimResult:
    """Evaluate a claim with a number for each run."""
    found = [(run, measures.value(claim, run)) for run in runs]
    values = [value for _, value in found if value is not None]
    odd = [run.run_id for run, value in found if value is not None and not math.isfinite(value)]
    if odd:
        why = f"the value of run {odd[0]} is NaN or infinite"
        return _result(claim, [], None, ClaimStatus.OUTSIDE_BAND, why)
    if len(values) < len(found):
        lacking = next(run.run_id for run, value in found if value is None)
        why = f"run {lacking} did not record this value"
        return _result(claim, values, None, ClaimStatus.OUTSIDE_BAND, why)
    if claim.band == "oracle":
        return _by_oracle(claim, runs, values, reference)
    if claim.band == "exact":
        return _exactly(claim, values)
    return _nearly(claim, values)


def _is_long_enough(claim: Claim, run: RunMetrics) -> bool:
    """Whether the run's flags let it train up to the epoch or updates of the claim."""
    steps, epochs = run.parameters.get("global_steps"), run.parameters.get("epochs")
    if "updates" in claim.keys and isinstance(steps, int):
        return steps >= int(claim.keys["updates"])
    if "epoch" in claim.keys and isinstance(epochs, int) and not steps:
        return epochs > int(claim.keys["epoch"])
    return True


def _exactly(claim: Claim, values: Sequence[float]) -> ClaimResult:
    wanted = float(claim.value or 0)
    off = [value for value in values if value != wanted]
    why = f"differs in {len(off)} of {counted(len(values), 'run')}" if off else "in every run"
    status = ClaimStatus.OUTSIDE_BAND if off else ClaimStatus.PASS
    return _result(claim, values, Interval(wanted, wanted), status, why)


def _nearly(claim: Claim, values: Sequence[float]) -> ClaimResult:
    """Compare the mean with the printed value, with a relative tolerance."""
    wanted, share = float(claim.value or 0), float(claim.band)
    band = Interval(wanted * (1 - share), wanted * (1 + share))
    mean = float(np.mean(values))
    why = f"{100 * (mean / wanted - 1):+.1f}% off, tolerance {100 * share:g}%"
    if len(values) < LEAST_RUNS:
        why = f"{counted(len(values), 'run')}, the mean of {LEAST_RUNS} is needed"
        return _result(claim, values, band, ClaimStatus.INSUFFICIENT_RUNS, why)
    status = ClaimStatus.PASS if mean in band else ClaimStatus.OUTSIDE_BAND
    return _result(claim, values, band, status, why)


def _by_oracle(
    claim: Claim, runs: Sequence[RunMetrics], values: Sequence[float], reference: Reference | None
) -> ClaimResult:
    """Compare with the NumPy reference: our mean for our seeds, the printed value for any seed."""
    band = None if reference is None else _band(claim, runs, reference)
    if band is None:
        return _result(
            claim, values, None, ClaimStatus.NOT_COMPARABLE, "the reference lacks this value"
        )
    mean = _mean(claim, values)
    if mean not in band.ours:
        better = (mean > band.ours.high) if claim.better == "high" else (mean < band.ours.low)
        good = bool(claim.better) and better
        why = "better than this training can be" if good else "outside the reference's interval"
        status = ClaimStatus.TOO_GOOD if good else ClaimStatus.OUTSIDE_BAND
        return _result(claim, values, band.ours, status, why)
    if claim.value is None:
        return _result(
            claim, values, band.ours, ClaimStatus.PASS, "within the reference's interval"
        )
    low, high = band.source.low, band.source.high
    why = f"a single run is within {low:.4f} to {high:.4f}"
    status = ClaimStatus.PASS if claim.value in band.source else ClaimStatus.OUTSIDE_BAND
    where = "" if status is ClaimStatus.PASS else ", the printed value is not"
    return _result(claim, values, band.ours, status, why + where)


def _band(claim: Claim, runs: Sequence[RunMetrics], reference: Reference) -> Band | None:
    seeds = [run.seed for run in runs]
    if claim.measure == "accuracy":
        tested = [run.workers[claim.keys["worker"]].tested_at or run.global_steps for run in runs]
        return reference.accuracy(tested, seeds, claim.keys["updates"])
    if claim.measure == "late_loss":
        return reference.late_loss(seeds)
    return reference.losses(measures.places(claim), seeds)


_GEOMETRIC: Final = ("loss_at", "losses_at")
"""The measures whose mean over runs is the geometric mean."""


def _mean(claim: Claim, values: Sequence[float]) -> float:
    if claim.measure in _GEOMETRIC:
        return float(np.exp(np.mean(np.log(values))))
    return float(np.mean(values))


def _result(
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
