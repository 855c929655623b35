"""GPU metrics: the samples of a run's GPUs (`gpu.jsonl`), and the metrics of each task.

The client that follows a run samples the GPUs once a second, in a separate thread. While no client
follows the run, no sample is taken. An error of the driver or of the disk does not end the run.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from lab.backends.names import capabilities
from lab.gpu import NvmlError, nvml
from lab.gpu.model import SLICE, Condition
from lab.gpu.nvml import Handle, Library
from lab.log import LOG
from lab.store.directory import RunDir
from lab.store.gpu_samples import use_by_moment
from lab.store.run_info import RunInfo, gpus_of
from lab.threads import signals_blocked
from lab.volume.files import append_whole

if TYPE_CHECKING:
    from lab.run.view import View

T = TypeVar("T")

PERIOD_S: Final = 1.0
"""Seconds from one sample to the next."""

PATIENCE_S: Final = 2.0
"""Seconds that the end of a run waits for a driver that does not answer."""

_LONGEST_LINE: Final = 4096


class Gpus(Protocol):
    """Open GPUs."""

    def sample(self) -> Sequence[Sample]:
        """Return a sample of each GPU."""


Open = Callable[[Sequence[str]], AbstractContextManager[Gpus]]
"""Opens GPUs by their device ids."""


def lines_of(
    moment: float, samples: Iterable[Sample], gpus: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return the lines of one moment: one line for each GPU of each task.

    Args:
        moment: The time of the samples, in seconds since the epoch.
        samples: One for each GPU that answered; the line of any other GPU has only None values.
        gpus: Device ids of the GPUs of each task.
    """
    by_gpu = {sample.device_id: sample for sample in samples}
    held = [gpu for devices in gpus.values() for gpu in devices]
    lines = []
    for task, devices in gpus.items():
        for device_id in devices:
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


@contextmanager
def sampled(run: RunDir, info: RunInfo, view: View) -> Iterator[None]:
    """Sample the GPUs of a run until the block ends; do nothing if the run has no GPUs.

    Args:
        run: The run; the samples are appended to its `gpu.jsonl`.
        info: The content of its `run.json`, with the GPUs of each task.
        view: Receives the newest utilisation, from another thread.
    """
    gpus = gpus_of(info)
    if not gpus or info.state.ended or not capabilities(info.backend).host_gpus:
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
    end: threading.Event,
    path: Path,
    gpus: Mapping[str, Sequence[str]],
    view: View,
    *,
    opened: Open | None = None,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Append a line for each GPU and task to a file, once a second.

    Args:
        end: The event that stops sampling; a sample under way then is not written.
        path: The file; the first sample creates it.
        gpus: Device ids of the GPUs of each task.
        view: Receives the utilisation at each moment.
        opened: Opens the GPUs; None: by NVML.
        clock: A clock, in seconds since the epoch.
        monotonic: A monotonic clock, in seconds.
    """
    ids = tuple(dict.fromkeys(gpu for devices in gpus.values() for gpu in devices))
    try:
        with (opened or Sampler)(ids) as open_gpus:
            due, answered = monotonic(), False
            offset_s = clock() - due  # as in records, a later change of the clock does not count
            while not end.is_set():
                moment, samples = offset_s + monotonic(), open_gpus.sample()
                if end.is_set():
                    return
                answered = answered or bool(samples)
                if not answered:  # for example, the containers run on another host
                    LOG.warning("no GPU telemetry: this host has none of the run's GPUs")
                    return
                lines = lines_of(moment, samples, gpus)
                append_lines(path, lines)
                view.gpus(next(use_by_moment(lines))[1])
                due = next_due(due, monotonic())
                end.wait(due - monotonic())
    except NvmlError as error:
        LOG.warning(f"no GPU telemetry from here on: {error.what}")
    except OSError as error:
        LOG.warning(f"no GPU telemetry from here on: {path.name}: {error.strerror or error}")


def next_due(due: float, now: float) -> float:
    """Return the next time after `now`, in whole periods from `due`; missed times are skipped."""
    return due + PERIOD_S * max(1, math.floor((now - due) / PERIOD_S) + 1)


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append whole lines; first cut off half a line that a killed process wrote.

    Raises:
        OSError: The lines cannot be written; the file then ends with the last whole line before.
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
    """Cut off the bytes after the last line end; return the new size."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _LONGEST_LINE)
    last = os.pread(descriptor, size - start, start)
    if not last or last.endswith(b"\n"):
        return size
    size = start + last.rfind(b"\n") + 1
    os.ftruncate(descriptor, size)
    return size


@dataclass(frozen=True, slots=True)
class Sample:
    """One GPU or slice at one moment; None means unknown.

    Attributes:
        device_id: The UUID, or index as text, as requested.
        utilisation: Share of the driver's last sample period in which a kernel ran, 0 to 1; None
            for a MIG slice: no driver reports it.
        memory_used_bytes: Memory in use.
        power_w: Power of the whole GPU, in watts; None for a MIG slice.
        memory_bytes: All its memory.
    """

    device_id: str
    utilisation: float | None
    memory_used_bytes: int | None
    power_w: float | None
    memory_bytes: int | None = None


class Sampler:
    """Samples GPUs inside a `with` block; the driver is opened once."""

    def __init__(self, device_ids: Collection[str]) -> None:
        self._device_ids = tuple(device_ids)
        self._stack = ExitStack()
        self._handles: dict[str, Handle] = {}

    def __enter__(self) -> Self:
        """Open the driver and find the GPUs; an unknown one is left out.

        Raises:
            NoDriverError: No driver answers.
        """
        with ExitStack() as stack:
            self._library: Library = stack.enter_context(nvml.session())
            for device_id in self._device_ids:
                # A GPU that is lost, or of another host, cannot be sampled.
                with suppress(self._library.NVMLError):
                    self._handles[device_id] = self._handle(device_id)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handles.clear()
        self._stack.close()

    def sample(self) -> list[Sample]:
        """Sample the GPUs, without those that do not answer; raises nothing."""
        taken = (self._sample(device_id, handle) for device_id, handle in self._handles.items())
        return [sample for sample in taken if sample is not None]

    def _handle(self, device_id: str) -> Handle:
        if device_id.isdecimal():
            return self._library.nvmlDeviceGetHandleByIndex(int(device_id))
        return self._library.nvmlDeviceGetHandleByUUID(device_id)

    def _sample(self, device_id: str, handle: Handle) -> Sample | None:
        nvml = self._library
        utilisation = power = None
        try:
            memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
            if not device_id.startswith(SLICE):  # some drivers report the whole GPU for it
                utilisation = self._ask(
                    lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                )
                power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)  # from mW
        except nvml.NVMLError:
            return None
        if utilisation is None and memory is None and power is None:
            return None
        used, size = (None, None) if memory is None else (int(memory.used), int(memory.total))
        return Sample(device_id, utilisation, used, power, size)

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Return an answer, or None if the driver gives none.

        Raises:
            NVMLError: The GPU is lost: all other questions to it would fail, too.
        """
        return nvml.answer_or(self._library, question, None, set(Condition) - {Condition.GPU_LOST})
