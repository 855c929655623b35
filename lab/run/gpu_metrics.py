"""GPU metrics: the samples of a run's GPUs (`gpu.jsonl`), and the figures of each task.

Whoever follows a run samples once a second, in a thread of its own. While no client follows, no
sample is taken. No fault of the driver or of the disk ends the run.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from lab.gpu import NvmlError
from lab.run.progress import read_records
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol.files import append_whole
from lab.threads import signals_blocked

if TYPE_CHECKING:
    from lab.gpu.sampler import Sample
    from lab.run.collect import View

PERIOD_S: Final = 1.0
"""From one sample to the next."""

PATIENCE_S: Final = 2.0
"""So long the end of a run waits for a driver that does not answer."""

_LONGEST_LINE: Final = 4096


class Gpus(Protocol):
    """Cards that are open."""

    def sample(self) -> Sequence[Sample]:
        """What each of them does now."""


Open = Callable[[Sequence[str]], AbstractContextManager[Gpus]]
"""Opens cards by their device ids."""


class End(Protocol):
    """An event that says that nobody follows any more."""

    def is_set(self) -> bool:
        """Whether it has come."""

    def wait(self, timeout: float) -> bool:
        """Wait for it, for so many seconds; whether it has come."""


Span = tuple[float, float]
"""A time from its first to its last moment, both in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
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


NO_FIGURES: Final = GpuFigures(None, None, None)
"""Of a task that holds no card, or whose cards nobody sampled."""


def gpus_of(info: RunInfo) -> dict[str, tuple[str, ...]]:
    """Task → device ids of those of its cards that can be sampled; tasks without one are left out.

    An index names a card of some box, not of this one: only UUIDs count.
    """
    found = {}
    for row in info.tasks:
        gpus = tuple(gpu for gpu in row.get("gpus", ()) if not gpu.isdecimal())
        if gpus:
            found[str(row["task"])] = gpus
    return found


def lines_of(
    moment: float, samples: Iterable[Sample], gpus: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """The lines of one moment, task by task: one for each card and each task that holds it.

    Args:
        moment: When the samples were taken, in seconds since the epoch.
        samples: One for each card that answered; of another one a line says nothing but that.
        gpus: Task → device ids of its cards.
    """
    by_gpu = {sample.device_id: sample for sample in samples}
    held = [gpu for each in gpus.values() for gpu in each]
    lines = []
    for task, each in gpus.items():
        for device_id in each:
            sample = by_gpu.get(device_id)
            line: dict[str, Any] = {
                "time_unix": round(moment, 3),
                "task": task,
                "gpu": device_id,
                "utilisation": sample and sample.utilisation,
                "memory_used_bytes": sample and sample.memory_used_bytes,
                "power_w": sample and sample.power_w,
            }
            if held.count(device_id) > 1:
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


def read_figures(path: Path, trained: Mapping[str, Span | None]) -> dict[str, GpuFigures]:
    """Fold `gpu.jsonl`, line by line; a file that is missing is an empty one.

    Args:
        path: The file. Half a line at its end, and whatever is no sample, is passed over.
        trained: Task → from its first step record to its last.
    """
    return figures(read_records(path), trained)


def figures(
    records: Iterable[Mapping[str, Any]], trained: Mapping[str, Span | None]
) -> dict[str, GpuFigures]:
    """Task → its figures, for every task that has a sample; a pure function.

    Args:
        records: Samples, those of one task and moment in a row.
        trained: Task → from its first step record to its last.
    """
    tasks: dict[str, _Task] = {}
    for (task, moment), lines in groupby(_samples(records), _moment):
        tasks.setdefault(task, _Task(trained.get(task))).add(moment, list(lines))
    return {name: task.figures() for name, task in tasks.items()}


@dataclass(slots=True)
class _Moments:
    """Utilisation and power at several moments, as far as they are known."""

    utilisation: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)

    def add(self, utilisation: float | None, power_w: float | None) -> None:
        self.utilisation += [] if utilisation is None else [utilisation]
        self.power_w += [] if power_w is None else [power_w]


