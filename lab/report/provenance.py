"""What the runs were made with, so that somebody else can make them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lab.report.command import command
from lab.run.run_info import RunInfo


@dataclass(frozen=True, slots=True)
class Origin:
    """One line of the provenance.

    Attributes:
        name: What it tells.
        values: One text where it holds for all runs; otherwise run id to text.
    """

    name: str
    values: str | Mapping[str, str]


def origins(runs: Sequence[RunInfo], rates: Mapping[str, float | None]) -> list[Origin]:
    """What was the same for all runs, and what was not; what nothing is known of is left out.

    Args:
        runs: The runs.
        rates: Run id to the learning rate that its records tell, which counts where none was given.
    """
    found = []
    for name, tell in _TELLS.items():
        texts = {
            info.run_id: _hyperparameters(info, rates.get(info.run_id))
            if tell is None
            else tell(info)
            for info in runs
        }
        if not any(texts.values()):
            continue
        same = len(set(texts.values())) == 1
        found.append(Origin(name, next(iter(texts.values())) if same else texts))
    return found


def _git(info: RunInfo) -> str:
    if not info.git:
        return ""
    dirty = ", with changes that were not committed" if info.git.get("dirty") else ""
    return f"{info.git.get('commit', '')}{dirty}"


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _hyperparameters(info: RunInfo, rate: float | None) -> str:
    """Without the seed, which has a line of its own, and without an end that was not given."""
    given = dict(info.hyperparameters)
    given.pop("seed", None)
    if not given.get("global_steps"):
        given.pop("global_steps", None)
    if rate is not None:
        given.setdefault("learning_rate", f"{rate:g}")
    return _pairs(given)


def _when(info: RunInfo) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(info.started_unix))
    except (OverflowError, ValueError, OSError, TypeError):
        return ""


def _cluster(info: RunInfo) -> str:
    digest = f"SHA-256 {info.cluster_sha256}" if info.cluster_sha256 else ""
    return ", ".join(part for part in (info.cluster_file, digest) if part)


_TELLS: Final[Mapping[str, Callable[[RunInfo], str] | None]] = {
    "command": command,
    "program": lambda info: info.spec.program,
    "started": _when,
    "seed": lambda info: "" if info.seed is None else str(info.seed),
    "hyperparameters": None,  # which the records, too, tell something of
    "goes on from": lambda info: info.spec.resumed_from,
    "git commit": _git,
    "versions": lambda info: _pairs(info.versions),
    "ran in": lambda info: _pairs(info.provenance),
    "backend": lambda info: info.backend,
    "cluster": _cluster,
    "GPUs": lambda info: ", ".join(map(str, info.gpus)),
}
