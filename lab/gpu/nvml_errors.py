"""What NVML's errors are called here, and how each is mended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lab.gpu.model import Condition, Fault

NOT_FOUND: Final = 6
"""NVML_ERROR_NOT_FOUND: there is no such thing."""

INVALID_ARGUMENT: Final = 2
"""NVML_ERROR_INVALID_ARGUMENT: among others, a link that the card does not have."""

LIBRARY_NOT_FOUND: Final = 12
"""NVML_ERROR_LIBRARY_NOT_FOUND: NVML's own, or libcuda where NVML is asked for CUDA's version."""

_CONDITIONS: Final[Mapping[int, Condition]] = {
    3: Condition.NOT_SUPPORTED,  # NVML_ERROR_NOT_SUPPORTED
    4: Condition.NO_PERMISSION,  # NVML_ERROR_NO_PERMISSION
    9: Condition.NO_DRIVER,  # NVML_ERROR_DRIVER_NOT_LOADED
    LIBRARY_NOT_FOUND: Condition.NO_DRIVER,
    13: Condition.OLD_DRIVER,  # NVML_ERROR_FUNCTION_NOT_FOUND
    15: Condition.CARD_LOST,  # NVML_ERROR_GPU_IS_LOST
    17: Condition.NO_PERMISSION,  # NVML_ERROR_OPERATING_SYSTEM: blocked, for example by a cgroup
    18: Condition.MISMATCH,  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
}
"""By the code of `nvmlReturn_t` in nvml.h; every other code is `other`."""

_MENDS: Final[Mapping[Condition, str]] = {
    Condition.NO_DRIVER: "check `nvidia-smi`",
    Condition.MISMATCH: "reboot, or reload the driver's kernel module",
    Condition.NO_PERMISSION: "let this user open /dev/nvidia*",
    Condition.CARD_LOST: "check `nvidia-smi` and `dmesg | grep Xid`, then reboot",
    Condition.NO_SLICES: "cut the card with `nvidia-smi mig -cgi PROFILE -C`",
    Condition.NOT_SUPPORTED: "do without: this card cannot tell",
    Condition.OLD_DRIVER: "update the NVIDIA driver",
    Condition.OTHER: "check `nvidia-smi` and `dmesg`",
}


def code_of(error: Exception) -> int:
    """The code of `nvmlReturn_t` that an NVML error carries."""
    return int(error.value)  # type: ignore[attr-defined]  # a class without types


def condition_of(error: Exception) -> Condition:
    """What an NVML error is called here."""
    return _CONDITIONS.get(code_of(error), Condition.OTHER)


def fault_of(error: Exception, where: str) -> Fault:
    """An NVML error as a plain value.

    Args:
        error: The library's exception.
        where: See `Fault`.
    """
    condition = condition_of(error)
    return Fault(condition, where, str(error).removesuffix("."), _MENDS[condition])