@dataclass(slots=True)
class _Task:
    """The moments of one task so far: all of them, and those while it trained."""

    trained: Span | None
    always: _Moments = field(default_factory=_Moments)
    training: _Moments = field(default_factory=_Moments)
    memory_bytes: int | None = None

    def add(self, time: float, lines: Sequence[Mapping[str, Any]]) -> None:
        shares = [one for line in lines if (one := _share(line.get("utilisation"))) is not None]
        seen = _mean(shares), _sum(lines, "power_w")
        self.always.add(*seen)
        if self.trained is not None and self.trained[0] <= time <= self.trained[1]:
            self.training.add(*seen)
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


@contextmanager
def sampled(run: RunDir, info: RunInfo, view: View) -> Iterator[None]:
    """Sample the cards of a run until the block ends; nothing at all where it holds none.

    Args:
        run: Whose `gpu.jsonl` grows.
        info: Says which task holds which card.
        view: Receives the newest figures, and one notice if sampling has to end early; from
            another thread.
    """
    gpus = gpus_of(info)
    if not gpus or info.state.ended:
        yield
        return
    end = threading.Event()
    thread = threading.Thread(
        target=sample_until,
        args=(end, run.gpu_samples, gpus, view),
        name="lab-telemetry",
        daemon=True,
    )
    with signals_blocked():
        thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(PATIENCE_S)


def sample_until(
    end: End,
    path: Path,
    gpus: Mapping[str, Sequence[str]],
    view: View,
    *,
    opened: Open | None = None,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Append a line for each card and task to a file, once a second.

    Args:
        end: When to stop; a sample that is under way then is not written.
        path: The file; it is made with the first sample.
        gpus: Task → device ids of its cards.
        view: Receives each moment's figures, and one notice where sampling ends early.
        opened: Opens the cards; by default through NVML.
        clock: Seconds since the epoch.
        monotonic: Seconds that never run back.
    """
    ids = tuple(dict.fromkeys(gpu for each in gpus.values() for gpu in each))
    try:
        with (opened or _nvml)(ids) as open_gpus:
            due, answered = monotonic(), False
            while not end.is_set():
                moment, samples = clock(), open_gpus.sample()
                if end.is_set():
                    return
                answered = answered or bool(samples)
                if not answered:  # the containers run on another box, for one
                    view.notice("no GPU telemetry: this box has none of the run's cards")
                    return
                lines = lines_of(moment, samples, gpus)
                append_lines(path, lines)
                view.gpus(use_now(lines))
                due = next_due(due, monotonic())
                end.wait(due - monotonic())
    except NvmlError as error:
        view.notice(f"no GPU telemetry from here on: {error.what}")
    except OSError as error:
        view.notice(f"no GPU telemetry from here on: {path.name}: {error.strerror or error}")


def next_due(due: float, now: float) -> float:
    """The next whole period behind `due` that is still to come; what was missed stays missed."""
    return due + PERIOD_S * max(1, math.floor((now - due) / PERIOD_S) + 1)


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append whole lines; half a line that a killed process has left is cut off before.

    Raises:
        OSError: They cannot be written; the file then ends with the last whole line before them.
    """
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        size = _cut_half_line(descriptor)
        append_whole(descriptor, data, size)
    finally:
        os.close(descriptor)


def _cut_half_line(descriptor: int) -> int:
    """Cut off what stands behind the last line end; the size that is left."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _LONGEST_LINE)
    last = os.pread(descriptor, size - start, start)
    if not last or last.endswith(b"\n"):
        return size
    size = start + last.rfind(b"\n") + 1
    os.ftruncate(descriptor, size)
    return size


def _nvml(device_ids: Sequence[str]) -> AbstractContextManager[Gpus]:
    from lab.gpu.sampler import Sampler  # noqa: PLC0415  (NVML only for runs that hold a card)

    return Sampler(device_ids)
