"""What a box has, as plain values: nothing here asks a driver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MODES: Final = ("auto", "uuid", "index", "none")
"""What `--gpus` takes: how GPUs are found and pinned."""

SLICE: Final = "MIG-"
"""What the UUID of a MIG slice begins with."""


class Condition(StrEnum):
    """Why the driver, a card or one of its fields does not answer."""

    NO_DRIVER = "no driver"
    MISMATCH = "driver and library do not match"
    NO_PERMISSION = "no permission"
    GPU_LOST = "card lost"
    NO_SLICES = "MIG mode without slices"
    NOT_SUPPORTED = "not supported by this card"
    OLD_DRIVER = "not known to this driver"
    OTHER = "other"


DRIVER: Final = "driver"
"""Where a fault is that keeps the whole driver from answering."""

DRIVER_VERSION: Final = "driver version"
CUDA_VERSION: Final = "CUDA version"
"""Where a fault is that costs no more than these words."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that NVML did not answer.

    Attributes:
        condition: Its name.
        where: `driver`, `driver version`, `CUDA version`, or `GPU 3`.
        detail: NVML's own words, or what they mean.
        mend: How to fix it, as an imperative phrase.
    """

    condition: Condition
    where: str
    detail: str
    mend: str

    def __str__(self) -> str:
        return f"{self.where}: {self.condition} ({self.detail}); {self.mend}"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has a context on a card now.

    Attributes:
        pid: Its process id on the host.
        name: Its program, or "" where it cannot be known.
        memory_bytes: Memory of the card that it takes, or None where the driver does not tell.
        computes: Whether it has a context for computing; otherwise it only draws.
    """

    pid: int
    name: str
    memory_bytes: int | None
    computes: bool = True


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one MIG slice of a card: what a task can be pinned to.

    What is None, empty or 0 is not known.

    Attributes:
        index: NVML's index, in PCI bus order; it may change when the box is started anew. A slice
            has its card's.
        device_id: What pins it: its UUID, or its index as text where no UUID is known.
        name: The card's product name; a slice's with its profile.
        memory_bytes: Its memory.
        slice_of: The UUID of the card that a slice is cut from; "" for a whole card.
        pci_bus_id: `00000000:1B:00.0`.
        minor: The N of its device node `/dev/nvidiaN`; a slice has its card's.
        memory_free_bytes: Memory that nobody takes now.
        utilisation: Share of the last sample period in which a kernel ran, 0 to 1.
        numa_node: The NUMA node that it hangs on.
        cpus: The CPUs that are close to it, ascending.
        processes: Those that use it now.
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
    unknown: tuple[tuple[str, Condition], ...] = ()

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice; the card that it is cut from cannot be used as a whole."""
        return self.device_id.startswith(SLICE)


@dataclass(frozen=True, slots=True)
class Pair:
    """How two whole cards are connected.

    Attributes:
        first: Index of one card.
        second: Index of the other, which is the higher one.
        nvlinks: Active NVLink connections between them, also through a switch.
        path: The way between them over PCIe, in the words of `nvidia-smi topo`, the closest first:
            `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; "" where it is not known.
        p2p: Whether one can read the other's memory; None where it is not known.
    """

    first: int
    second: int
    nvlinks: int = 0
    path: str = ""
    p2p: bool | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """The box that a plan is made for.

    Attributes:
        mode: How cards are pinned: `uuid`, `index` or `none`.
        gpus: The cards, in order of their index; a card that is cut stands as its slices.
        cpus: Number of CPUs, or None for a box that is not this one.
        memory_bytes: Main memory, or None for a box that is not this one.
        notices: One line each, for the user.
        cpu_ids: The CPUs that may be used, ascending; empty: 0 to `cpus` - 1.
        pairs: How whole cards are connected; empty where it is not known.
        driver: The driver's version, or "".
        cuda: The newest CUDA version that the driver supports, or "".
        faults: What NVML did not answer.
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
