"""Which box a plan is made for: this one as the driver describes it, or one that is described."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lab.errors import InputError
from lab.gpu.model import DRIVER, MODES, Condition, Fault, Gpu, Inventory
from lab.gpu.nvml import WAYS_OUT, NoDriverError, NvmlError
from lab.gpu.nvml_query import NOTHING, Reading, read_box
from lab.threads import later, signals_blocked

if TYPE_CHECKING:
    from lab.config import Cluster

PATIENCE_S: Final = 20.0
"""Seconds in which the driver must answer; a cold one that keeps no state takes several."""


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
        return _this_box("none")
    try:
        seen = _read_in_time()
    except NvmlError as error:
        if mode == "uuid":
            raise
        notice = f"{error.what}: CPUs only"
        return _this_box("none", notices=(notice,), faults=(error.fault,))
    if not seen.gpus and mode == "auto":
        return _this_box("none", seen, ("this box has no usable GPU: CPUs only",))
    return _this_box("uuid", seen)


def survey() -> Inventory:
    """This box as it is, whatever a description may ask for.

    Where no driver answers, it has no GPU, and a notice says so.

    Raises:
        NvmlError: The driver answers at first and then fails, or does not answer in time.
    """
    try:
        seen = _read_in_time()
    except NoDriverError as error:
        return _this_box("none", notices=(error.what,), faults=(error.fault,))
    return _this_box("uuid" if seen.gpus else "none", seen)


def _read_in_time() -> Reading:
    """Ask the driver for everything, where Ctrl-C is heard also while it hangs.

    Python takes a signal only between its own instructions, so that the main thread, inside a
    call that hangs in the kernel, would never take one.

    Raises:
        NoDriverError: No driver can be opened.
        NvmlError: It fails, or does not answer in time; the thread is left to itself then.
    """
    with signals_blocked():
        asked = later(read_box)
    try:
        return asked.result(PATIENCE_S)
    except TimeoutError:
        late = f"answer within {PATIENCE_S:.0f} s"
        mend = "see `dmesg | grep -i nvrm`, then reboot"
        fault = Fault(Condition.OTHER, DRIVER, f"no {late}", mend)
        raise NvmlError(
            f"the NVIDIA driver does not {late}", f"{mend}, {WAYS_OUT}", fault
        ) from None


def _this_box(
    mode: str,
    seen: Reading = NOTHING,
    notices: tuple[str, ...] = (),
    faults: tuple[Fault, ...] = (),
) -> Inventory:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cpu_ids = _cpu_ids()
    return Inventory(
        mode,
        seen.gpus if mode == "uuid" else (),
        len(cpu_ids) or os.cpu_count(),
        memory,
        (*seen.notices, *notices),
        cpu_ids=cpu_ids,
        pairs=seen.pairs if mode == "uuid" else (),
        driver=seen.driver,
        cuda=seen.cuda,
        faults=(*seen.faults, *faults),
    )


def _cpu_ids() -> tuple[int, ...]:
    """The CPUs that this process may run on; none on a system that does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))
