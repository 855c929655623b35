"""Runs for the lesson hour."""

from __future__ import annotations

from typing import Final

from tests.support.lessons import FEWER, KILLED, ONE, SLOW, StageRuns, measured, rounds

RUNS: Final[StageRuns] = {
    "first": [
        {"run": measured(state="failed")},
        {"run": measured(given=SLOW)},
        {"run": measured()},
    ],
    "sync": [
        {"async": measured(given=ONE), "sync": rounds(state="failed")},
        {"async": measured(given=ONE), "sync": rounds(SLOW)},
        {"async": measured(given=ONE | SLOW), "sync": rounds()},
        {"async": measured(given={"hyperparameters": {"epochs": 2}}), "sync": rounds()},
        {"async": measured(given=ONE), "sync": rounds()},
    ],
    "slow": [
        {"normal": rounds(), "slow": rounds()},
        {"normal": rounds(SLOW), "slow": rounds(SLOW)},
        {"normal": rounds(), "slow": rounds(SLOW, state="failed")},
        {"normal": rounds(), "slow": rounds(SLOW, steps_per_s=18.0)},
    ],
    "stale": [
        {"run": measured()},
        {"run": measured(given=SLOW, state="failed")},
        {"run": measured(given=SLOW)},
    ],
    "killed": [
        {"first": measured(given=ONE), "run": measured(given=ONE)},
        {"first": measured(given=ONE), "run": measured(tasks=FEWER, given=ONE | KILLED)},
        {
            "first": measured(given=ONE | SLOW),
            "run": measured(tasks=FEWER, given=ONE | KILLED, degraded=True),
        },
        {
            "first": measured(given={"hyperparameters": {"epochs": 2}}),
            "run": measured(tasks=FEWER, given=ONE | KILLED, degraded=True),
        },
        {
            "first": measured(given=ONE),
            "run": measured(tasks=FEWER, given=ONE | KILLED, degraded=True, global_step=1211),
        },
    ],
}
