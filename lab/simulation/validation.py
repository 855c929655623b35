"""The error of a prediction: what the validation found for the same kind of step outwards.

`python -m benchmarks scaling` predicts trainings that calibrated nothing, and compares them with
measurements. It sorts the errors into classes: by the way, by the change of the host, and by the
factor between the predicted and the calibrated number of tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final

from lab.simulation.model import Costs, Host, Machine, Shape, Way

TIMES: Final = (1, 3, 8)
"""The limits of the classes: the factor between the numbers of tasks."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a prediction.

    Attributes:
        way: The way.
        shipped: Whether the shipped machine predicts as it is; otherwise a run calibrated it.
        change: What differs from the calibration beside the numbers of tasks: "", `cores`, `links`
            or `slow`.
        times: The class of the factor, one of `TIMES`.
    """

    way: Way
    shipped: bool
    change: str
    times: int

    @property
    def label(self) -> str:
        """The kind as a text."""
        far = "as many tasks" if self.times == 1 else f"up to {self.times} times as many tasks"
        return f"{far}, other {self.change}" if self.change else far


def factor(shape: Shape, calibrating: Sequence[Shape]) -> float:
    """Return the factor to the nearest calibrating training: the larger of workers' and servers'.

    Fewer tasks count as more tasks do: half as many are two times.
    """

    def apart(one: int, other: int) -> float:
        return max(one, other) / min(one, other) if min(one, other) else 1.0

    alike = [each for each in calibrating if each.way is shape.way]
    return min(
        (max(apart(shape.workers, each.workers), apart(shape.ps, each.ps)) for each in alike),
        default=float("inf"),
    )


def changes(machine: Machine, shape: Shape, host: Host) -> list[str]:
    """Return what differs from the calibration beside the numbers of tasks."""
    known = machine.host
    differs = {
        "cores": host.cores != known.cores,
        "links": (host.bandwidth, host.latency_s) != (known.bandwidth, known.latency_s),
        "slow": min(shape.shares, default=1.0) < 1,
    }
    return [name for name, changed in differs.items() if changed]


def kind_of(machine: Machine, shape: Shape, host: Host, *, shipped: bool) -> Kind | None:
    """Return the kind of a prediction; None if it has no class."""
    changed = changes(machine, shape, host)
    times = [each for each in TIMES if factor(shape, machine.shapes) <= each]
    if len(changed) > 1 or not times:
        return None
    return Kind(shape.way, shipped, "".join(changed), times[0])


@dataclass(frozen=True, slots=True)
class Error:
    """What is known about the error of a prediction.

    Attributes:
        steps_per_s: The relative error of steps and images per second; None: not known.
        staleness: The relative error of the staleness; None: not known.
        kind: The kind of the prediction as a text; "" if it has no class.
        predictions: The number of predictions of the validation in this class.
        why: What was never validated; "" if the error is known.
    """

    steps_per_s: float | None
    staleness: float | None
    kind: str
    predictions: int
    why: str = ""


class Shipped:
    """The shipped machine and the validation, read once from their file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The content of the file."""
        return dict(json.loads(self.path.read_text(encoding="utf-8")))

    @property
    def machine(self) -> Machine:
        """The shipped machine."""
        raw = self.raw
        shapes = tuple(
            Shape(Way(each["way"]), each["workers"], each["ps"]) for each in raw["shapes"]
        )
        host, ratios = Host(raw["cores"]), tuple(raw["ratios"])
        return Machine(Costs(**raw["costs"]), ratios, shapes, host, raw["label"])

    def error(self, machine: Machine, shape: Shape, host: Host, *, shipped: bool) -> Error:
        """Return what is known about the error of a prediction.

        Args:
            machine: The machine that predicts.
            shape: The training.
            host: The host.
            shipped: Whether the machine is the shipped one; otherwise a run calibrated it.
        """
        kind = kind_of(machine, shape, host, shipped=shipped)
        rows = [each for each in self.raw["errors"] if kind and _matches(each, kind)]
        row = min(rows, key=lambda each: int(each["times"]), default=None)
        why = next(self._never(machine, shape, host, row), "")
        if why or row is None or kind is None:
            return Error(None, None, "", 0, why)
        label = replace(kind, times=row["times"]).label
        return Error(row["error"], row["staleness"], label, row["predictions"])

    def _never(
        self, machine: Machine, shape: Shape, host: Host, row: dict[str, Any] | None
    ) -> Iterator[str]:
        """Yield what of a prediction was never validated."""
        alike = [each for each in self.raw["errors"] if each["way"] == shape.way.value]
        workers, ps = (max((each[job] for each in alike), default=0) for job in ("workers", "ps"))
        cores = sorted({count for each in alike for count in each["cores"]})
        if host.device_s:
            yield "a GPU"
        if host.separate:
            yield "a network of several hosts"
        if any(each.batch_size != 100 for each in (shape, *machine.shapes[:1])):  # noqa: PLR2004
            yield f"a batch of {shape.batch_size} images"
        if machine.host.bandwidth != float("inf") or machine.host.latency_s:
            yield "a calibration on a run with slow links"
        for other in {host.cores, machine.host.cores} - set(cores):
            yield f"{other} cores (validated: {' and '.join(map(str, cores))})"
        if shape.workers > workers:
            yield f"{shape.workers} workers (validated: up to {workers})"
        if shape.ps > ps:
            yield f"{shape.ps} parameter servers (validated: up to {ps})"
        far = factor(shape, machine.shapes)
        if far > TIMES[-1]:
            yield f"{far:.3g} times the calibrated tasks (validated: up to {TIMES[-1]} times)"
        if row is None:
            yield f"a change of {' and '.join(changes(machine, shape, host))} in {shape.way}"
            return
        if host.bandwidth != float("inf") and not (
            row["bandwidth"][0] <= host.bandwidth <= row["bandwidth"][-1]
        ):
            rates = [f"{each * 8 / 1e6:g}" for each in row["bandwidth"]]
            yield f"links of {host.bandwidth * 8 / 1e6:g} Mbit/s (validated: {' to '.join(rates)})"
        if host.latency_s:
            yield "links with a latency"
        if min(shape.shares, default=1.0) < row["share"]:
            yield f"a worker that runs for less than {row['share']:.0%} of the time"


def _matches(row: dict[str, Any], kind: Kind) -> bool:
    """Whether a class is of this kind, or goes further outwards."""
    known = (row["way"], row["shipped"], row["change"])
    return known == (kind.way.value, kind.shipped, kind.change) and row["times"] >= kind.times


SHIPPED: Final = Shipped(Path(str(resources.files(__package__) / "machine.json")))
