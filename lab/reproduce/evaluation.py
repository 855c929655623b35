"""Evaluate the claims of a source on runs; importing this module is slow because of SciPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from lab.errors import InconclusiveError, InputError, LabError
from lab.formatting import band, compared, counted
from lab.log import LOG
from lab.reproduce.claims import COUNTED, KINDS, Source
from lab.reproduce.measures import MeasuredRun, choose_runs
from lab.reproduce.verdicts import Result, Verdict, judge
from lab.store.directory import RunDir
from lab.store.run_info import convert
from lab.strict_json import dump, parse
from lab.tables import Cell, table_of, wrapped
from lab.text import short, visible
from lab.volume.files import read_regular, write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The results of a source's claims: the content of a file of `lab reproduce`.

    Attributes:
        name: The name of the source: `book-async`.
        source: The source, as text.
        made: The time of the evaluation.
        summary: The counts of the verdicts on counted claims, as text.
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


def summary(results: Iterable[Result]) -> str:
    """The counts of each verdict on counted claims: `2 of 6 claims REPRODUCED, 4 INCONCLUSIVE`."""
    found = Counter(each.verdict for each in results if each.kind in COUNTED)
    shown = [f"{found[verdict]} {verdict}" for verdict in Verdict if found[verdict]]
    return f"{counted(found.total(), 'counted claim')}: {', '.join(shown)}"


def read_evaluation(path: Path) -> Evaluation:
    """Read the file of an evaluation, the value of `--verdicts`.

    Raises:
        InputError: It cannot be read, or has another content.
    """
    shown, fix = short(str(path)), "give a reproduce-….json of `lab reproduce`"
    try:
        return convert(parse(read_regular(path)), Evaluation)
    except OSError as error:
        reason = error.strerror or "not a file"
        raise InputError(f"--verdicts: {shown} cannot be read ({reason})", fix) from error
    except ValueError as error:
        raise InputError(f"--verdicts: {shown} has no verdicts: {error}", fix) from error


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
    for kind, title in KINDS.items():
        members = [each for each in evaluation.claims if each.kind == kind]
        fitted = chain.from_iterable(evaluation.fitted.values()) if kind == "fitted" else ()
        note = ", ".join(fitted)
        if members:
            rows += [[""], [Text(visible(f"{title} ({note})" if note else title), "bold")]]
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
