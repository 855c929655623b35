"""The samples of a run's GPUs (`gpu.jsonl`), and the metrics of each task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from lab.records.reader import read_records

Span = tuple[float, float]
"""The start and the end of a time span, both in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """The GPU metrics of one task over a run; None for a metric that no GPU reported.

    Attributes:
        utilisation: Mean over samples and GPUs while the task trained, from 0 to 1; over all
            samples if none was taken in that time.
        memory_bytes: The peak of the memory in use, summed over its GPUs.
        power_w: The power of its GPUs together, in watts; a mean over the same samples as the
            utilisation.
    """

    utilisation: float | None
    memory_bytes: int | None
    power_w: float | None


NO_FIGURES: Final = GpuFigures(None, None, None)
"""The metrics of a task without GPUs, or without samples."""


def read_figures(path: Path, trained: Mapping[str, Span | None]) -> dict[str, GpuFigures]:
    """Return the GPU metrics of each task in `gpu.jsonl`; a missing file counts as empty.

    Args:
        path: The file. Half a line at its end, and lines that are not samples, are skipped.
        trained: The time from the first step record to the last, by task.
    """
    return figures(read_records(path), trained)


def figures(
    records: Iterable[Mapping[str, Any]], trained: Mapping[str, Span | None]
) -> dict[str, GpuFigures]:
    """Return the GPU metrics of each task that has a sample; a pure function.

    Args:
        records: Samples; the samples of one task and moment must be adjacent.
        trained: The time from the first step record to the last, by task.
    """
    tasks: dict[str, _Task] = {}
    for (task, moment), lines in groupby(_samples(records), _moment):
        tasks.setdefault(task, _Task(trained.get(task))).add(moment, list(lines))
    return {name: task.figures() for name, task in tasks.items()}


@dataclass(slots=True)
class _Moments:
    """The known values of utilisation and power at several moments."""

    utilisation: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)

    def add(self, utilisation: float | None, power_w: float | None) -> None:
        self.utilisation += [] if utilisation is None else [utilisation]
        self.power_w += [] if power_w is None else [power_w]


@dataclass(slots=True)
class _Task:
    """The samples of one task so far: all of them, and those while it trained."""

    trained: Span | None
    always: _Moments = field(default_factory=_Moments)
    training: _Moments = field(default_factory=_Moments)
    memory_bytes: int | None = None

    def add(self, time: float, lines: Sequence[Mapping[str, Any]]) -> None:
        shares = [one for line in lines if (one := _share(line.get("utilisation"))) is not None]
        sample = _mean(shares), _sum(lines, "power_w")
        self.always.add(*sample)
        if self.trained is not None and self.trained[0] <= time <= self.trained[1]:
            self.training.add(*sample)
        memory = _sum(lines, "memory_used_bytes")
        if memory is not None:
            self.memory_bytes = max(int(memory), self.memory_bytes or 0)

    def figures(self) -> GpuFigures:
        utilisation = _mean(self.training.utilisation or self.always.utilisation)
        power_w = _mean(self.training.power_w or self.always.power_w)
        return GpuFigures(utilisation, self.memory_bytes, power_w)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _moment(sample: Mapping[str, Any]) -> tuple[str, float]:
    return sample["task"], sample["time_unix"]


def _samples(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for record in records:
        if isinstance(record.get("task"), str) and _amount(record.get("time_unix")) is not None:
            yield record


def _sum(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the sum over a task's GPUs; None if a GPU has no value: a partial sum is wrong."""
    values = [one for line in lines if (one := _amount(line.get(name))) is not None]
    return sum(values) if len(values) == len(lines) else None


def _amount(value: object) -> float | None:
    """Return the value if it is a finite number from 0 on; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < math.inf else None


def _share(value: object) -> float | None:
    found = _amount(value)
    return found if found is not None and found <= 1 else None
