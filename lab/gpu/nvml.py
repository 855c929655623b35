"""The NVIDIA driver's management library: its session, its questions and its errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from lab.errors import LabError
from lab.gpu.model import DRIVER, Condition, Fault

Library: TypeAlias = Any
"""The module `pynvml`, which has no types."""

Handle: TypeAlias = Any
"""What the library knows a card, or a slice, by."""

HINT: Final = "or choose `--gpus none` (CPUs) or `--gpus index` (another box)"

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
    15: Condition.GPU_LOST,  # NVML_ERROR_GPU_IS_LOST
    17: Condition.NO_PERMISSION,  # NVML_ERROR_OPERATING_SYSTEM: blocked, for example by a cgroup
    18: Condition.MISMATCH,  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
}
"""By the code of `nvmlReturn_t` in nvml.h; every other code is `other`."""

_HINTS: Final[Mapping[Condition, str]] = {
    Condition.NO_DRIVER: "check `nvidia-smi`",
    Condition.MISMATCH: "reboot, or reload the driver's kernel module",
    Condition.NO_PERMISSION: "let this user open /dev/nvidia*",
    Condition.GPU_LOST: "check `nvidia-smi` and `dmesg | grep Xid`, then reboot",
    Condition.NO_SLICES: "cut the card with `nvidia-smi mig -cgi PROFILE -C`",
    Condition.NOT_SUPPORTED: "do without: this card cannot tell",
    Condition.OLD_DRIVER: "update the NVIDIA driver",
    Condition.OTHER: "check `nvidia-smi` and `dmesg`",
}

UNSUPPORTED: Final = frozenset({Condition.NOT_SUPPORTED, Condition.OLD_DRIVER})
"""The conditions of a card, or of a driver, that lacks a function for good."""

T = TypeVar("T")
D = TypeVar("D")


class NvmlError(LabError):
    """The NVIDIA driver does not answer.

    Attributes:
        fault: What is wrong with it, by name.
    """

    def __init__(self, what: str, fix: str, fault: Fault) -> None:
        super().__init__(what, fix)
        self.fault = fault


class NoDriverError(NvmlError):
    """No driver can be opened: there is none, or it is not loaded, or this user may not."""


@contextmanager
def session() -> Iterator[Library]:
    """The library, open for as long as the block lasts, and closed however the block ends.

    Raises:
        NoDriverError: It cannot be opened.
        NvmlError: It failed in the block.
    """
    import pynvml  # noqa: PLC0415  (only commands that look for GPUs need it)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        fault = fault_of(error, DRIVER)
        raise NoDriverError(
            f"no NVIDIA driver answers ({fault.detail})", f"{fault.mend}, {HINT}", fault
        ) from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        fault = fault_of(error, DRIVER)
        raise NvmlError(
            f"the NVIDIA driver failed ({fault.detail})", f"{fault.mend}, {HINT}", fault
        ) from None
    finally:
        # A library that cannot be closed leaves nothing to be done, and must not hide an error.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


class DeviceQueries:
    """Questions to one card; what it does not answer is noted, and does not lose the rest.

    Attributes:
        unknown: The fields that were not answered, and why.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.unknown: list[tuple[str, Condition]] = []

    def ask(
        self, fields: str, question: Callable[[], T], default: D, *, of_pair: bool = False
    ) -> T | D:
        """The answer, or a default where there is none.

        Args:
            fields: Names of the fields that it fills, with spaces between.
            question: Asks the library.
            default: What stands for an answer that was not given.
            of_pair: Whether it asks about another card, too: that one may be lost.

        Raises:
            NVMLError: The card is lost: nothing else of it will be answered either.
        """
        try:
            return question()
        except self._library.NVMLError as error:
            condition = condition_of(error)
            if condition is Condition.GPU_LOST and not of_pair:
                raise
            self.unknown += [(field, condition) for field in fields.split()]
            return default


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
    return Fault(condition, where, str(error).removesuffix("."), _HINTS[condition])


def answer_or(
    library: Library,
    question: Callable[[], T],
    default: D,
    conditions: Collection[Condition] = UNSUPPORTED,
) -> T | D:
    """The answer, or a default where one of these conditions is the reason for none.

    Raises:
        NVMLError: There is no answer, for another reason.
    """
    try:
        return question()
    except library.NVMLError as error:
        if condition_of(error) in conditions:
            return default
        raise


def text(value: str | bytes) -> str:
    """A string of the library, which may be bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
