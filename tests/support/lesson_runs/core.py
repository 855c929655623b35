"""Runs for the hour and the core lessons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.lessons import FEWER, KILLED, LATE, ONE, SLOW, Runs, measured, rounds

RUNS: Final[Mapping[str, Mapping[str, Runs]]] = {
    "async": {
        "train": {"run": measured()},
        "late": {"run": measured(given=LATE)},
        "slow": {"run": measured(given=SLOW)},
    },
    "hour": {
        "first": {"run": measured()},
        "sync": {"async": measured(given=ONE), "sync": rounds()},
        "slow": {"normal": rounds(), "slow": rounds(SLOW, steps_per_s=18.0)},
        "stale": {"run": measured(given=SLOW)},
        "killed": {
            "first": measured(given=ONE),
            "run": measured(tasks=FEWER, given=ONE | KILLED, degraded=True, global_step=1211),
        },
    },
}
