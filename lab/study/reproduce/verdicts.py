"""Decide on the claims of a source by the values of our runs; show, save and read the results.

The unit is the run: each run has one value. The rules and their levels do not depend on the number
of runs, which the claim file fixes.

- A **number** (measured or fitted) is REPRODUCED if it is within the prediction interval for one
  more run of ours, and this interval is at most as wide as the deviation that matters. Outside it
  is NOT_REPRODUCED, in a wider interval INCONCLUSIVE. Over all m counted claims of a source a wrong
  verdict has a probability of at most 5%, so each interval has the level 5% / m (Bonferroni).
- A **statement** (qualitative) is REPRODUCED if significantly more than half of all runs show at
  least the smallest effect of interest, and NOT_REPRODUCED if significantly less than half do: two
  sign tests at the same level.
- A **setting** or a **check** is OK if every run has the expected value; a difference from the
  NumPy reference is OK if the interval of its mean is within the margin (two one-sided tests); a
  statement that is a check has the rule of statements. If one has FAILED, no claim on the same
  runs is REPRODUCED.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from lab.base.errors import InconclusiveError, InputError, LabError
from lab.base.formatting import band, compared, counted, p_value
from lab.base.log import LOG
from lab.base.statistics import (
    SOURCE_LEVEL,
    Interval,
    difference_interval,
    prediction_interval,
    sign_test_p,
)
from lab.base.strict_json import dump, parse
from lab.base.tables import Cell, table_of, wrapped
from lab.base.text import visible
from lab.protocol.volume.files import read_regular, write_atomically
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import convert
from lab.study.reproduce import measures
from lab.study.reproduce.claims import COUNTED, KINDS, Claim, Kind, Source
from lab.study.reproduce.measured_runs import Chosen, MeasuredRun, choose_runs


class Verdict(enum.StrEnum):
    """The verdict on a claim: the first three on claims of a source, the others on our checks."""

    REPRODUCED = "REPRODUCED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_REPRODUCED = "NOT_REPRODUCED"
    OK = "OK"
    UNCLEAR = "UNCLEAR"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one claim. It is also a row of the JSON file.

    Attributes:
        claim: The claim's name.
        text: The claim as a text for users.
        kind: Its kind: a key of `KINDS`.
        where: The place in the source.
        printed: The value that the source prints, or the expected value; or None.
        ours: The middle of our values: the mean, on the log scale the geometric mean, for
            statements the median; or None.
        interval: The prediction interval for one more run, or of the mean difference; or None.
        unit: The unit of these values.
        values: The value of each run, by its seed.
        verdict: The verdict.
        why: The reason, in a line.
    """

    claim: str
    text: str
    kind: Kind
    where: str
    printed: float | None
    ours: float | None
    interval: Interval | None
    unit: str
    values: Mapping[int, float]
    verdict: Verdict
    why: str


Values = Mapping[int, float | None]
"""The value of each run by its seed; None: the run does not have it."""


_VERDICTS: Final = {
    True: (Verdict.REPRODUCED, Verdict.OK),
    None: (Verdict.INCONCLUSIVE, Verdict.UNCLEAR),
    False: (Verdict.NOT_REPRODUCED, Verdict.FAILED),
}
"""Whether a claim holds (None: the runs cannot tell): its verdict, and that of our own check."""


class _Ruling(NamedTuple):
    """Whether a claim holds, the reason in a line, and the interval that was computed for it."""

    holds: bool | None
    why: str
    interval: Interval | None = None


def judge(source: Source, runs: Chosen) -> list[Result]:
    """Decide on every claim of a source.

    Args:
        source: The source.
        runs: The runs that claims may use, by role and seed.
    """
    return decide(source, {claim.id: values_of(claim, runs) for claim in source.claims})


def values_of(claim: Claim, runs: Chosen) -> Values:
    """The value of each run of the claim's role."""
    in_table = partial(measures.in_table, name=claim.measure)
    measure: Callable[..., float | None] = getattr(measures, claim.measure, in_table)

    def value(seed: int, run: MeasuredRun) -> float | None:
        beside = {name: runs[role].get(seed) for name, role in claim.beside.items()}
        found = None if None in beside.values() else measure(run, **claim.keys, **beside)
        return None if found is None or math.isnan(found) else float(found)

    return {seed: value(seed, run) for seed, run in runs[claim.role].items()}


def decide(source: Source, values: Mapping[str, Values]) -> list[Result]:
    """Decide on every claim by the values of its runs."""
    claims = source.claims
    level = SOURCE_LEVEL / max(sum(claim.kind in COUNTED for claim in claims), 1)
    rulings = {c.id: _ruling(c, source.recipes[c.role].runs, values[c.id], level) for c in claims}
    failed = {c.role: c.id for c in claims if c.is_own and rulings[c.id].holds is False}
    return [_result(c, values[c.id], rulings[c.id], failed.get(c.role)) for c in claims]


