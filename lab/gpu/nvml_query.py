"""All that NVML tells about this box, in one session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lab.gpu.devices import read_cards
from lab.gpu.model import CUDA_VERSION, DRIVER_VERSION, Condition, Fault, Gpu, Pair
from lab.gpu.nvml import Library, session, text
from lab.gpu.nvml_errors import LIBRARY_NOT_FOUND, code_of, condition_of, fault_of
from lab.gpu.topology import read_pairs


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver answered; the fields are those of `Inventory`."""

    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[Pair, ...] = ()
    driver: str = ""
    cuda: str = ""
    faults: tuple[Fault, ...] = ()
    notices: tuple[str, ...] = ()


NOTHING = Reading()


def read_box() -> Reading:
    """Ask the driver for everything.

    Raises:
        NoDriverError: No driver can be opened.
        NvmlError: The driver does not even tell how many cards there are.
    """
    with session() as library:
        faults: list[Fault] = []
        driver = _version(DRIVER_VERSION, lambda: _driver(library), library, faults)
        cuda = _version(CUDA_VERSION, lambda: _cuda(library), library, faults)
        cards = read_cards(library)
        pairs, unknown = read_pairs(library, cards.whole)
    gpus = (
        replace(gpu, unknown=(*gpu.unknown, *unknown[gpu.index])) if gpu.index in unknown else gpu
        for gpu in cards.gpus
    )
    return Reading(tuple(gpus), pairs, driver, cuda, (*faults, *cards.faults), tuple(cards.notices))


def _version(where: str, question: Callable[[], str], library: Library, faults: list[Fault]) -> str:
    """A version; "" and a fault where it is not told."""
    try:
        return question()
    except library.NVMLError as error:
        if where == CUDA_VERSION and code_of(error) == LIBRARY_NOT_FOUND:
            # NVML looks for it; its own library and the driver are there, or it could not say so.
            what, mend = "libcuda.so.1 is not installed", "install `libcuda1`"
            faults.append(Fault(Condition.OTHER, where, what, mend))
        else:
            faults.append(fault_of(error, where))
        return ""


def _driver(library: Library) -> str:
    return text(library.nvmlSystemGetDriverVersion())


def _cuda(library: Library) -> str:
    """The newest CUDA version that the driver supports, `12.4`; NVML writes 12040."""
    try:
        version = library.nvmlSystemGetCudaDriverVersion_v2()
    except library.NVMLError as error:
        if condition_of(error) is not Condition.OLD_DRIVER:
            raise
        version = library.nvmlSystemGetCudaDriverVersion()
    major, rest = divmod(version, 1000)
    return f"{major}.{rest // 10}"
