"""The cards that the driver knows, each whole or as its MIG slices."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.gpu import nvml
from lab.gpu.model import Condition, Fault, Gpu
from lab.gpu.nvml import DeviceQueries, Handle, Library
from lab.gpu.processes import processes
from lab.gpu.topology import close_cpus, numa_node

_MIG_ON = 1
"""NVML_DEVICE_MIG_ENABLE."""


@dataclass(slots=True)
class FoundGpus:
    """What was found.

    Attributes:
        gpus: Whole cards and slices, in order of the cards' indices.
        whole: The handles of those that are whole, by their indices.
        faults: What did not answer.
        notices: One line for each card that is left out.
    """

    gpus: list[Gpu] = field(default_factory=list)
    whole: dict[int, Handle] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def read_gpus(library: Library) -> FoundGpus:
    """Every card; one that does not answer is named and left out.

    Raises:
        NVMLError: The driver does not even tell how many there are.
    """
    gpus = FoundGpus()
    for index in range(library.nvmlDeviceGetCount()):
        try:
            _read_gpu(library, index, gpus)
        except library.NVMLError as error:
            fault = nvml.fault_of(error, f"GPU {index}")
            gpus.faults.append(fault)
            gpus.notices.append(f"GPU {index} does not answer ({fault.detail}) and is left out")
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
        gpus.notices.append(
            f"GPU {index}: this user may not use all of its MIG slices; the others are left out"
        )
    whole = nvml.text(library.nvmlDeviceGetUUID(gpu))
    gpus.gpus += [_read(library, index, gpu, part, slice_of=whole) for part in slices]
    if not slices:
        gpus.faults.append(
            Fault(
                Condition.NO_SLICES,
                f"GPU {index}",
                "MIG mode is on and there is no MIG device",
                f"cut it with `nvidia-smi mig -i {index} -cgi PROFILE -C`, or make it whole with "
                f"`nvidia-smi -i {index} -mig 0`",
            )
        )
        gpus.notices.append(f"GPU {index} is in MIG mode without slices and is left out")


def _read(
    library: Library, index: int, gpu: Handle, part: Handle = None, slice_of: str = ""
) -> Gpu:
    """A card, or a part of it; its place in the box is the card's in either case.

    Raises:
        NVMLError: It has no UUID, without which nothing can be pinned to it; or it is lost.
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
        name=ask("name", lambda: _name(library, gpu, part), ""),
        memory_bytes=0 if memory is None else int(memory.total),
        slice_of=slice_of,
        pci_bus_id=bus_id,
        minor=ask("minor", lambda: int(library.nvmlDeviceGetMinorNumber(gpu)), None),
        memory_free_bytes=None if memory is None else int(memory.free),
        utilisation=ask(
            "utilisation", lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu / 100, None
        ),
        numa_node=ask("numa_node", lambda: numa_node(library, gpu, bus_id), None),
        cpus=ask("cpus", lambda: close_cpus(library, gpu), ()),
        processes=processes(library, handle, questions),
        unknown=tuple(dict.fromkeys(questions.unknown)),
    )


def _name(library: Library, gpu: Handle, part: Handle) -> str:
    """The product's name, and that of the profile that a slice was cut by.

    Newer drivers name a slice `NVIDIA A100-SXM4-40GB MIG 1g.5gb`, older ones as its card; then the
    seventh parts of the card that it has stand for the profile.
    """
    name = nvml.text(library.nvmlDeviceGetName(gpu if part is None else part))
    if part is None or " MIG " in name:
        return name
    try:
        sevenths = library.nvmlDeviceGetAttributes_v2(part).gpuInstanceSliceCount
    except library.NVMLError as error:
        if nvml.condition_of(error) is Condition.GPU_LOST:
            raise
        return f"{name} MIG"
    return f"{name} MIG {sevenths}g"


def _is_cut(library: Library, gpu: Handle) -> bool:
    """Whether a card is in MIG mode, in which only its slices can be used."""
    # Without an answer the card, or the driver, is older than MIG.
    current, _ = nvml.answer_or(library, lambda: library.nvmlDeviceGetMigMode(gpu), (None, None))
    return bool(current == _MIG_ON)


def _slices(library: Library, gpu: Handle) -> tuple[list[Handle], Exception | None]:
    """A card's slices, and why others are left out: this user may not use them."""
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
