"""All that NVML tells about this box, in one session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lab.gpus.cards import read_cards
from lab.gpus.conditions import condition_of, fault_of
from lab.gpus.model import Condition, Fault, Gpu, Pair
from lab.gpus.nvml import Library, session, text
from lab.gpus.topology import read_pairs


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
        driver = _version(lambda: text(library.nvmlSystemGetDriverVersion()), library, faults)
        cuda = _version(lambda: _cuda(library), library, faults)
        cards = read_cards(library)
        pairs, unknown = read_pairs(library, cards.whole)
    gpus = (
        replace(gpu, unknown=(*gpu.unknown, *unknown[gpu.index])) if gpu.index in unknown else gpu
        for gpu in cards.gpus
    )
    return Reading(tuple(gpus), pairs, driver, cuda, (*faults, *cards.faults), tuple(cards.notices))


def _version(question: Callable[[], str], library: Library, faults: list[Fault]) -> str:
    """A version; "" and a fault where it is not told."""
    try:
        return question()
    except library.NVMLError as error:
        faults.append(fault_of(error, "driver"))
        return ""


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
