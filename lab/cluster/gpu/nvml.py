"""NVML, the NVIDIA driver's management library: its session, queries and errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from lab.cluster.gpu.values import DRIVER, Condition, Fault, NoDriverError, NvmlError

Library: TypeAlias = Any
"""The module `pynvml`, which has no types."""

Handle: TypeAlias = Any
"""The library's handle of a GPU or a slice."""

HINT: Final = "or use `--gpus none` (CPUs) or `--gpus index` (another host)"

NOT_FOUND: Final = 6
"""NVML_ERROR_NOT_FOUND: there is no such object."""


LIBRARY_NOT_FOUND: Final = 12
"""NVML_ERROR_LIBRARY_NOT_FOUND: NVML itself, or libcuda for a query of the CUDA version."""

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
"""Code of `nvmlReturn_t` in nvml.h to condition; every other code is `OTHER`."""

_HINTS: Final[Mapping[Condition, str]] = {
    Condition.NO_DRIVER: "check `nvidia-smi`",
    Condition.MISMATCH: "reboot, or reload the driver's kernel module",
    Condition.NO_PERMISSION: "let this user open /dev/nvidia*",
    Condition.GPU_LOST: "check `nvidia-smi` and `dmesg | grep Xid`, then reboot",
    Condition.NOT_SUPPORTED: "ignore it: this GPU does not report it",
    Condition.OLD_DRIVER: "update the NVIDIA driver",
    Condition.OTHER: "check `nvidia-smi` and `dmesg`",
}

UNSUPPORTED: Final = frozenset({Condition.NOT_SUPPORTED, Condition.OLD_DRIVER})
"""The conditions of a GPU or a driver that lacks a function."""

T = TypeVar("T")
D = TypeVar("D")


@contextmanager
def session() -> Iterator[Library]:
    """Open the library for a `with` block.

    Raises:
        NoDriverError: The library cannot be opened.
        NvmlError: It failed in the block.
    """
    import pynvml  # noqa: PLC0415  (only commands that look for GPUs need it)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        fault = fault_of(error, DRIVER)
        raise NoDriverError(
            f"no NVIDIA driver answers ({fault.what})", f"{fault.fix}, {HINT}", fault
        ) from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        fault = fault_of(error, DRIVER)
        raise NvmlError(
            f"the NVIDIA driver failed ({fault.what})", f"{fault.fix}, {HINT}", fault
        ) from None
    finally:
        # A failure to close the library must not hide another error.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


class DeviceQueries:
    """Queries of one GPU; a failed query gives a default, and the others continue.

    Attributes:
        unknown: The fields without an answer, and why.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.unknown: list[tuple[str, Condition]] = []

    def ask(self, fields: str, question: Callable[[], T], default: D) -> T | D:
        """Return the answer, or a default if there is none.

        Args:
            fields: Names of the fields that the answer fills, with spaces between.
            question: Calls the library.
            default: The value without an answer.

        Raises:
            NVMLError: The GPU is lost: all other questions to it would fail, too.
        """
        try:
            return question()
        except self._library.NVMLError as error:
            condition = condition_of(error)
            if condition is Condition.GPU_LOST:
                raise
            self.unknown += [(field, condition) for field in fields.split()]
            return default


def code_of(error: Exception) -> int:
    """Return the code of `nvmlReturn_t` of an NVML error."""
    return int(error.value)  # type: ignore[attr-defined]  # a class without types


def condition_of(error: Exception) -> Condition:
    """Return the condition of an NVML error."""
    return _CONDITIONS.get(code_of(error), Condition.OTHER)


def fault_of(error: Exception, where: str) -> Fault:
    """Return an NVML error as a plain value.

    Args:
        error: The library's exception.
        where: See `Fault`.
    """
    condition = condition_of(error)
    return Fault(condition, str(error).removesuffix("."), _HINTS[condition], where)


def answer_or(
    library: Library,
    question: Callable[[], T],
    default: D,
    conditions: Collection[Condition] = UNSUPPORTED,
) -> T | D:
    """Return the answer, or a default if it fails with one of these conditions.

    Raises:
        NVMLError: It fails with another condition.
    """
    try:
        return question()
    except library.NVMLError as error:
        if condition_of(error) in conditions:
            return default
        raise


def text(value: str | bytes) -> str:
    """Return a string of the library, which may be bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
