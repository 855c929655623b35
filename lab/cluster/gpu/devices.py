"""Reads the GPUs that the driver lists, each whole or as its MIG slices, and their processes.

Also reads the topology: NUMA nodes, close CPUs, and the connections between two GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from lab.cluster.gpu import nvml
from lab.cluster.gpu.nvml import DeviceQueries, Handle, Library, answer_or
from lab.cluster.gpu.values import Condition, Fault, Gpu, Pair, Process

PROC: Final = Path("/proc")


def processes(library: Library, handle: Handle, questions: DeviceQueries) -> tuple[Process, ...]:
    """Return the processes that have a context on a GPU or a slice, in order of their ids."""
    # The newest functions: only they fit the size of pynvml's structure.
    computing: list[Any] = questions.ask(
        "processes", lambda: library.nvmlDeviceGetComputeRunningProcesses_v3(handle), []
    )
    drawing: list[Any] = questions.ask(
        "processes",
        # A GPU without graphics has no such processes.
        lambda: nvml.answer_or(
            library,
            lambda: library.nvmlDeviceGetGraphicsRunningProcesses_v3(handle),
            [],
            {Condition.NOT_SUPPORTED},
        ),
        [],
    )
    compute = {process.pid for process in computing}
    # A process with both contexts is listed twice, with the same memory.
    memory = {process.pid: process.usedGpuMemory for process in drawing + computing}
    return tuple(
        Process(pid, _program(library, pid), memory[pid], pid in compute) for pid in sorted(memory)
    )


def _program(library: Library, pid: int) -> str:
    """Return a process's program; "" if it has ended or is hidden from this user."""
    try:
        return nvml.text(library.nvmlSystemGetProcessName(pid))
    except (library.NVMLError, UnicodeDecodeError):  # pynvml decodes it as UTF-8
        pass
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").removesuffix("\n")
    except OSError:
        return ""


_MIG_ON = 1
"""NVML_DEVICE_MIG_ENABLE."""


@dataclass(slots=True)
class FoundGpus:
    """The GPUs that were read.

    Attributes:
        gpus: Whole GPUs and slices, in order of the index.
        whole: The handles of the whole GPUs, by index.
        faults: The GPUs that did not answer, and why.
        notices: One line for each GPU that is left out.
    """

    gpus: list[Gpu] = field(default_factory=list)
    whole: dict[int, Handle] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def read_gpus(library: Library) -> FoundGpus:
    """Read all GPUs; a GPU that does not answer is left out, with a notice.

    Raises:
        NVMLError: The driver does not report the number of GPUs.
    """
    gpus = FoundGpus()
    for index in range(library.nvmlDeviceGetCount()):
        try:
            _read_gpu(library, index, gpus)
        except library.NVMLError as error:
            fault = nvml.fault_of(error, f"GPU {index}")
            gpus.faults.append(fault)
            gpus.notices.append(f"GPU {index} does not answer ({fault.what}) and is skipped")
    return gpus


def _read_gpu(library: Library, index: int, gpus: FoundGpus) -> None:
    gpu = library.nvmlDeviceGetHandleByIndex(index)
    if not _is_cut(library, gpu):
        gpus.gpus.append(_read(library, index, gpu))
        gpus.whole[index] = gpu
        return
    slices, refusal = _slices(library, gpu)
    if refusal is not None:
        if not slices:
            raise refusal
        gpus.notices.append(f"GPU {index}: some MIG slices are skipped: this user may not use them")
    whole = nvml.text(library.nvmlDeviceGetUUID(gpu))
    gpus.gpus += [_read(library, index, gpu, part, slice_of=whole) for part in slices]
    if not slices:
        gpus.faults.append(
            Fault(
                Condition.NO_SLICES,
                "MIG mode is on, but there is no MIG device",
                f"create slices with `nvidia-smi mig -i {index} -cgi PROFILE -C`, or turn MIG off "
                f"with `nvidia-smi -i {index} -mig 0`",
                f"GPU {index}",
            )
        )
        gpus.notices.append(f"GPU {index} is in MIG mode without slices and is skipped")


