"""The samples of a run's GPUs, `gpu.jsonl`, and the metrics of each task over a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from lab.protocol.records.reader import is_number

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
    for time_unix, moment in groupby(samples(records), lambda sample: sample.time_unix):
        of_task: dict[str, list[float]] = {}
        for sample in moment:
            if sample.utilisation is not None:
                of_task.setdefault(sample.task, []).append(sample.utilisation)
        yield time_unix, {task: sum(uses) / len(uses) for task, uses in of_task.items()}


def figures(
    records: Iterable[Mapping[str, Any]], trained: Mapping[str, Span | None]
) -> dict[str, GpuFigures]:
    """Return the GPU metrics of each task that has a sample; a pure function.

    Args:
        records: The lines of `gpu.jsonl`; those of one task and moment must be adjacent.
        trained: The time from the first step record to the last, by task.
    """
    tasks: dict[str, list[_Moment]] = {}
    for (task, time), of_moment in groupby(samples(records), lambda sample: sample[:2]):
        gpus = list(of_moment)
        used = _mean([gpu.utilisation for gpu in gpus if gpu.utilisation is not None])
        memory = _sum([gpu.memory_bytes for gpu in gpus])
        power = _sum([gpu.power_w for gpu in gpus])
        tasks.setdefault(task, []).append(_Moment(time, used, memory, power))
    return {task: _over(moments, trained.get(task)) for task, moments in tasks.items()}


class _Moment(NamedTuple):
    """The sums and means over a task's GPUs at one moment; None: not known."""

    time: float
    utilisation: float | None
    memory_bytes: float | None
    power_w: float | None


def _over(moments: Sequence[_Moment], trained: Span | None) -> GpuFigures:
    """Return the metrics over the moments in which a task trained, or else over all moments."""
    inside = [moment for moment in moments if trained and trained[0] <= moment.time <= trained[1]]

    def known(name: str, among: Sequence[_Moment]) -> list[float]:
        return [value for moment in among if (value := getattr(moment, name)) is not None]

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
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _amount(value: object) -> float | None:
    """Return the value if it is a finite number from 0 on; else None."""
    return value if is_number(value) and 0 <= value < math.inf else None
