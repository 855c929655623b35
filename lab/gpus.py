"""What the box has: its GPUs, CPUs and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lab.errors import InputError, LabError

if TYPE_CHECKING:
    from lab.cluster import Cluster

MODES: Final = ("auto", "uuid", "index", "none")
"""What `--gpus` takes: how GPUs are found and pinned."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one MIG slice of a card.

    Attributes:
        index: NVML's index, in PCI bus order; it may change when the box is started anew.
        device_id: What pins it: its UUID, or its index as text where no UUID is known.
        name: The card's product name, or "" where it is not known.
        memory_bytes: Its memory, or 0 where it is not known.
    """

    index: int
    device_id: str
    name: str = ""
    memory_bytes: int = 0

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice; the card that it is cut from cannot be used as a whole."""
        return self.device_id.startswith("MIG-")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The box that a plan is made for.

    Attributes:
        mode: How cards are pinned: `uuid`, `index` or `none`.
        gpus: The cards, in order of their index.
        cpus: Number of CPUs, or None for a box that is not this one.
        memory_bytes: Main memory, or None for a box that is not this one.
        notices: One line each, for the user.
    """

    mode: str
    gpus: tuple[Gpu, ...]
    cpus: int | None
    memory_bytes: int | None
    notices: tuple[str, ...] = ()


class NvmlError(LabError):
    """The NVIDIA driver does not answer."""


class NoDriverError(NvmlError):
    """There is no NVIDIA driver, or it is not loaded."""


def take_inventory(mode: str, cluster: Cluster) -> Inventory:
    """Find out what a plan can be made with.

    Args:
        mode: `auto` (UUIDs where the driver answers, else CPUs only, with a notice), `uuid`,
            `index` (a box that is not this one: as the description says it is) or `none`.
        cluster: The description: it says what a box that is not this one has.

    Raises:
        NvmlError: The driver does not answer, and `uuid` asks for it.
        InputError: There is no such mode.
    """
    if mode not in MODES:
        raise InputError(f"no way to pin GPUs: {mode!r}", f"choose one of {', '.join(MODES)}")
    if mode == "index":
        cards = tuple(Gpu(index, str(index)) for index in range(cluster.gpus_needed))
        return Inventory("index", cards, cluster.box.cpus, cluster.box.memory)
    if mode == "none" or (mode == "auto" and cluster.gpus_needed == 0):
        return _this_box("none", ())
    try:
        gpus, notices = _nvml_gpus()
    except NvmlError as error:
        if mode == "uuid":
            raise
        return _this_box("none", (), (f"{error.what}: CPUs only",))
    if not gpus and mode == "auto":
        return _this_box("none", (), (*notices, "this box has no usable GPU: CPUs only"))
    return _this_box("uuid", gpus, notices)


def survey() -> Inventory:
    """This box as it is, whatever a description may ask for.

    Where no driver answers, it has no GPU, and a notice says so.

    Raises:
        NvmlError: The driver answers at first and then fails.
    """
    try:
        gpus, notices = _nvml_gpus()
    except NoDriverError as error:
        return _this_box("none", (), (error.what,))
    return _this_box("uuid" if gpus else "none", gpus, notices)


def _this_box(mode: str, gpus: tuple[Gpu, ...], notices: tuple[str, ...] = ()) -> Inventory:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Inventory(mode, gpus, os.cpu_count(), memory, notices)


def _nvml_gpus() -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The cards that NVML knows, and a notice for each one that does not answer."""
    gpus: list[Gpu] = []
    notices: list[str] = []
    with _nvml() as nvml:
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpus += _card(nvml, index)
            except nvml.NVMLError as error:
                notices.append(f"GPU {index} does not answer ({error}) and is left out")
    return tuple(gpus), tuple(notices)


@contextmanager
def _nvml() -> Iterator[Any]:
    """The initialised library."""
    import pynvml  # noqa: PLC0415  (only commands that look for GPUs need it)

    mend = "check `nvidia-smi`, or choose `--gpus none` (CPUs) or `--gpus index` (another box)"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDriverError(f"no NVIDIA driver answers ({error})", mend) from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise NvmlError(f"the NVIDIA driver failed ({error})", mend) from None
    finally:
        pynvml.nvmlShutdown()


def _card(nvml: Any, index: int) -> list[Gpu]:  # noqa: ANN401  (a module without types)
    """A card as one GPU, or as its slices where it is cut into them."""
    card = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(card)
    slices = _slices(nvml, card)
    handles = [card] if slices is None else slices
    return [
        Gpu(
            index,
            nvml.nvmlDeviceGetUUID(handle),
            name,
            int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        )
        for handle in handles
    ]


def _slices(nvml: Any, card: Any) -> list[Any] | None:  # noqa: ANN401
    """The MIG slices of a card; None for a card that is whole."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(card)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None  # a card, or a driver, older than MIG
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    slices = []
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, position))
        except nvml.NVMLError_NotFound:
            continue  # no slice in this position
    return slices
