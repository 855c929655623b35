"""What a training showed of its GPUs: TensorFlow's traces, NVML's process lists, NCCL's lines.

Everything here is a pure function of recorded input.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

# XLA and TensorFlow fix these names in `xplane_schema.h`.
_GPU_PLANE: Final = re.compile(r"/device:GPU:(\d+)")
_STREAM: Final = "Stream #"
_COPIES: Final = ("Memcpy", "Memset")
_NCCL_KERNEL: Final = re.compile(r"nccl(Dev)?Kernel")

# `host:31:52 [0] NCCL INFO ncclCommInitRank comm 0x… rank 0 nranks 2 cudaDev 0 … - Init COMPLETE`
_NCCL_RANK: Final = re.compile(
    r"NCCL INFO .*\brank (?P<rank>\d+) nranks (?P<ranks>\d+) .*Init COMPLETE"
)

CONTEXT_BYTES: Final = 2 * 2**30
"""GPU memory of a process beside its share: CUDA's context and the code of its libraries."""


class Kernels(NamedTuple):
    """The number of kernels that a process ran on a GPU, and of those that are NCCL's."""

    count: int
    nccl: int


def kernels(trace: bytes) -> dict[int, Kernels]:
    """The kernels in a trace of TensorFlow's profiler, by the process's number of the GPU.

    Args:
        trace: An XSpace message, the content of a file `*.xplane.pb`.
    """
    space = _xplane().XSpace()
    space.ParseFromString(trace)
    for complaint in (*space.errors, *space.warnings):
        print(f"the profiler says: {complaint}")  # CUPTI is missing, or may not be used
    planes = {_GPU_PLANE.fullmatch(plane.name): plane for plane in space.planes}
    counts = {int(match[1]): _of_plane(plane) for match, plane in planes.items() if match}
    return {number: own for number, own in counts.items() if own.count}


def _of_plane(plane: Any) -> Kernels:
    names = [
        plane.event_metadata[event.metadata_id].name
        for line in plane.lines
        if line.name.startswith(_STREAM)  # other lines repeat the kernels, by operation
        for event in line.events
    ]
    own = [name for name in names if not name.startswith(_COPIES)]
    return Kernels(len(own), sum(1 for name in own if _NCCL_KERNEL.search(name)))


def _xplane() -> Any:
    """The module of the message. It is loaded by its path: importing TensorFlow takes seconds."""
    spec = importlib.util.find_spec("tensorflow")
    assert spec is not None and spec.submodule_search_locations, "TensorFlow is not installed"
    path = Path(spec.submodule_search_locations[0]) / "tsl/profiler/protobuf/xplane_pb2.py"
    own = importlib.util.spec_from_file_location("xplane_pb2", path)
    assert own is not None and own.loader is not None
    module = importlib.util.module_from_spec(own)
    own.loader.exec_module(module)
    return module


def nccl_ranks(log: str) -> dict[int, int]:
    """The ranks that NCCL connected, each with the number of ranks, from a task's log.

    NCCL writes these lines with `NCCL_DEBUG=INFO`.
    """
    return {int(each["rank"]): int(each["ranks"]) for each in _NCCL_RANK.finditer(log)}


class GpuProcess(NamedTuple):
    """A process that NVML listed on a GPU.

    Attributes:
        gpu: The UUID of the GPU or slice.
        pid: Its process id in its own PID namespace.
        namespace: Its PID namespace, `pid:[4026531836]`; "" if it may not be read.
        memory_bytes: The most GPU memory that it used, or None if the driver does not report it.
    """

    gpu: str
    pid: int
    namespace: str
    memory_bytes: int | None


def by_task(
    listed: Iterable[GpuProcess], processes: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[GpuProcess]]:
    """NVML's entries of each task; entries of other programs are left out.

    Without a readable namespace the process id decides, if only one task has it.

    Args:
        listed: NVML's entries.
        processes: Task to `pid` and `namespace`, as its process sees itself.
    """
    entries: dict[str, list[GpuProcess]] = {task: [] for task in processes}
    for entry in listed:
        same = [
            task
            for task, process in processes.items()
            if process["pid"] == entry.pid and entry.namespace in {"", process["namespace"]}
        ]
        if len(same) == 1:
            entries[same[0]].append(entry)
    return entries


class Task(NamedTuple):
    """What one task of a training showed.

    Attributes:
        name: `worker-0`.
        gpus: The UUIDs of its planned GPUs, in the order of its own numbers.
        kernels: Its kernels by its number of the GPU; None without a trace.
        listed: NVML's entries of its process.
        nccl: The ranks that NCCL connected in it, each with the number of ranks.
    """

    name: str
    gpus: Sequence[str]
    kernels: Mapping[int, Kernels] | None
    listed: Sequence[GpuProcess]
    nccl: Mapping[int, int]


def trace_faults(task: Task) -> Iterator[str]:
    if task.kernels is None:
        yield f"{task.name} has no trace"
        return
    for number, gpu in enumerate(task.gpus):
        if number not in task.kernels:
            yield f"{task.name} ran no kernel on its GPU {number} ({gpu})"
    for number in task.kernels:
        if number >= len(task.gpus):
            yield f"{task.name} ran kernels on GPU {number}, and has {len(task.gpus)} GPUs"


def process_faults(task: Task) -> Iterator[str]:
    """Why NVML's process lists do not show a task on all of its GPUs and on no other."""
    held = {entry.gpu for entry in task.listed}
    yield from (f"NVML never listed {task.name} on its {gpu}" for gpu in {*task.gpus} - held)
    for gpu in held - {*task.gpus}:
        yield f"NVML listed {task.name} on {gpu}, which is not its own"


def nccl_faults(tasks: Sequence[Task], ranks: int) -> Iterator[str]:
    """Why NCCL was not used between all replicas: one for each GPU."""
    workers = [task for task in tasks if task.gpus]
    connected = {rank for task in workers for rank, of in task.nccl.items() if of == ranks}
    if len(connected) != ranks:
        yield f"NCCL's log names {len(connected)} of {ranks} ranks"
    for task in workers:
        if not any(own.nccl for own in (task.kernels or {}).values()):
            yield f"{task.name} ran no kernel of NCCL"


def share_faults(task: Task, share: float, memory_bytes: Mapping[str, int]) -> Iterator[str]:
    """Why a task does not keep to the part of each GPU's memory that the config gives it."""
    for entry in task.listed:
        limit = share * memory_bytes[entry.gpu] + CONTEXT_BYTES
        if entry.memory_bytes is not None and entry.memory_bytes > limit:
            used = f"{task.name} used {entry.memory_bytes / 2**30:.1f} GiB"
            yield f"{used} of {entry.gpu}, more than {limit / 2**30:.1f} GiB"
