"""Which box a plan is made for: this one as the driver describes it, or one that is described."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lab.errors import InputError
from lab.gpu import nvml
from lab.gpu.devices import read_gpus
from lab.gpu.model import (
    CUDA_VERSION,
    DRIVER,
    DRIVER_VERSION,
    MODES,
    Condition,
    Fault,
    Gpu,
    Inventory,
)
from lab.gpu.nvml import Library
from lab.gpu.topology import read_pairs
from lab.threads import in_background, signals_blocked

if TYPE_CHECKING:
    from lab.config import Cluster

TIMEOUT_S: Final = 20.0
"""Seconds in which the driver must answer; a cold one that keeps no state takes several."""


_NOTHING: Final = Inventory("none", (), None, None)


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
        gpus = tuple(Gpu(index, str(index)) for index in range(cluster.gpus_needed))
        return Inventory("index", gpus, cluster.box.cpus, cluster.box.memory)
    if mode == "none" or (mode == "auto" and cluster.gpus_needed == 0):
        return _this_box("none")
    try:
        seen = _read_in_time()
    except nvml.NvmlError as error:
        if mode == "uuid":
            raise
        notice = f"{error.what}: CPUs only"
        return _this_box("none", notices=(notice,), faults=(error.fault,))
    if not seen.gpus and mode == "auto":
        return _this_box("none", seen, ("this box has no usable GPU: CPUs only",))
    return _this_box("uuid", seen)


def read_host() -> Inventory:
    """This box as it is, whatever a description may ask for.

    Where no driver answers, it has no GPU, and a notice says so.

    Raises:
        NvmlError: The driver answers at first and then fails, or does not answer in time.
    """
    try:
        seen = _read_in_time()
    except nvml.NoDriverError as error:
        return _this_box("none", notices=(error.what,), faults=(error.fault,))
    return _this_box("uuid" if seen.gpus else "none", seen)


def _read_in_time() -> Inventory:
    """Ask the driver for everything, where Ctrl-C is heard also while it hangs.

    Python takes a signal only between its own instructions, so that the main thread, inside a
    call that hangs in the kernel, would never take one.

    Raises:
        NoDriverError: No driver can be opened.
        NvmlError: It fails, or does not answer in time; the thread is left to itself then.
    """
    with signals_blocked():
        requested = in_background(_ask_driver)
    try:
        return requested.result(TIMEOUT_S)
    except TimeoutError:
        late = f"answer within {TIMEOUT_S:.0f} s"
        fix = "see `dmesg | grep -i nvrm`, then reboot"
        fault = Fault(Condition.OTHER, DRIVER, f"no {late}", fix)
        raise nvml.NvmlError(
            f"the NVIDIA driver does not {late}", f"{fix}, {nvml.HINT}", fault
        ) from None


def _this_box(
    mode: str,
    seen: Inventory = _NOTHING,
    notices: tuple[str, ...] = (),
    faults: tuple[Fault, ...] = (),
) -> Inventory:
    cpu_ids = _cpu_ids()
    return replace(
        seen,
        mode=mode,
        gpus=seen.gpus if mode == "uuid" else (),
        pairs=seen.pairs if mode == "uuid" else (),
        cpus=len(cpu_ids) or os.cpu_count(),
        cpu_ids=cpu_ids,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        notices=(*seen.notices, *notices),
        faults=(*seen.faults, *faults),
    )


def _cpu_ids() -> tuple[int, ...]:
    """The CPUs that this process may run on; none on a system that does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def _ask_driver() -> Inventory:
    """Ask the driver for everything that it knows of this host.

    Raises:
        NoDriverError: No driver can be opened.
        NvmlError: The driver does not even tell how many cards there are.
    """
    with nvml.session() as library:
        faults: list[Fault] = []
        driver = _version(DRIVER_VERSION, lambda: _driver(library), library, faults)
        cuda = _version(CUDA_VERSION, lambda: _cuda(library), library, faults)
        found = read_gpus(library)
        pairs, unknown = read_pairs(library, found.whole)
    gpus = (
        replace(gpu, unknown=(*gpu.unknown, *unknown[gpu.index])) if gpu.index in unknown else gpu
        for gpu in found.gpus
    )
    return Inventory(
        "uuid",
        tuple(gpus),
        None,
        None,
        tuple(found.notices),
        pairs=pairs,
        driver=driver,
        cuda=cuda,
        faults=(*faults, *found.faults),
    )


def _version(where: str, question: Callable[[], str], library: Library, faults: list[Fault]) -> str:
    """A version; "" and a fault where it is not told."""
    try:
        return question()
    except library.NVMLError as error:
        if where == CUDA_VERSION and nvml.code_of(error) == nvml.LIBRARY_NOT_FOUND:
            # NVML looks for it; its own library and the driver are there, or it could not say so.
            what, fix = "libcuda.so.1 is not installed", "install `libcuda1`"
            faults.append(Fault(Condition.OTHER, where, what, fix))
        else:
            faults.append(nvml.fault_of(error, where))
        return ""


def _driver(library: Library) -> str:
    return nvml.text(library.nvmlSystemGetDriverVersion())


def _cuda(library: Library) -> str:
    """The newest CUDA version that the driver supports, `12.4`; NVML writes 12040."""
    version = nvml.answer_or(
        library, library.nvmlSystemGetCudaDriverVersion_v2, None, {Condition.OLD_DRIVER}
    )
    if version is None:
        version = library.nvmlSystemGetCudaDriverVersion()
    major, rest = divmod(version, 1000)
    return f"{major}.{rest // 10}"
