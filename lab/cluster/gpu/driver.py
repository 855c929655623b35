"""Reads the inventory of this host from the driver.

`LAB_GPUS` limits the GPUs of this host; `CUDA_VISIBLE_DEVICES` does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from lab.base.errors import InputError
from lab.base.formatting import counted
from lab.base.text import short
from lab.base.threads import in_background, signals_blocked
from lab.base.variables import LAB_GPUS
from lab.cluster.gpu import nvml
from lab.cluster.gpu.devices import read_gpus, read_pairs
from lab.cluster.gpu.nvml import Library
from lab.cluster.gpu.values import (
    CUDA_VERSION,
    DRIVER,
    DRIVER_VERSION,
    Condition,
    Fault,
    Gpu,
    Inventory,
    NvmlError,
)

TIMEOUT_S: Final = 20.0
"""Time limit for the driver, in seconds; without persistence mode it needs several."""


def read_in_time() -> Inventory:
    """Query the driver in another thread, so that Ctrl-C works even if the driver hangs.

    Python handles signals only between its own instructions: in the main thread, a call that
    hangs in the kernel would block them.

    Raises:
        InputError: `LAB_GPUS` is invalid.
        NoDriverError: No driver can be opened.
        NvmlError: It fails, or does not answer in time; then the thread continues.
    """
    allowed = allowed_ids(os.environ)
    with signals_blocked():
        requested = in_background(partial(_ask_driver, allowed))
    try:
        return requested.result(TIMEOUT_S)
    except TimeoutError:
        late = f"answer within {TIMEOUT_S:.0f} s"
        fix = "check `dmesg | grep -i nvrm`, then reboot"
        fault = Fault(Condition.OTHER, f"no {late}", fix, DRIVER)
        raise NvmlError(
            f"the NVIDIA driver does not {late}", f"{fix}, {nvml.HINT}", fault
        ) from None


def _ask_driver(allowed: Sequence[str] | None) -> Inventory:
    """Query the driver for the inventory of this host.

    Args:
        allowed: The items of `LAB_GPUS`; None: all GPUs.

    Raises:
        NoDriverError: No driver can be opened.
        NvmlError: The driver does not report the number of GPUs.
    """
    with nvml.session() as library:
        faults: list[Fault] = []
        driver = _version(DRIVER_VERSION, library.nvmlSystemGetDriverVersion, library, faults)
        cuda = _version(CUDA_VERSION, lambda: _cuda(library), library, faults)
        devices = read_gpus(library)
        visible, unknown_ids, left_out = _visible(devices.gpus, allowed)
        indices = {gpu.index for gpu in visible}
        whole = {index: gpu for index, gpu in devices.whole.items() if index in indices}
        pairs = read_pairs(library, whole)
    return Inventory(
        "uuid",
        tuple(visible),
        None,
        None,
        (*devices.notices, *unknown_ids),
        pairs=pairs,
        driver=driver,
        cuda=cuda,
        faults=(*faults, *devices.faults),
        left_out=(*devices.notices, *left_out),
    )


def _visible(
    gpus: Sequence[Gpu], allowed: Sequence[str] | None
) -> tuple[list[Gpu], list[str], list[str]]:
    """Return the allowed GPUs, a notice for each unknown item, and how many GPUs are left out."""
    if allowed is None:
        return [*gpus], [], []
    ids = {item: {gpu.device_id for gpu in select(gpus, item)} for item in allowed}
    chosen = [gpu for gpu in gpus if any(gpu.device_id in matches for matches in ids.values())]
    unknown = [
        f"{LAB_GPUS}: this host has no GPU {short(item)}"
        for item, matches in ids.items()
        if not matches
    ]
    limit = f"{LAB_GPUS} allows {len(chosen)} of {counted(len(gpus), 'GPU')}"
    return chosen, unknown, [limit] if len(chosen) < len(gpus) else []


def _version(
    where: str, question: Callable[[], str | bytes], library: Library, faults: list[Fault]
) -> str:
    """Return a version; "" and a fault if the driver does not report it."""
    try:
        return nvml.text(question())
    except library.NVMLError as error:
        if where == CUDA_VERSION and nvml.code_of(error) == nvml.LIBRARY_NOT_FOUND:
            # NVML itself works here: the missing library is libcuda.
            problem, fix = "libcuda.so.1 is not installed", "install `libcuda1`"
            faults.append(Fault(Condition.OTHER, problem, fix, where))
        else:
            faults.append(nvml.fault_of(error, where))
        return ""


def _cuda(library: Library) -> str:
    """Return the newest CUDA version that the driver supports: `12.4` for NVML's 12040."""
    major, rest = divmod(library.nvmlSystemGetCudaDriverVersion_v2(), 1000)
    return f"{major}.{rest // 10}"


_CUDA: Final = "CUDA_VISIBLE_DEVICES"
_ID: Final = re.compile(r"[0-9]+|(?:GPU|MIG)-[\w/-]+", re.ASCII)


def allowed_ids(environ: Mapping[str, str]) -> list[str] | None:
    """Return the items of `LAB_GPUS`; None: all GPUs are allowed.

    Raises:
        InputError: An item is empty, or is neither a UUID nor an index.
    """
    value = environ.get(LAB_GPUS)
    if value is None:
        return None
    items = re.split(r"\s*,\s*|\s+", value.strip()) if value.strip() else []
    for item in items:
        if not _ID.fullmatch(item):
            raise InputError(
                f"{LAB_GPUS}={value}: '{item}' is not a GPU's index or UUID",
                "name GPUs as `nvidia-smi -L` does, separated by commas, or leave"
                f" {LAB_GPUS}= empty for none",
            )
    return items


def select(gpus: Sequence[Gpu], item: str) -> list[Gpu]:
    """Return the GPUs that an item names: one, or all slices of one, or none.

    As for CUDA, the beginning of a UUID suffices if it is unique.

    Args:
        gpus: The GPUs of the host.
        item: An index, a UUID, or the beginning of a UUID.
    """
    if not _ID.fullmatch(item):
        return []
    if item.isdecimal():
        return [gpu for gpu in gpus if gpu.index == int(item)]
    if exact := [gpu for gpu in gpus if item in {gpu.device_id, gpu.slice_of}]:
        return exact
    begun = [gpu for gpu in gpus if gpu.device_id.startswith(item)]
    return begun if len(begun) == 1 else []


def cuda_notices(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return a notice if `CUDA_VISIBLE_DEVICES` hides GPUs from CUDA that `lab` would use.

    Args:
        environ: The environment variables.
        gpus: The GPUs that `lab` uses.
    """
    value = environ.get(_CUDA)
    if value is None or LAB_GPUS in environ or not gpus:
        return ()
    visible = {gpu.device_id for item in value.split(",") for gpu in select(gpus, item.strip())}
    if visible == {gpu.device_id for gpu in gpus}:
        return ()
    return (f"{_CUDA}={short(value)} does not limit lab; set {LAB_GPUS}, or use `--gpus none`",)
