"""Runs for the lessons of the notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lab.lessons.measures import MeasuredRun
from lab.store.summary import ResultSummary
from tests.support.lessons import ROUNDS, SLOW, WORKERS, Runs, measured, rounds

BACKUP: Final = {"hyperparameters": {"epochs": 1, "replicas_to_aggregate": 2}}
TWO: Final = {
    "worker-0": {"local_step": 550, "global_step": 1082},
    "worker-1": {"local_step": 550, "global_step": 1100},
}
CHAPTER: Final = {
    "worker-0": {"local_step": 2750, "global_step": 7196},
    "worker-1": {"local_step": 2750, "global_step": 7231},
    "worker-2": {"local_step": 2750, "global_step": 8250},
}
LATE: Final = {
    "start": {"worker-2": "after 2090 steps"},
    "hyperparameters": {"epochs": 5, "seed": 1},
}


def result(name: str, value: float) -> dict[str, list[ResultSummary]]:
    """A result that a program reported."""
    return {"results": [ResultSummary(name, "", value, None, None, as_expected=True)]}


def two_workers() -> MeasuredRun:
    """An asynchronous training on `clusters/laptop.yaml`."""
    return measured(tasks=TWO, global_step=1100, steps_per_s=118.0)


def slow_rounds() -> MeasuredRun:
    """A synchronous training with a slow worker."""
    return rounds(SLOW, steps_per_s=18.0)


RUNS: Final[Mapping[str, Mapping[str, Runs]]] = {
    "tour": {
        "hello": {
            "run": measured(
                "hello",
                {f"local-{index}": {} for index in range(3)},
                **result("tasks that greeted", 3),
            )
        },
        "train": {"run": two_workers()},
    },
    "stragglers": {
        "even": {"run": rounds()},
        "wait": {"normal": rounds(), "slow": slow_rounds()},
        "backup": {
            "slow": slow_rounds(),
            "backup": measured("sync", ROUNDS, BACKUP | SLOW, global_step=550, steps_per_s=38.0),
        },
        "stale": {"run": measured("staleness", WORKERS, **result("staleness", 1.72))},
    },
    "how-many": {
        "place": {"run": measured("placement", {**TWO, "ps-0": {}, "ps-1": {}})},
        "two": {"run": two_workers()},
        "three": {"two": two_workers(), "three": measured(steps_per_s=121.0)},
    },
    "reproduce": {"small": {"run": measured(tasks=CHAPTER, given=LATE, global_step=8250)}},
}
