"""What the board shows of the GPUs of a class: which seat has each one, and how busy it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from lab.classroom.planning import ClassPlan
from lab.classroom.queue.folder import Queued
from lab.formatting import percent
from lab.gpu import NvmlError
from lab.run.gpu_metrics import Sample, Sampler
from lab.threads import in_background
from lab.units import GIB

PATIENCE_S: Final = 2.0
"""Seconds that the board waits for a driver after all seats have answered."""

UNKNOWN: Final = "not known"

_ID: Final = 12  # characters of a UUID: `GPU-5e3f1a09`


class GpuRow(msgspec.Struct, frozen=True):
    """A GPU on the board, as texts that are safe to show.

    Attributes:
        gpu: The beginning of its UUID.
        seats: The seats that have it, or `free`.
        use: The share of time in which a kernel ran: `45 %`, or `not known`.
        memory: The memory in use: `12.0 of 80.0 GiB`, or `not known`.
    """

    gpu: str
    seats: str
    use: str
    memory: str


class GpuReader:
    """Samples GPUs in another thread: a driver that does not answer delays no seat."""

    def __init__(self) -> None:
        self._asked: Future[list[Sample]] | None = None

    def ask(self, gpus: Collection[str]) -> None:
        """Begin a sample of GPUs by their UUIDs; without GPUs, the driver is not opened."""

        def sample() -> list[Sample]:
            if not gpus:
                return []
            with Sampler(gpus) as sampler:
                return sampler.sample()

        if self._asked is None or self._asked.done():
            self._asked = in_background(sample)

    def answer(self) -> list[Sample]:
        """Return the sample; without those of GPUs that do not answer in time."""
        if self._asked is None:
            return []
        try:
            return self._asked.result(PATIENCE_S)
        except (NvmlError, TimeoutError):
            return []


def gpu_rows(
    plan: ClassPlan, queue: Sequence[Queued], samples: Iterable[Sample]
) -> Iterator[GpuRow]:
    """Yield a row for each GPU of a class.

    Args:
        plan: The class.
        queue: What waits in its queue, or has GPUs of it.
        samples: The samples of its GPUs; one without a sample is not known.
    """
    known = {each.device_id: each for each in samples}
    seats: dict[str, list[str]] = {gpu: [] for gpu in plan.gpu_users}
    having = [(each.name, each.gpus) for each in plan.seats]
    having += [(each.seat, each.gpus) for each in queue]
    for seat, gpus in having:
        for gpu in gpus:
            seats.setdefault(gpu, []).append(seat)
    for gpu, names in seats.items():
        sample = known.get(gpu)
        use = percent(sample.utilisation) if sample else ""
        memory = _memory(sample) if sample else ""
        yield GpuRow(gpu[:_ID], ", ".join(names) or "free", use or UNKNOWN, memory or UNKNOWN)


def _memory(sample: Sample) -> str:
    if sample.memory_used_bytes is None or sample.memory_bytes is None:
        return ""
    return f"{sample.memory_used_bytes / GIB:.1f} of {sample.memory_bytes / GIB:.1f} GiB"
