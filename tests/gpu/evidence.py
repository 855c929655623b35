"""What a training showed of its GPUs: TensorFlow's traces, NVML's process lists, NCCL's lines.

Everything here is a pure function of recorded input.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels that one process ran on one GPU while it was traced.

    Attributes:
        count: Their number, without copies of memory.
        nccl: The number of those that are NCCL's.
        busy_s: The sum of their durations, in seconds.
    """

    count: int
    nccl: int
    busy_s: float


def kernels(trace: bytes) -> dict[int, Kernels]:
    """The kernels in a trace of TensorFlow's profiler, by the process's number of the GPU.

    Args:
        trace: An XSpace message, the content of a file `*.xplane.pb`.

    Raises:
        ValueError: It is no such message.
    """
    space = _xplane().XSpace()
    try:
        space.ParseFromString(trace)
    except Exception as error:  # protobuf's DecodeError has another path in each release
        raise ValueError(f"not a trace of TensorFlow's profiler: {error}") from error
    for complaint in (*space.errors, *space.warnings):
        print(f"the profiler says: {complaint}")  # CUPTI is missing, or may not be used
    planes = {_GPU_PLANE.fullmatch(plane.name): plane for plane in space.planes}
    found = {int(match[1]): _of_plane(plane) for match, plane in planes.items() if match}
    return {number: each for number, each in found.items() if each.count}


def _of_plane(plane: Any) -> Kernels:
    events = [
        (plane.event_metadata[event.metadata_id].name, event.duration_ps)
        for line in plane.lines
        if line.name.startswith(_STREAM)  # other lines repeat the kernels, by operation
        for event in line.events
    ]
    own = [(name, length) for name, length in events if not name.startswith(_COPIES)]
    return Kernels(
        count=len(own),
        nccl=sum(1 for name, _ in own if _NCCL_KERNEL.search(name)),
        busy_s=sum(length for _, length in own) / 1e12,
    )


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


@dataclass(frozen=True, slots=True)
class TaskProcess:
    """The process of a task, as it sees itself (`trace/TASK/process.json`).

    Attributes:
        task: `worker-0`.
        pid: Its process id in its PID namespace.
        namespace: Its PID namespace: `pid:[4026531836]`.
    """

    task: str
    pid: int
    namespace: str


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that NVML listed on a GPU.

    Attributes:
        gpu: The UUID of the GPU or slice.
        pid: Its process id in its own PID namespace.
        namespace: Its PID namespace; "" if it may not be read.
        memory_bytes: The most GPU memory that it used, or None if the driver does not report it.
    """

    gpu: str
    pid: int
    namespace: str
    memory_bytes: int | None


def by_task(
    listed: Iterable[GpuProcess], processes: Sequence[TaskProcess]
) -> dict[str, list[GpuProcess]]:
    """NVML's entries of each task; entries of other programs are left out.

    Without a readable namespace the process id decides, if only one task has it.
    """
    found: dict[str, list[GpuProcess]] = {each.task: [] for each in processes}
    for entry in listed:
        same = [each for each in processes if each.pid == entry.pid]
        if entry.namespace:
            same = [each for each in same if each.namespace == entry.namespace]
        if len(same) == 1:
            found[same[0].task].append(entry)
    return found


@dataclass(frozen=True, slots=True)
class Task:
    """What one task of a training showed.

    Attributes:
        name: `worker-0`.
        gpus: The UUIDs of its planned GPUs, in the order of its own numbers.
        kernels: Its kernels by its number of the GPU; None without a trace.
        listed: NVML's entries of its process.
        nccl: The ranks that NCCL connected in it, each with the number of ranks.
    """

    name: str
    gpus: tuple[str, ...]
    kernels: Mapping[int, Kernels] | None
    listed: Sequence[GpuProcess] = ()
    nccl: Mapping[int, int] = field(default_factory=dict)


def short(gpu: str) -> str:
    """The beginning of a UUID, for a message."""
    return gpu[: len("GPU-01234567")]


def trace_faults(tasks: Iterable[Task]) -> Iterator[str]:
    """Why the traces do not show that each task computed on all of its GPUs and on no other."""
    for task in tasks:
        if task.kernels is None:
            yield f"{task.name} has no trace"
            continue
        for number, gpu in enumerate(task.gpus):
            if number not in task.kernels:
                yield f"{task.name} ran no kernel on its GPU {number} ({short(gpu)})"
        for number in sorted(task.kernels):
            if number >= len(task.gpus):
                yield f"{task.name} ran kernels on GPU {number}, and has {len(task.gpus)} GPUs"


def process_faults(tasks: Iterable[Task]) -> Iterator[str]:
    """Why NVML's process lists do not show each task on all of its GPUs and on no other."""
    for task in tasks:
        held = {entry.gpu for entry in task.listed}
        for gpu in task.gpus:
            if gpu not in held:
                yield f"NVML never listed {task.name} on its {short(gpu)}"
        for gpu in sorted(held - set(task.gpus)):
            yield f"NVML listed {task.name} on {short(gpu)}, which is not its own"


def nccl_faults(tasks: Sequence[Task], ranks: int) -> Iterator[str]:
    """Why NCCL was not used between all replicas.

    Args:
        tasks: All tasks.
        ranks: The number of replicas: one for each GPU.
    """
    workers = [task for task in tasks if task.gpus]
    connected = {rank for task in workers for rank, of in task.nccl.items() if of == ranks}
    if len(connected) != ranks:
        yield f"NCCL's log names {len(connected)} of {ranks} ranks"
    for task in workers:
        if not any(each.nccl for each in (task.kernels or {}).values()):
            yield f"{task.name} ran no kernel of NCCL"


def share_faults(
    tasks: Iterable[Task], share: float, memory_bytes: Mapping[str, int]
) -> Iterator[str]:
    """Why the tasks do not use the part of each GPU's memory that the config gives them.

    Args:
        tasks: All tasks.
        share: `gpu_memory_fraction` of the config.
        memory_bytes: The memory of each GPU.
    """
    for task in tasks:
        for entry in task.listed:
            limit = share * memory_bytes[entry.gpu] + CONTEXT_BYTES
            if entry.memory_bytes is not None and entry.memory_bytes > limit:
                used = f"{task.name} used {entry.memory_bytes / 2**30:.1f} GiB"
                yield f"{used} of {short(entry.gpu)}, more than {limit / 2**30:.1f} GiB"