def _read(
    library: Library, index: int, gpu: Handle, part: Handle = None, slice_of: str = ""
) -> Gpu:
    """Read a GPU, or a slice of it; a slice has the PCI address of its GPU.

    Raises:
        NVMLError: It has no UUID, so that no task can be pinned to it; or it is lost.
    """
    handle = gpu if part is None else part
    questions = DeviceQueries(library)
    ask = questions.ask
    memory = ask(
        "memory_bytes memory_free_bytes", lambda: library.nvmlDeviceGetMemoryInfo(handle), None
    )
    bus_id = ask("pci_bus_id", lambda: nvml.text(library.nvmlDeviceGetPciInfo(gpu).busId), "")
    return Gpu(
        index=index,
        device_id=nvml.text(library.nvmlDeviceGetUUID(handle)),
        name=ask("name", lambda: nvml.text(library.nvmlDeviceGetName(handle)), ""),
        memory_bytes=0 if memory is None else int(memory.total),
        slice_of=slice_of,
        pci_bus_id=bus_id,
        minor=ask("minor", lambda: int(library.nvmlDeviceGetMinorNumber(gpu)), None),
        memory_free_bytes=None if memory is None else int(memory.free),
        utilisation=ask(
            "utilisation", lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu / 100, None
        ),
        numa_node=ask("numa_node", lambda: numa_node(library, gpu), None),
        cpus=ask(
            "cpus", lambda: tuple(bits_set(library.nvmlDeviceGetCpuAffinity(gpu, _CPU_MASKS))), ()
        ),
        processes=processes(library, handle, questions),
        compute_capability=ask("compute_capability", lambda: _capability(library, gpu), ""),
        unknown=tuple(dict.fromkeys(questions.unknown)),
    )


def _capability(library: Library, gpu: Handle) -> str:
    major, minor = library.nvmlDeviceGetCudaComputeCapability(gpu)
    return f"{major}.{minor}"


def _is_cut(library: Library, gpu: Handle) -> bool:
    """Return whether a GPU is in MIG mode, in which only its slices can be used."""
    # Without an answer, the GPU or the driver is older than MIG.
    current, _ = nvml.answer_or(library, lambda: library.nvmlDeviceGetMigMode(gpu), (None, None))
    return bool(current == _MIG_ON)


def _slices(library: Library, gpu: Handle) -> tuple[list[Handle], Exception | None]:
    """Return a GPU's slices, and the error if this user may not use some of them."""
    slices: list[Handle] = []
    refusal = None
    for position in range(library.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            slices.append(library.nvmlDeviceGetMigDeviceHandleByIndex(gpu, position))
        except library.NVMLError as error:
            if nvml.condition_of(error) is Condition.NO_PERMISSION:
                refusal = error
            elif nvml.code_of(error) != nvml.NOT_FOUND:
                raise
    return slices, refusal


_CPU_MASKS: Final = 64
"""Room for 4,096 CPUs, 64 in each integer."""

_NODE_MASKS: Final = 16
"""Room for 1,024 NUMA nodes, the maximum of Linux."""

_THIS_NODE: Final = 0
"""NVML_AFFINITY_SCOPE_NODE: the nearest node, not the whole socket."""

PATHS: Final[Mapping[int, str]] = {
    0: "PIX",  # on one board
    10: "PIX",  # through one PCIe switch
    20: "PXB",  # through several switches, below one host bridge
    30: "PHB",  # through a host bridge
    40: "NODE",  # between the host bridges of a NUMA node
    50: "SYS",  # between NUMA nodes
}
"""`nvmlGpuTopologyLevel_t` to the term of `nvidia-smi topo`."""

_NVLINK: Final = 2
"""NVML_P2P_CAPS_INDEX_NVLINK, of `nvmlGpuP2PCapsIndex_t`."""

_OK: Final = 0


def numa_node(library: Library, gpu: Handle) -> int | None:
    """Return the NUMA node of a GPU, or None if it has no single one.

    Not by `nvmlDeviceGetNumaNodeId`: on Grace Hopper, that is the node of the GPU's own memory,
    without CPUs; elsewhere it is not supported.
    """
    nodes = tuple(bits_set(library.nvmlDeviceGetMemoryAffinity(gpu, _NODE_MASKS, _THIS_NODE)))
    return nodes[0] if len(nodes) == 1 else None


def bits_set(masks: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of the bits that are set: 64 bits in each mask, the lowest first."""
    for index, mask in enumerate(masks):
        for bit in range(int(mask).bit_length()):
            if mask >> bit & 1:
                yield 64 * index + bit


def read_pairs(library: Library, gpus: Mapping[int, Handle]) -> tuple[Pair, ...]:
    """Read how every two GPUs are connected; without an answer, the connection is unknown.

    Args:
        library: The open library.
        gpus: Whole GPUs by index.
    """
    # One of the two may be lost.
    ask = partial(answer_or, library, conditions=frozenset(Condition))
    pairs = []
    for first, second in combinations(sorted(gpus), 2):
        handles = gpus[first], gpus[second]
        nvlink = ask(partial(_has_nvlink, library, handles), default=False)
        path = ask(partial(_path, library, handles), default="")
        pairs.append(Pair(first, second, nvlink, path))
    return tuple(pairs)


def _has_nvlink(library: Library, handles: tuple[Handle, Handle]) -> bool:
    """Return whether two GPUs reach each other by NVLink, directly or through a switch."""
    return bool(library.nvmlDeviceGetP2PStatus(*handles, _NVLINK) == _OK)


def _path(library: Library, handles: tuple[Handle, Handle]) -> str:
    return PATHS.get(library.nvmlDeviceGetTopologyCommonAncestor(*handles), "")
