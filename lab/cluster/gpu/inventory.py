"""Takes the inventory: of this host from the driver, or of another host from the config."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lab.base.errors import InputError
from lab.cluster.gpu.values import MODES, Fault, Gpu, Inventory, NoDriverError, NvmlError

if TYPE_CHECKING:
    from lab.cluster.config import Cluster

_NOTHING: Final = Inventory("none", (), None, None)


def take_inventory(mode: str, cluster: Cluster) -> Inventory:
    """Return the inventory that a plan is made for.

    Args:
        mode: `auto` (UUIDs if the driver answers, else CPUs only, with a notice), `uuid`,
            `index` (another host, as the config describes it) or `none`.
        cluster: The config, which describes another host.

    Raises:
        NvmlError: The driver does not answer, and the mode is `uuid`.
        InputError: There is no such mode, or `LAB_GPUS` is invalid.
    """
    if mode not in MODES:
        raise InputError(f"unknown GPU mode {mode!r}", f"use one of {', '.join(MODES)}")
    if mode == "index":
        another = another_host(cluster.gpus_needed)
        return replace(another, cpus=cluster.box.cpus, memory_bytes=cluster.box.memory)
    if mode == "none" or (mode == "auto" and cluster.gpus_needed == 0):
        return _this_host("none")
    from lab.cluster.gpu import driver  # noqa: PLC0415  (only for the GPUs of this host)

    try:
        inventory = driver.read_in_time()
    except NvmlError as error:
        if mode == "uuid":
            raise
        notice = f"{error.what}: CPUs only"
        return _this_host("none", notices=(notice,), faults=(error.fault,))
    if not inventory.gpus and mode == "auto":
        return _this_host("none", inventory, ("this host has no usable GPU: CPUs only",))
    notices = driver.cuda_notices(os.environ, inventory.gpus) if cluster.gpus_needed else ()
    return _this_host("uuid", inventory, notices)


def another_host(gpus: int) -> Inventory:
    """Return the inventory of another host, of which only the number of GPUs is known."""
    return Inventory("index", tuple(Gpu(i, str(i)) for i in range(gpus)), None, None)


def chosen_host(gpus: str | int) -> Inventory:
    """Return the inventory that a user chooses.

    Args:
        gpus: `auto` (this host), `none` (this host without its GPUs; the driver is not queried), or
            the number of GPUs of another host.

    Raises:
        NvmlError: The driver answers at first and then fails, or does not answer in time.
    """
    if isinstance(gpus, int):
        return another_host(gpus)
    return read_host() if gpus == "auto" else _this_host("none")


def read_host() -> Inventory:
    """Return the inventory of this host, independent of a config.

    Without a driver it has no GPU, and a notice says so.

    Raises:
        NvmlError: The driver answers at first and then fails, or does not answer in time.
    """
    from lab.cluster.gpu import driver  # noqa: PLC0415  (only for the GPUs of this host)

    try:
        inventory = driver.read_in_time()
    except NoDriverError as error:
        without = _this_host("none", notices=(error.what,), faults=(error.fault,))
        return replace(without, left_out=without.notices)
    notices = driver.cuda_notices(os.environ, inventory.gpus)
    return _this_host("uuid" if inventory.gpus else "none", inventory, notices)


def host_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this host; none if no driver answers."""
    try:
        return read_host().gpus
    except NvmlError:
        return ()


def _this_host(
    mode: str,
    inventory: Inventory = _NOTHING,
    notices: tuple[str, ...] = (),
    faults: tuple[Fault, ...] = (),
) -> Inventory:
    cpu_ids = tuple(sorted(os.sched_getaffinity(0)))
    return replace(
        inventory,
        mode=mode,
        gpus=inventory.gpus if mode == "uuid" else (),
        pairs=inventory.pairs if mode == "uuid" else (),
        cpus=len(cpu_ids),
        cpu_ids=cpu_ids,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        notices=(*inventory.notices, *notices),
        faults=(*inventory.faults, *faults),
    )
