"""What the samples of a run's cards say: who holds which card, and the figures of each task.

Nothing here asks a driver: `telemetry.py` does, and writes `gpu.jsonl`, which is read here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.run.directory import RunInfo
from lab.run.progress import read_records

if TYPE_CHECKING:
    from lab.gpu.sampler import Sample

Span = tuple[float, float]
"""A time from its first to its last moment, both in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The cards of one task over a run; what no card told is None.

    Attributes:
        utilisation: Mean over moments and cards while the task trained, a share from 0 to 1; over
            all moments where none falls into that time.
        memory_bytes: Memory in use on its cards together, at its peak.
        power_w: Power that its cards draw together, in watts; a mean over the same moments as the
            utilisation.
    """

    utilisation: float | None
    memory_bytes: int | None
    power_w: float | None


NO_FIGURES: Final = Figures(None, None, None)
"""Of a task that holds no card, or whose cards nobody sampled."""


def cards_of(info: RunInfo) -> dict[str, tuple[str, ...]]:
    """Task → device ids of those of its cards that can be sampled; tasks without one are left out.

    An index names a card of some box, not of this one: only UUIDs count.
    """
    found = {}
    for row in info.tasks:
        cards = tuple(gpu for gpu in row.get("gpus", ()) if not gpu.isdecimal())
        if cards:
            found[str(row["task"])] = cards
    return found


def lines_of(
    moment: float, samples: Iterable[Sample], cards: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """The lines of one moment, task by task: one for each card and each task that holds it.

    Args:
        moment: When the samples were taken, in seconds since the epoch.
        samples: One for each card that answered; of another one a line says nothing but that.
        cards: Task → device ids of its cards.
    """
    by_card = {sample.device_id: sample for sample in samples}
    held = [card for each in cards.values() for card in each]
    lines = []
    for task, each in cards.items():
        for card in each:
            sample = by_card.get(card)
            line: dict[str, Any] = {
                "time_unix": round(moment, 3),
                "task": task,
                "gpu": card,
                "utilisation": sample and sample.utilisation,
                "memory_used_bytes": sample and sample.memory_used_bytes,
                "power_w": sample and sample.power_w,
            }
            if held.count(card) > 1:
                line["shared"] = True
            lines.append(line)
    return lines


def use_now(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Task → mean utilisation of its cards, of the lines of one moment."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if line["utilisation"] is not None:
            found.setdefault(line["task"], []).append(line["utilisation"])
    return {task: sum(values) / len(values) for task, values in found.items()}


def read_figures(path: Path, trained: Mapping[str, Span | None]) -> dict[str, Figures]:
    """Fold `gpu.jsonl`, line by line; a file that is missing is an empty one.

    Args:
        path: The file. Half a line at its end, and whatever is no sample, is passed over.
        trained: Task → from its first step record to its last.
    """
    return figures(read_records(path), trained)


def figures(
    records: Iterable[Mapping[str, Any]], trained: Mapping[str, Span | None]
) -> dict[str, Figures]:
    """Task → its figures, for every task that has a sample; a pure function.

    Args:
        records: Samples, those of one task and moment in a row.
        trained: Task → from its first step record to its last.
    """
    tasks: dict[str, _Task] = {}
    for (task, time), lines in groupby(_samples(records), _moment):
        tasks.setdefault(task, _Task(trained.get(task))).add(time, list(lines))
    return {name: task.figures() for name, task in tasks.items()}


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.count += 1

    def value(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class _Means:
    utilisation: _Mean = field(default_factory=_Mean)
    power_w: _Mean = field(default_factory=_Mean)

    def add(self, utilisation: float | None, power_w: float | None) -> None:
        self.utilisation.add(utilisation)
        self.power_w.add(power_w)


@dataclass(slots=True)
class _Task:
    """The moments of one task so far: all of them, and those while it trained."""

    trained: Span | None
    always: _Means = field(default_factory=_Means)
    training: _Means = field(default_factory=_Means)
    memory_bytes: int | None = None

    def add(self, time: float, lines: Sequence[Mapping[str, Any]]) -> None:
        shares = [one for line in lines if (one := _share(line.get("utilisation"))) is not None]
        utilisation = sum(shares) / len(shares) if shares else None
        power_w = _sum(lines, "power_w")
        self.always.add(utilisation, power_w)
        if self.trained is not None and self.trained[0] <= time <= self.trained[1]:
            self.training.add(utilisation, power_w)
        memory = _sum(lines, "memory_used_bytes")
        if memory is not None:
            self.memory_bytes = max(int(memory), self.memory_bytes or 0)

    def figures(self) -> Figures:
        utilisation, power_w = self.training.utilisation.value(), self.training.power_w.value()
        return Figures(
            self.always.utilisation.value() if utilisation is None else utilisation,
            self.memory_bytes,
            self.always.power_w.value() if power_w is None else power_w,
        )


def _moment(sample: Mapping[str, Any]) -> tuple[str, float]:
    return sample["task"], sample["time_unix"]


def _samples(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for record in records:
        if isinstance(record.get("task"), str) and _amount(record.get("time_unix")) is not None:
            yield record


def _sum(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """What a task's cards come to together; None where one does not tell: no half of a sum."""
    values = [one for line in lines if (one := _amount(line.get(name))) is not None]
    return sum(values) if len(values) == len(lines) else None


def _amount(value: object) -> float | None:
    """A number that is none below 0, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < math.inf else None


def _share(value: object) -> float | None:
    found = _amount(value)
    return found if found is not None and found <= 1 else None
