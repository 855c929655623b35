"""A few trainings on a second machine, for docs/outgrow.md: do the costs hold there?

Only one factor is fitted: the speed of one worker there. It divides all costs in seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from benchmarks.calibration import ASYNC
from benchmarks.machine import describe
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome
from benchmarks.scaling import QUICK_S, REPEATS, TRAIN_S, several
from benchmarks.shapes import Measured, middle, train
from benchmarks.trainings import ROOT
from lab.simulation import MEASURED, Box, Costs, Shape, Way, simulate

FIGURES: Final = ROOT / "benchmarks/second_machine.json"
SHAPES: Final = (ASYNC, Shape(Way.ASYNC, 8, 1), Shape(Way.SYNC, 8, 1))


def measure(setting: Setting) -> list[Outcome]:
    """Train the shapes, and write `second_machine.json`; no row, because there is no target."""
    machine, when = describe(ROOT), time.strftime("%Y-%m-%d %H:%M %Z")
    seconds, times = (QUICK_S, 1) if setting.quick else (TRAIN_S, REPEATS)
    by, box = partial(train, setting.place), Box(machine["cores"])
    found = [
        several(shape, simulate(shape, MEASURED, box).steps_per_s, seconds, times, by)
        for shape in SHAPES
    ]
    figures = as_json(found) | {"when": when, "machine": machine}
    print_progress(f"  {sentence(figures)}")
    if not setting.quick:
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return []


def as_json(found: Sequence[Sequence[Measured]]) -> dict[str, Any]:
    """Return the medians and all trainings of each shape."""
    return {
        "shapes": [
            {
                "way": each[0].shape.way.value,
                "workers": each[0].shape.workers,
                "measured": middle(each).to_json(),
                "repeats": [one.to_json() for one in each],
            }
            for each in found
        ]
    }


def read() -> dict[str, Any] | None:
    """Return the last measurement; None without one."""
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else None


def sentence(figures: Mapping[str, Any] | None) -> str:
    """Return the factor of one worker's speed, and the errors of the other trainings with it.

    Args:
        figures: The content of `second_machine.json`; None without a measurement.
    """
    if figures is None:
        return "Not measured yet; run `python -m benchmarks second-machine`."
    cores = figures["machine"]["cores"]
    one, *others = figures["shapes"]
    factor = _error(one, MEASURED, cores) ** -1
    errors = [
        f"{_error(row, faster(MEASURED, factor), cores) - 1:+.0%} for {row['way']}"
        for row in others
    ]
    taken = [each["taken"] or 0.0 for row in figures["shapes"] for each in row["repeats"]]
    return (
        f"On a second machine with {cores} cores ({figures['machine']['cpu']}, {figures['when']}, while other work used {min(taken):.1f} to {max(taken):.1f} cores)"  # noqa: E501
        f" one worker trained {factor:.1f} times as fast as simulated."
        f" With all costs divided by this factor, the errors with {others[0]['workers']} workers were {' and '.join(errors)}."  # noqa: E501
    )


def faster(costs: Costs, factor: float) -> Costs:
    """Return the costs of a machine on which all work takes less time by a factor."""
    return replace(
        costs,
        **{name: value / factor for name, value in costs.to_json().items() if name.endswith("_s")},
    )


def _error(row: Mapping[str, Any], costs: Costs, cores: int) -> float:
    """Return the simulated steps per second, divided by the measured ones."""
    measured = row["measured"]
    shape = Shape(Way(row["way"]), row["workers"], 1)
    box = Box(cores, taken=measured["taken"] or 0.0)
    return float(simulate(shape, costs, box).steps_per_s / measured["steps_per_s"])
