"""The NVIDIA driver's management library, opened and closed; and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from lab.errors import LabError
from lab.gpu.model import DRIVER, Condition, Fault
from lab.gpu.nvml_errors import condition_of, fault_of

Library: TypeAlias = Any
"""The module `pynvml`, which has no types."""

Handle: TypeAlias = Any
"""What the library knows a card, or a slice, by."""

WAYS_OUT: Final = "or choose `--gpus none` (CPUs) or `--gpus index` (another box)"

T = TypeVar("T")
D = TypeVar("D")


class NvmlError(LabError):
    """The NVIDIA driver does not answer.

    Attributes:
        fault: What is wrong with it, by name.
    """

    def __init__(self, what: str, mend: str, fault: Fault) -> None:
        super().__init__(what, mend)
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
            f"no NVIDIA driver answers ({fault.detail})", f"{fault.mend}, {WAYS_OUT}", fault
        ) from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        fault = fault_of(error, DRIVER)
        raise NvmlError(
            f"the NVIDIA driver failed ({fault.detail})", f"{fault.mend}, {WAYS_OUT}", fault
        ) from None
    finally:
        # A library that cannot be closed leaves nothing to be done, and must not hide an error.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


class Questions:
    """Questions to one card; what it does not answer is noted, and does not lose the rest.

    Attributes:
        unknown: The fields that were not answered, and why.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.unknown: list[tuple[str, Condition]] = []

    def ask(self, fields: str, question: Callable[[], T], default: D) -> T | D:
        """The answer, or a default where there is none.

        Args:
            fields: Names of the fields that it fills, with spaces between.
            question: Asks the library.
            default: What stands for an answer that was not given.

        Raises:
            NVMLError: The card is lost: nothing else of it will be answered either.
        """
        try:
            return question()
        except self._library.NVMLError as error:
            if condition_of(error) is Condition.CARD_LOST:
                raise
            self._note(fields, error)
            return default

    def ask_of_pair(self, field: str, question: Callable[[], T], default: D) -> T | D:
        """The same of a card and another one: whichever is lost, the rest is asked for."""
        try:
            return question()
        except self._library.NVMLError as error:
            self._note(field, error)
            return default

    def _note(self, fields: str, error: Exception) -> None:
        condition = condition_of(error)
        self.unknown += [(field, condition) for field in fields.split()]


def text(value: str | bytes) -> str:
    """A string of the library, which may be bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
