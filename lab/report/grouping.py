"""Which runs are repeats of one another, and what each group is called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from lab.run.directory import RunInfo

_NOT_COMPARED: Final = frozenset({"seed"})


def group_names(runs: Sequence[RunInfo]) -> list[str]:
    """A name for each run; runs that differ by their seed alone have the same.

    A name is the experiment's, and whatever else tells its groups apart.
    """
    traits = [_traits(info) for info in runs]
    names = []
    for info, own in zip(runs, traits, strict=True):
        same = [
            other for each, other in zip(runs, traits, strict=True)
            if each.experiment == info.experiment
        ]  # fmt: skip
        keys = dict.fromkeys(key for other in same for key in other)
        differing = [key for key in keys if len({other.get(key) for other in same}) > 1]
        parts = [f"{key} {own[key]}" for key in differing if own.get(key)]
        names.append(", ".join([info.experiment, *parts]))
    return names


def _traits(info: RunInfo) -> Mapping[str, str]:
    """All that makes a run what it is, as texts."""
    given = {
        name: _text(value)
        for name, value in info.hyperparameters.items()
        if name not in _NOT_COMPARED
    }
    workers = {job: str(len(tasks)) for job, tasks in info.cluster.items()}
    cluster = {"cluster": info.cluster_file or info.cluster_sha256[:8]}
    return {
        **{f"{job} tasks": count for job, count in workers.items()},
        **cluster,
        "backend": info.backend,
        "faults": "; ".join(map(str, info.faults)),
        "start": "; ".join(f"{task}: {when}" for task, when in info.start.items()),
        "on failure": str(info.on_failure),
        "data": info.data_dir,
        **given,
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
