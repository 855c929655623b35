"""The trainings on a second machine, and their sentence in docs/outgrow.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import scaling, second_machine
from benchmarks.measure import Setting
from benchmarks.shapes import Measured
from benchmarks.trainings import Workplace
from lab.simulation import MEASURED, Box, Shape, simulate

CORES = 2
SLOW_SYNC = 0.8


def train(_place: Workplace, shape: Shape, steps: int, _every: int) -> Measured:
    """A training on a machine that is three times as fast; sync is slower than simulated."""
    costs = second_machine.faster(MEASURED, 3)
    found = simulate(shape, costs, Box(CORES))
    rate = found.steps_per_s * (SLOW_SYNC if shape.way.value == "sync" else 1)
    return Measured(shape, rate, steps / rate, found.worker_cpu_s, found.ps_cpu_s, None, None, 0.0)


def test_the_factor_of_one_worker_and_the_errors_of_the_others_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine: dict[str, Any] = {"cores": CORES, "cpu": "fast CPU"}
    monkeypatch.setattr(second_machine, "FIGURES", tmp_path / "second_machine.json")
    monkeypatch.setattr(second_machine, "train", train)
    monkeypatch.setattr(second_machine, "describe", lambda _: machine)
    assert second_machine.sentence(second_machine.read()).startswith("Not measured yet")
    setting = Setting(Workplace(tmp_path, {}), pairs=1, quick=True, backends=())
    assert second_machine.measure(setting) == []
    assert second_machine.read() is None  # a check writes nothing
    setting = Setting(Workplace(tmp_path, {}), pairs=1, quick=False, backends=())
    assert second_machine.measure(setting) == []
    kept = second_machine.read()
    assert kept is not None
    assert [len(row["repeats"]) for row in kept["shapes"]] == [scaling.REPEATS] * 3
    text = second_machine.sentence(kept)
    assert "a second machine with 2 cores (fast CPU, " in text
    assert (
        "while other work used 0.0 to 0.0 cores) one worker trained 3.0 times as fast as simulated."
        in text
    )
    assert text.endswith("the errors with 8 workers were +0% for async and +25% for sync.")
