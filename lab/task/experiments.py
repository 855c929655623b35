"""The registry of experiments.

It stands inside the image because a task agent must know an experiment by its name when the
environment is started with `LAB_EXPERIMENT` and no helper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named training program.

    Attributes:
        name: What `lab run` and `LAB_EXPERIMENT` call it.
        program: The program's file in `scripts/`.
        summary: One line for a list.
        jobs: Jobs that the cluster must have, each with at least one task.
        services: Jobs that serve until every other job has ended.
        args: Default arguments, before the user's own, which win.
    """

    name: str
    program: str
    summary: str
    jobs: tuple[str, ...]
    services: tuple[str, ...] = ("ps",)
    args: tuple[str, ...] = ()


EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="async",
            program="mnist_async.py",
            summary="every worker updates the shared parameters on its own, at once",
            jobs=("ps", "worker"),
        ),
        Experiment(
            name="sync",
            program="mnist_sync.py",
            summary="one update of the shared parameters per round of gradients",
            jobs=("ps", "worker"),
        ),
    )
}
