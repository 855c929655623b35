"""Which box a plan is made for: this one as the driver describes it, or one that is described."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lab.errors import InputError
from lab.gpus.model import MODES, Fault, Gpu, Inventory
from lab.gpus.nvml import NoDriverError, NvmlError
from lab.gpus.reading import NOTHING, Reading, read_box

if TYPE_CHECKING:
    from lab.cluster import Cluster


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
        seen = read_box()
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
        NvmlError: The driver answers at first and then fails.
    """
    try:
        seen = read_box()
    except NoDriverError as error:
        return _this_box("none", notices=(error.what,), faults=(error.fault,))
    return _this_box("uuid" if seen.gpus else "none", seen)


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
