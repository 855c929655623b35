"""The inventory of a host as plain values; this module calls no driver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lab.base.errors import Finding, LabError

MODES: Final = ("auto", "uuid", "index", "none")
"""The values of `--gpus`: how GPUs are found and pinned."""

SLICE: Final = "MIG-"
"""The prefix of the UUID of a MIG slice."""


class Condition(StrEnum):
    """Why the driver, a GPU or one of its fields does not answer."""

    NO_DRIVER = "no driver"
    MISMATCH = "driver and library do not match"
    NO_PERMISSION = "no permission"
    GPU_LOST = "GPU lost"
    NO_SLICES = "MIG mode without slices"
    NOT_SUPPORTED = "not supported by this GPU"
    OLD_DRIVER = "not known to this driver"
    OTHER = "other"


DRIVER: Final = "driver"
"""`where` of a fault of the whole driver."""

DRIVER_VERSION: Final = "driver version"
CUDA_VERSION: Final = "CUDA version"
"""`where` of a fault that hides only this version."""


class Fault(Finding[Condition]):
    """A question that NVML did not answer.

    `where` is `driver`, `driver version`, `CUDA version` or `GPU 3`; `what` is NVML's message, or
    what it means.
    """


class NvmlError(LabError):
    """The NVIDIA driver does not answer.

    Attributes:
        fault: What is wrong.
    """

    def __init__(self, what: str, fix: str, fault: Fault) -> None:
        super().__init__(what, fix)
        self.fault = fault


class NoDriverError(NvmlError):
    """The driver cannot be opened: it is missing, not loaded, or not allowed for this user."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has a context on a GPU now.

    Attributes:
        pid: Its process id on the host.
        name: Its program, or "" if unknown.
        memory_bytes: GPU memory that it uses, or None if the driver does not report it.
        computes: Whether it has a compute context; otherwise it has only a graphics context.
    """

    pid: int
    name: str
    memory_bytes: int | None
    computes: bool = True


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG slice of a GPU: a task can be pinned to it.

    A value of None, "", () or 0 means unknown.

    Attributes:
        index: NVML's index, in PCI bus order; it may change after a reboot. A slice has the index
            of its GPU.
        device_id: The id that pins it: its UUID, or its index as text if no UUID is known.
        name: The product name; with the profile for a slice.
        memory_bytes: Its memory.
        slice_of: The UUID of the GPU of a slice; "" for a whole GPU.
        pci_bus_id: `00000000:1B:00.0`.
        minor: The N of its device node `/dev/nvidiaN`; a slice has the node of its GPU.
        memory_free_bytes: Memory that is free now.
        utilisation: Share of the last sample period in which a kernel ran, 0 to 1.
        numa_node: Its NUMA node.
        cpus: The CPUs that are close to it, ascending.
        processes: The processes that use it now.
        compute_capability: The generation of its instructions, `9.0`; a slice has that of its GPU.
        unknown: Fields that could not be read, and why.
    """

    index: int
    device_id: str
    name: str = ""
    memory_bytes: int = 0
    slice_of: str = ""
    pci_bus_id: str = ""
    minor: int | None = None
    memory_free_bytes: int | None = None
    utilisation: float | None = None
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    processes: tuple[Process, ...] = ()
    compute_capability: str = ""
    unknown: tuple[tuple[str, Condition], ...] = ()

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice; its GPU cannot be used as a whole."""
        return self.device_id.startswith(SLICE)


@dataclass(frozen=True, slots=True)
class Pair:
    """How two whole GPUs are connected.

    Attributes:
        first: Index of one GPU.
        second: Index of the other GPU, the higher one.
        nvlink: Whether NVLink connects them, directly or through a switch.
        path: Their PCIe connection, in the terms of `nvidia-smi topo`, the closest first:
            `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; "" if unknown.
    """

    first: int
    second: int
    nvlink: bool = False
    path: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The host that a plan is made for.

    Attributes:
        mode: How GPUs are pinned: `uuid`, `index` or `none`.
        gpus: The GPUs, in order of their index; a GPU in MIG mode is listed as its slices.
        cpus: Number of CPUs, or None for another host.
        memory_bytes: Main memory, or None for another host.
        notices: One line each, for the user.
        cpu_ids: The usable CPUs, ascending; empty: 0 to `cpus` - 1.
        pairs: How whole GPUs are connected; empty if unknown.
        driver: The driver's version, or "".
        cuda: The newest CUDA version that the driver supports, or "".
        faults: The questions that NVML did not answer.
        left_out: Why GPUs of the host are not among `gpus`, one line each.
    """

    mode: str
    gpus: tuple[Gpu, ...]
    cpus: int | None
    memory_bytes: int | None
    notices: tuple[str, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    pairs: tuple[Pair, ...] = ()
    driver: str = ""
    cuda: str = ""
    faults: tuple[Fault, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def other_notices(self) -> tuple[str, ...]:
        """The notices that do not say why a GPU is left out."""
        return tuple(notice for notice in self.notices if notice not in self.left_out)

    @property
    def slices(self) -> tuple[Gpu, ...]:
        """The MIG slices."""
        return tuple(gpu for gpu in self.gpus if gpu.is_slice)

    @property
    def whole_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that can be used as a whole: not those in MIG mode, even if NVML lists them."""
        cut = {gpu.slice_of for gpu in self.slices}
        return tuple(gpu for gpu in self.gpus if not gpu.is_slice and gpu.device_id not in cut)