def _result(claim: Claim, values: Values, ruling: _Ruling, failed: str | None) -> Result:
    """The result of a claim; `failed` is a setting or check that its runs do not have."""
    holds, why, interval = ruling
    if holds and failed is not None and not claim.is_own:
        holds, why = None, f"its runs are not those of the source: {failed} FAILED"
    known = {seed: value for seed, value in values.items() if value is not None}
    return Result(
        claim.id, claim.text, claim.kind, claim.where, claim.value,
        _middle(claim, list(known.values())), interval, claim.unit, known,
        _VERDICTS[holds][claim.is_own], why,
    )  # fmt: skip


def _middle(claim: Claim, values: Sequence[float]) -> float | None:
    if not values or not np.isfinite(values).all():
        return None
    if claim.direction:
        return float(np.median(values))
    return float(np.exp(np.mean(np.log(values))) if claim.scale == "log" else np.mean(values))


def _ruling(claim: Claim, wanted: int, values: Values, level: float) -> _Ruling:
    """The ruling on a claim whose claim file asks for this number of runs."""
    known = [value for value in values.values() if value is not None and math.isfinite(value)]
    if len(known) < len(values):
        seed = next(seed for seed, value in values.items() if value not in known)
        return _Ruling(None, f"the run of seed {seed} has no finite value")
    # One run is enough to see that a value differs from the expected one.
    is_value = claim.is_own and claim.margin is None and not claim.direction
    if len(known) < (1 if is_value else wanted):
        return _Ruling(None, f"{len(known)} of {counted(wanted, 'run')}")
    if claim.margin is not None:
        return _equivalence(claim, known, claim.margin)
    if claim.direction:
        return _statement(claim, known, level)
    return _setting(claim, known) if claim.is_own else _number(claim, known, level)


def _setting(claim: Claim, values: Sequence[float]) -> _Ruling:
    odd, runs = sum(value != claim.value for value in values), counted(len(values), "run")
    return _Ruling(not odd, f"differs in {odd} of {runs}" if odd else f"in {len(values)} of {runs}")


def _number(claim: Claim, values: Sequence[float], level: float) -> _Ruling:
    printed, matters = claim.value or 0.0, claim.matters or 0.0
    if claim.scale == "log":
        logs = prediction_interval(np.log(values).tolist(), level)
        interval = Interval(math.exp(logs.low), math.exp(logs.high))
        width, wide, by = interval.high / interval.low, "its ends differ by {}", "a factor of "
    else:
        interval = prediction_interval(values, level)
        width, wide, by = interval.high - interval.low, "it is {} wide", ""
    if printed not in interval:
        return _Ruling(False, "outside the interval for one more run", interval)
    effect = f"{claim.fault} would change this by {by}{compared(matters)}"
    if width > matters:
        why = f"within, but {wide.format(by + compared(width))}, and {effect}"
        return _Ruling(None, why, interval)
    return _Ruling(True, f"within; {effect}", interval)


def _statement(claim: Claim, values: Sequence[float], level: float) -> _Ruling:
    is_above, runs = claim.direction == "above", len(values)
    shown = sum(v >= claim.effect if is_above else v <= claim.effect for v in values)
    p, opposite = sign_test_p(shown, runs), sign_test_p(runs - shown, runs)
    fails = opposite <= level
    text = f"{'at least' if is_above else 'at most'} {compared(claim.effect)} in {shown} of {runs}"
    why = f"{text} runs, sign test: p {p_value(opposite if fails else p)}"
    return _Ruling(False if fails else True if p <= level else None, why)


