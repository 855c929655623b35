"""Evaluate the claims of a source on runs; importing this module is slow because of SciPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import InconclusiveError, InputError, LabError, Notify
from lab.formatting import counted
from lab.reproduce import view
from lab.reproduce.claims import COUNTED, Source
from lab.reproduce.metrics import RunMetrics, read_metrics
from lab.reproduce.recipes import choose_runs
from lab.reproduce.verdicts import Result, Verdict, judge
from lab.store.directory import RunDir
from lab.strict_json import dump
from lab.volume.files import write_atomically


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of a source's claims.

    Attributes:
        source: The claims.
        results: The result of each claim.
        json: The same as JSON, for a program.
    """

    source: Source
    results: list[Result]
    json: dict[str, Any]

    def save(self, runs_dir: Path) -> Path:
        """Write the result into the local run store.

        Raises:
            LabError: The file cannot be written.
        """
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            path = view.path_of(runs_dir, self.source)
            write_atomically(path, dump(self.json, indent=2) + "\n")
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
        runs: The runs.
        notify: Receives each run that is left out, and the reason.
        strict: Whether a source without any run is an error.

    Raises:
        InputError: With `strict`, no claim can use any of the runs.
    """
    excluded: dict[str, str] = {}

    def exclude(run: RunMetrics, reason: str) -> None:
        excluded[run.run_id] = reason
        if strict:
            notify(f"left out: run {run.run_id}: {reason}")

    # The earliest first; ids have minutes, and a random end.
    ordered = sorted(runs, key=lambda run: (run.read().started_unix, run.run_id))
    given = list(map(read_metrics, ordered))
    chosen = choose_runs(source, given, exclude)
    if strict and not any(chosen.values()):
        raise InputError(
            f"no claim of {source.name} can use any of these {counted(len(given), 'run')}",
            "see the reasons above, or leave out --runs to make the runs",
        )
    results = judge(source, chosen)
    ids = {role: {seed: run.run_id for seed, run in each.items()} for role, each in chosen.items()}
    return Evaluation(source, results, view.as_json(source, results, ids, excluded))


def check_reproduced(evaluations: Sequence[Evaluation]) -> None:
    """Check that every counted claim is reproduced.

    Raises:
        LabError: A claim is not reproduced.
        InconclusiveError: No claim is NOT_REPRODUCED, but some are inconclusive.
    """
    results = [r for each in evaluations for r in each.results if r.kind in COUNTED]
    for verdict, error, text in (
        (Verdict.NOT_REPRODUCED, LabError, "not reproduced"),
        (Verdict.INCONCLUSIVE, InconclusiveError, "inconclusive"),
    ):
        found = [each.claim for each in results if each.verdict is verdict]
        if found:
            raise error(
                f"{text}: {len(found)} of {counted(len(results), 'counted claim')}, such as"
                f" {found[0]}",
                "see docs/reproduce.md for the rules; a claim that is not reproduced is a result",
            )
