"""The samples of a run's GPUs (`gpu.jsonl`), and the metrics of each task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from lab.records.reader import is_number, read_records

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
    tasks: dict[str, list[_Moment]] = {}
    for (task, time), lines in groupby(_samples(records), lambda x: (x["task"], x["time_unix"])):
        tasks.setdefault(task, []).append(_moment(time, list(lines)))
    return {task: _over(moments, trained.get(task)) for task, moments in tasks.items()}


class _Moment(NamedTuple):
    """The sums and means over a task's GPUs at one moment; None: not known."""

    time: float
    utilisation: float | None
    memory_bytes: float | None
    power_w: float | None


def _moment(time: float, lines: Sequence[Mapping[str, Any]]) -> _Moment:
    amounts = [_amount(line.get("utilisation")) for line in lines]
    shares = [each for each in amounts if each is not None and each <= 1]
    return _Moment(time, _mean(shares), _sum(lines, "memory_used_bytes"), _sum(lines, "power_w"))


def _over(moments: Sequence[_Moment], trained: Span | None) -> GpuFigures:
    """Return the metrics over the moments in which a task trained, or else over all moments."""
    inside = [each for each in moments if trained and trained[0] <= each.time <= trained[1]]

    def known(name: str, among: Sequence[_Moment]) -> list[float]:
        return [value for each in among if (value := getattr(each, name)) is not None]

    def mean(name: str) -> float | None:
        return _mean(known(name, inside) or known(name, moments))

    memory = max(known("memory_bytes", moments), default=None)
    return GpuFigures(
        utilisation=mean("utilisation"),
        memory_bytes=None if memory is None else int(memory),
        power_w=mean("power_w"),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


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
    return value if is_number(value) and 0 <= value < math.inf else None