def _equivalence(claim: Claim, values: Sequence[float], margin: float) -> _Ruling:
    by_order = measures.reference(claim.keys["mode"]).mean(axis=1)
    interval = difference_interval(values, float(by_order.std()), len(by_order))
    if -margin <= interval.low and interval.high <= margin:
        return _Ruling(True, f"the interval is within ±{margin:g}", interval)
    if interval.low > margin or interval.high < -margin:
        return _Ruling(False, f"the interval is outside ±{margin:g}", interval)
    return _Ruling(None, f"the interval reaches beyond ±{margin:g}", interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The results of a source's claims: the content of a file of `lab reproduce`.

    Attributes:
        name: The name of the source: `book-async`.
        source: The source, as text.
        made: The time of the evaluation.
        summary: The counts of the verdicts on counted claims, by kind, as text.
        fitted: The parameters that were fitted to the source, by role.
        claims: The result of each claim.
        runs: The ids of the evaluated runs, by role and seed.
        excluded: The ids of the runs that were left out, each with the reason.
    """

    name: str
    source: str
    made: str = ""
    summary: str
    fitted: Mapping[str, Sequence[str]]
    claims: Sequence[Result]
    runs: Mapping[str, Mapping[int, str]]
    excluded: Mapping[str, str]

    @property
    def run_ids(self) -> set[str]:
        """The ids of the evaluated runs."""
        return {run_id for by_seed in self.runs.values() for run_id in by_seed.values()}

    @property
    def json(self) -> dict[str, Any]:
        """The same as JSON, for a program."""
        return asdict(self)

    def save(self, runs_dir: Path) -> Path:
        """Write the results into a new file of the local run store.

        Raises:
            OSError: The file cannot be written.
        """
        runs_dir.mkdir(parents=True, exist_ok=True)
        path = runs_dir / f"reproduce-{self.name}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.json"
        write_atomically(path, dump(self.json, indent=2) + "\n", new=True)
        return path


def evaluate(source: Source, runs: Sequence[RunDir], *, strict: bool = True) -> Evaluation:
    """Evaluate a source's claims on runs.

    Args:
        source: The claims.
        runs: The runs.
        strict: Whether a source without any run is an error.

    Raises:
        InputError: With `strict`, no claim can use any of the runs.
    """
    # The earliest first; ids have minutes, and a random end.
    ordered = sorted(runs, key=lambda run: (run.read().started_unix, run.run_id))
    chosen, excluded = choose_runs(source, [*map(MeasuredRun.read, ordered)])
    if strict:
        for run_id, reason in excluded.items():
            LOG.warning(f"left out: run {run_id}: {reason}")
        if not any(chosen.values()):
            raise InputError(
                f"no claim of {source.name} can use any of these {counted(len(runs), 'run')}",
                "see the reasons above, or leave out --runs to make the runs",
            )
    results = judge(source, chosen)
    return Evaluation(
        name=source.name,
        source=source.title,
        made=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        summary=summary(results),
        fitted={role: recipe.fitted for role, recipe in source.recipes.items() if recipe.fitted},
        claims=results,
        runs={
            role: {seed: run.info.run_id for seed, run in by_seed.items()}
            for role, by_seed in chosen.items()
        },
        excluded=excluded,
    )


def summary(results: Collection[Result]) -> str:
    """The verdicts on counted claims: `3 measured numbers: 1 REPRODUCED, 2 INCONCLUSIVE; …`."""
    parts = []
    for kind, noun in COUNTED.items():
        found = Counter(each.verdict for each in results if each.kind == kind)
        shown = [f"{found[verdict]} {verdict}" for verdict in Verdict if found[verdict]]
        parts += [f"{counted(found.total(), noun)}: {', '.join(shown)}"] if shown else []
    return "; ".join(parts)


def read_evaluation(path: Path) -> Evaluation:
    """Read the file of an evaluation, the value of `--verdicts`.

    Raises:
        InputError: It cannot be read, or has another content.
    """
    try:
        return convert(parse(read_regular(path)), Evaluation)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"--verdicts: {path} cannot be read ({reason})",
            "name a reproduce-….json file from `lab reproduce`",
        ) from error


def check_reproduced(evaluations: Sequence[Evaluation]) -> None:
    """Check that every counted claim is reproduced.

    Raises:
        LabError: A claim is not reproduced.
        InconclusiveError: No claim is NOT_REPRODUCED, but some are inconclusive.
    """
    results = [r for each in evaluations for r in each.claims if r.kind in COUNTED]
    errors = {Verdict.NOT_REPRODUCED: LabError, Verdict.INCONCLUSIVE: InconclusiveError}
    for verdict, error in errors.items():
        claims = [each.claim for each in results if each.verdict is verdict]
        if claims:
            raise error(
                f"{verdict.lower().replace('_', ' ')}: {len(claims)} of"
                f" {counted(len(results), 'counted claim')}, such as {claims[0]}",
                "docs/how-to/reproduce.md has the rules; a claim not reproduced is a result",
            )


_STYLES: Final = {
    Verdict.REPRODUCED: "green",
    Verdict.NOT_REPRODUCED: "bold red",
    Verdict.OK: "green",
    Verdict.FAILED: "bold red",
}


def results_table(evaluation: Evaluation) -> Table:
    """A row for each claim, below a line for each kind."""
    rows: list[list[Cell]] = []
    note = ", ".join(chain.from_iterable(evaluation.fitted.values()))
    for kind, name in KINDS.items():
        members = [each for each in evaluation.claims if each.kind == kind]
        title = f"{name} ({note})" if note and kind == "fitted" else name
        if members:
            rows += [[""], [Text(visible(title), "bold")]]
        places = ["", *(each.where for each in members)]
        rows += [_row(each, before) for each, before in zip(members, places, strict=False)]
    table = table_of(["claim", ">printed", ">ours", "verdict", "why"], rows[1:])
    return wrapped(table, 0, 4)


def _row(result: Result, place_before: str) -> list[Cell]:
    claim = Text(visible(result.text))
    if result.where != place_before:
        claim.append(f"\n{visible(result.where)}", "dim")
    return [
        claim,
        "" if result.printed is None else compared(result.printed),
        Text("\n".join(map(visible, ours(result)))),
        Text(result.verdict, _STYLES.get(result.verdict, "yellow")),
        result.why,
    ]


def ours(result: Result) -> list[str]:
    """The middle of our values, and below it the interval or the unit."""
    if result.ours is None:
        return []
    if result.interval is not None:
        return [compared(result.ours), band(result.interval.low, result.interval.high)]
    return [compared(result.ours), *([result.unit] if result.printed is None else [])]
