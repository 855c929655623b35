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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from lab.backends.names import capabilities
from lab.base.log import LOG
from lab.base.threads import signals_blocked
from lab.cluster.gpu import NvmlError, nvml
from lab.cluster.gpu.nvml import Handle, Library
from lab.cluster.gpu.values import SLICE, Condition
from lab.protocol.volume.files import append_whole
from lab.runner.store.directory import RunDir
from lab.runner.store.gpu_samples import use_by_moment
from lab.runner.store.run_info import RunInfo, gpus_of

if TYPE_CHECKING:
    from lab.runner.view import View

T = TypeVar("T")

PERIOD_S: Final = 1.0
"""Seconds from one sample to the next."""

PATIENCE_S: Final = 2.0
"""Seconds that the end of a run waits for a driver that does not answer."""

_LONGEST_LINE: Final = 4096


def lines_of(
    moment: float, samples: Iterable[Sample], gpus: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return the lines of one moment: one line for each GPU of each task.

    Args:
        moment: The time of the samples, in seconds since the epoch.
        samples: One for each GPU that answered; the line of any other GPU has only None values.
        gpus: Device ids of the GPUs of each task.
    """
    by_gpu = {sample.gpu: sample for sample in samples}
    held = Counter(gpu for devices in gpus.values() for gpu in devices)
    return [
        {
            "time_unix": round(moment, 3),
            "task": task,
            **by_gpu.get(gpu, Sample(gpu))._asdict(),
            **({"shared": True} if held[gpu] > 1 else {}),
        }
        for task, devices in gpus.items()
        for gpu in devices
    ]


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
) -> None:
    """Append a line for each GPU and task to a file, once a second.

    Args:
        end: The event that stops sampling; a sample under way then is not written.
        path: The file; the first sample creates it.
        gpus: Device ids of the GPUs of each task.
        view: Receives the utilisation at each moment.
    """
    ids = tuple(dict.fromkeys(gpu for devices in gpus.values() for gpu in devices))
    try:
        with open_gpus(ids) as sample:
            due, answered = time.monotonic(), False
            offset_s = time.time() - due  # as in records, later changes of the clock do not count
            while not end.is_set():
                moment, samples = offset_s + time.monotonic(), sample()
                if end.is_set():
                    return
                answered = answered or bool(samples)
                if not answered:  # for example, the containers run on another host
                    LOG.warning("no GPU telemetry: this host has none of the run's GPUs")
                    return
                lines = lines_of(moment, samples, gpus)
                append_lines(path, lines)
                view.gpus(next(use_by_moment(lines))[1])
                # The next whole period: missed samples are skipped.
                missed = math.floor((time.monotonic() - due) / PERIOD_S)
                due += PERIOD_S * max(1, missed + 1)
                end.wait(due - time.monotonic())
    except NvmlError as error:
        LOG.warning(f"GPU telemetry stopped: {error.what}")
    except OSError as error:
        LOG.warning(f"GPU telemetry stopped: {path.name}: {error.strerror or error}")


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append whole lines; first cut off half a line that a killed process wrote.

    Raises:
        OSError: The lines cannot be written; the file then ends with the last whole line before.
    """
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        append_whole(descriptor, data, _cut_half_line(descriptor))
    finally:
        os.close(descriptor)


def _cut_half_line(descriptor: int) -> int:
    """Cut off the bytes after the last line end; return the new size."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _LONGEST_LINE)
    last = os.pread(descriptor, size - start, start)
    whole = start + last.rfind(b"\n") + 1
    if last and whole != size:
        os.ftruncate(descriptor, whole)
    return whole


class Sample(NamedTuple):
    """One GPU or slice at one moment; None means unknown.

    Attributes:
        gpu: The UUID.
        utilisation: Share of the driver's last sample period in which a kernel ran, 0 to 1; None
            for a MIG slice: no driver reports it.
        memory_used_bytes: Memory in use.
        power_w: Power of the whole GPU, in watts; None for a MIG slice.
    """

    gpu: str
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None


@contextmanager
def open_gpus(device_ids: Iterable[str]) -> Iterator[Callable[[], Sequence[Sample]]]:
    """Open the driver for a `with` block; yield a function that samples the GPUs that answer.

    A GPU that is lost, or of another host, is left out.

    Raises:
        NoDriverError: No driver answers.
    """
    with nvml.session() as library:
        handles: dict[str, Handle] = {}
        for device_id in device_ids:
            with suppress(library.NVMLError):
                handles[device_id] = library.nvmlDeviceGetHandleByUUID(device_id)
        yield lambda: [
            sample
            for device_id, handle in handles.items()
            if (sample := _sample(library, device_id, handle)) is not None
        ]


def _sample(library: Library, device_id: str, handle: Handle) -> Sample | None:
    def ask(question: Callable[[], T]) -> T | None:
        # If the GPU is lost, all other questions to it would fail, too.
        unknown = set(Condition) - {Condition.GPU_LOST}
        return nvml.answer_or(library, question, None, unknown)

    utilisation = power = None
    try:
        used = ask(lambda: int(library.nvmlDeviceGetMemoryInfo(handle).used))
        if not device_id.startswith(SLICE):  # some drivers report the whole GPU for it
            utilisation = ask(lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
            power = ask(lambda: library.nvmlDeviceGetPowerUsage(handle) / 1000)  # from mW
    except library.NVMLError:
        return None
    sample = Sample(device_id, utilisation, used, power)
    return None if sample == Sample(device_id) else sample
