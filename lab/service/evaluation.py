"""The claims of a source, evaluated on runs; SciPy makes this module slow to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import InconclusiveError, InputError, LabError
from lab.reproduce.claims import Source
from lab.reproduce.evaluate import ClaimResult, evaluate_claims
from lab.reproduce.reference import load_trainings, of_mode
from lab.reproduce.run_metrics import RunFigures, read_figures
from lab.reproduce.run_specs import role_of_run
from lab.reproduce.view import as_json, path_of
from lab.run.store import RunDir
from lab.strict_json import dump
from lab.task.protocol.files import write_atomically
from lab.task.text import short


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The verdicts on a source's claims.

    Attributes:
        source: The claims.
        verdicts: A verdict for each claim.
        result: All of it, for a program.
    """

    source: Source
    verdicts: list[ClaimResult]
    result: dict[str, Any]

    def save(self, runs_dir: Path) -> Path:
        """Write the result into the local run store.

        Raises:
            LabError: It cannot be written.
        """
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            path = path_of(runs_dir, self.source)
            write_atomically(path, dump(self.result, indent=2) + "\n")
        except OSError as error:
            raise LabError(
                f"the verdicts on {self.source.name} cannot be kept in {runs_dir}:"
                f" {error.strerror}",
                "name another directory with --runs-dir",
            ) from None
        return path


def evaluate(source: Source, runs: Sequence[RunDir], *, strict: bool = True) -> Evaluation:
    """Evaluate a source's claims on runs.

    Args:
        source: The claims.
        runs: The runs.
        strict: Refuse a run that no claim is about; otherwise it is left out.

    Raises:
        InputError: `strict` refuses a run.
    """
    by_role: dict[str, list[RunFigures]] = {}
    for run in runs:
        figures = read_figures(run)
        role = role_of_run(figures, source)
        if role is not None:
            by_role.setdefault(role, []).append(figures)
        elif strict:
            raise InputError(
                f"run {figures.run_id} of {short(figures.experiment)} answers to no claim of"
                f" {source.name}",
                "leave it out, or name another result",
            )
    verdicts = evaluate_claims(source, by_role, of_mode(load_trainings(), source.reference))
    ids = [figures.run_id for several in by_role.values() for figures in several]
    return Evaluation(source, verdicts, as_json(source, verdicts, ids))


def check_reproduced(evaluations: Sequence[Evaluation]) -> None:
    """Check that every claim is reproduced.

    Raises:
        LabError: A claim is not reproduced.
        UnjudgedError: No claim failed, and some cannot be judged.
    """
    every = [verdict for each in evaluations for verdict in each.verdicts]
    fix = "docs/reproduce.md says what each verdict means"
    for error, arguments in (
        (LabError, "are not reproduced"),
        (InconclusiveError, "cannot be judged"),
    ):
        found = [each.claim for each in every if each.verdict.exit_code == error.exit_code]
        if found:
            raise error(f"{len(found)} of {len(every)} claims {arguments}, {found[0]} for one", fix)
