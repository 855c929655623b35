"""The provenance of runs: all settings and versions to repeat them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from lab.store.run_info import RunInfo
from lab.store.settings import command


def provenance(
    runs: Mapping[str, RunInfo], rates: Mapping[str, float | None]
) -> dict[str, str | dict[str, str]]:
    """Return the provenance of runs, without unknown fields.

    Args:
        runs: Name on the page to its run.
        rates: Name to the learning rate of its records, used if no flag gives one.

    Returns:
        Field name to one text if it is the same for all runs, else to the text of each name.
    """
    found: dict[str, str | dict[str, str]] = {}
    if any(name != info.run_id for name, info in runs.items()):
        found["run"] = {name: info.run_id for name, info in runs.items()}
    for name, read in _FIELDS.items():
        texts = {each: read(info, rates.get(each)) for each, info in runs.items()}
        if any(texts.values()):
            several = set(texts.values())
            found[name] = several.pop() if len(several) == 1 else texts
    return found


def _git(info: RunInfo) -> str:
    if not info.git:
        return ""
    dirty = ", with uncommitted changes" if info.git.get("dirty") else ""
    return f"{info.git.get('commit', '')}{dirty}"


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _hyperparameters(info: RunInfo, rate: float | None) -> str:
    """Return them without the seed, which has its own field, and without an unset limit."""
    given = dict(info.hyperparameters)
    given.pop("seed", None)
    if not given.get("global_steps"):
        given.pop("global_steps", None)
    if rate is not None:
        given.setdefault("learning_rate", f"{rate:g}")
    return _pairs(given)


def _when(info: RunInfo) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(info.started_unix))


def _cluster(info: RunInfo) -> str:
    digest = f"SHA-256 {info.cluster_sha256}" if info.cluster_sha256 else ""
    return ", ".join(part for part in (info.cluster_file, digest) if part)


_FIELDS: Final[Mapping[str, Callable[[RunInfo, float | None], str]]] = {
    "command": lambda info, _: command(info),
    "program": lambda info, _: info.spec.program,
    "started": lambda info, _: _when(info),
    "seed": lambda info, _: "" if info.seed is None else str(info.seed),
    "hyperparameters": _hyperparameters,
    "resumed from": lambda info, _: info.spec.resumed_from,
    "git commit": lambda info, _: _git(info),
    "versions": lambda info, _: _pairs(info.versions),
    "environment": lambda info, _: _pairs(info.provenance),
    "backend": lambda info, _: info.backend,
    "cluster": lambda info, _: _cluster(info),
    "GPUs": lambda info, _: ", ".join(info.gpus),
}
