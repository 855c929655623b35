"""Evaluate the claims of a source on runs; importing this module is slow because of SciPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.backends import Notify
from lab.errors import InconclusiveError, InputError, LabError
from lab.formatting import counted
from lab.reproduce.claims import Source
from lab.reproduce.evaluate import ClaimResult, evaluate_claims
from lab.reproduce.reference import load_trainings, of_mode
from lab.reproduce.run_metrics import RunMetrics, read_metrics
from lab.reproduce.run_specs import Length, common_lengths, firsts, planned_length, role_of_run
from lab.reproduce.view import as_json, path_of
from lab.run.store import RunDir
from lab.strict_json import dump
from lab.task.protocol.files import write_atomically
from lab.task.text import short


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of a source's claims.

    Attributes:
        source: The claims.
        verdicts: The result of each claim.
        result: The same as JSON, for a program.
    """

    source: Source
    verdicts: list[ClaimResult]
    result: dict[str, Any]

    def save(self, runs_dir: Path) -> Path:
        """Write the result into the local run store.

        Raises:
            LabError: The file cannot be written.
        """
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            path = path_of(runs_dir, self.source)
            write_atomically(path, dump(self.result, indent=2) + "\n")
        except OSError as error:
            raise LabError(
                f"the results of {self.source.name} cannot be written into {runs_dir}:"
                f" {error.strerror}",
                "use another directory with --runs-dir",
            ) from None
        return path


def evaluate(
    source: Source, runs: Sequence[RunDir], notify: Notify, *, strict: bool = True
) -> Evaluation:
    """Evaluate a source's claims on runs.

    Args:
        source: The claims.
        runs: The runs; copies and runs of another length are left out.
        notify: Receives the reason for each run that is left out.
        strict: Refuse a run that no claim is about; otherwise leave it out.

    Raises:
        InputError: With `strict`, no claim is about one of the runs.
    """
    by_role: dict[str, list[RunMetrics]] = {}
    for run in runs:
        figures = read_metrics(run)
        role = role_of_run(figures, source)
        if role is not None:
            by_role.setdefault(role, []).append(figures)
        elif strict:
            raise InputError(
                f"no claim of {source.name} is about run {figures.run_id} of"
                f" {short(figures.experiment)}",
                "leave the run out, or name another result",
            )
    kept = _comparable(source, by_role, notify)
    results = evaluate_claims(source, kept, of_mode(load_trainings(), source.reference))
    ids = [figures.run_id for group in kept.values() for figures in group]
    return Evaluation(source, results, as_json(source, results, ids))


def _comparable(
    source: Source, by_role: Mapping[str, Sequence[RunMetrics]], notify: Notify
) -> dict[str, list[RunMetrics]]:
    """Leave out copies, and quick runs and runs of another length beside full ones."""
    kept: dict[str, list[RunMetrics]] = {}
    for role, wanted in common_lengths(source, by_role).items():
        runs = kept[role] = []
        recipe = source.recipes[role]
        is_full = any(run.experiment == recipe.experiment for run in by_role[role])
        for run, first in zip(by_role[role], firsts(by_role[role]), strict=True):
            length = planned_length(run.parameters)
            if run is not first:
                reason = f"a copy of run {first.run_id}, with the same seed and records"
            elif length != wanted:
                reason = f"it trains {_shown(length)}, not {_shown(wanted)}"
            elif is_full and run.experiment != recipe.experiment and run.experiment == recipe.quick:
                reason = f"it trains {run.experiment}, not {recipe.experiment}"
            else:
                runs.append(run)
                continue
            notify(f"left out: run {run.run_id}: {reason}")
    return kept


def _shown(length: Length) -> str:
    unit, value = length
    return f"{value:,} {unit}"


def check_reproduced(evaluations: Sequence[Evaluation]) -> None:
    """Check that every claim is reproduced.

    Raises:
        LabError: A claim is not reproduced.
        InconclusiveError: No claim failed, but some cannot be judged.
    """
    results = [result for each in evaluations for result in each.verdicts]
    fix = "see docs/reproduce.md for the meaning of each result"
    for error, text in (
        (LabError, "are not reproduced"),
        (InconclusiveError, "cannot be judged"),
    ):
        found = [each.claim for each in results if each.verdict.exit_code == error.exit_code]
        if found:
            raise error(
                f"{len(found)} of {counted(len(results), 'claim')} {text}, such as {found[0]}", fix
            )
