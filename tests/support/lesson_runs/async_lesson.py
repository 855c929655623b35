"""Runs for the lesson async."""

from __future__ import annotations

from typing import Final

from tests.support.lessons import LATE, SLOW, TWO, StageRuns, measured

RUNS: Final[StageRuns] = {
    "train": [
        {"run": measured(state="failed")},
        {"run": measured(tasks=TWO)},
        {"run": measured(updates_conserved=False)},
        {"run": measured()},
    ],
    "late": [
        {"run": measured()},
        {"run": measured(given=LATE, state="failed")},
        {"run": measured(given=LATE)},
    ],
    "slow": [
        {"run": measured()},
        {"run": measured(given=SLOW, state="failed")},
        {"run": measured(given=SLOW)},
    ],
}
