"""The samples of a run's GPUs, `gpu.jsonl`, and the metrics of each task over a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from lab.records.reader import is_number

Span = tuple[float, float]
"""The start and the end of a time span, both in seconds since the epoch."""


class GpuSample(NamedTuple):
    """One GPU of one task at one moment; None: not known.

    Attributes:
        task: The task.
        time_unix: The moment, in seconds since the epoch.
        gpu: The device id of the GPU.
        utilisation: Share of time in which a kernel ran, from 0 to 1.
        memory_bytes: Memory in use.
        power_w: Power, in watts.
    """

    task: str
    time_unix: float
    gpu: str
    utilisation: float | None
    memory_bytes: float | None
    power_w: float | None


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


def samples(records: Iterable[Mapping[str, Any]]) -> Iterator[GpuSample]:
    """Yield the samples of the lines of `gpu.jsonl`; skip lines that are not samples."""
    for record in records:
        task, moment, gpu = record.get("task"), _amount(record.get("time_unix")), record.get("gpu")
        if isinstance(task, str) and isinstance(gpu, str) and moment is not None:
            share = _amount(record.get("utilisation"))
            memory, power = (_amount(record.get(key)) for key in ("memory_used_bytes", "power_w"))
            is_share = share is not None and share <= 1
            yield GpuSample(task, moment, gpu, share if is_share else None, memory, power)


def use_by_moment(
    records: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield each moment of `gpu.jsonl`, with the mean utilisation of each task's GPUs.

    Args:
        records: The lines of `gpu.jsonl`; those of one moment must be adjacent.
    """
    for time_unix, found in groupby(samples(records), lambda each: each.time_unix):
        of_task: dict[str, list[float]] = {}
        for each in found:
            if each.utilisation is not None:
                of_task.setdefault(each.task, []).append(each.utilisation)
        yield time_unix, {task: sum(each) / len(each) for task, each in of_task.items()}


def figures(
    records: Iterable[Mapping[str, Any]], trained: Mapping[str, Span | None]
) -> dict[str, GpuFigures]:
    """Return the GPU metrics of each task that has a sample; a pure function.

    Args:
        records: The lines of `gpu.jsonl`; those of one task and moment must be adjacent.
        trained: The time from the first step record to the last, by task.
    """
    tasks: dict[str, list[_Moment]] = {}
    for (task, time), found in groupby(samples(records), lambda each: each[:2]):
        tasks.setdefault(task, []).append(_moment(time, list(found)))
    return {task: _over(moments, trained.get(task)) for task, moments in tasks.items()}


class _Moment(NamedTuple):
    """The sums and means over a task's GPUs at one moment; None: not known."""

    time: float
    utilisation: float | None
    memory_bytes: float | None
    power_w: float | None


def _moment(time: float, found: Sequence[GpuSample]) -> _Moment:
    return _Moment(
        time,
        _mean([each.utilisation for each in found if each.utilisation is not None]),
        _sum([each.memory_bytes for each in found]),
        _sum([each.power_w for each in found]),
    )


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


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum over a task's GPUs; None if a GPU has no value: a partial sum is wrong."""
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


def _amount(value: object) -> float | None:
    """Return the value if it is a finite number from 0 on; else None."""
    return value if is_number(value) and 0 <= value < math.inf else None
