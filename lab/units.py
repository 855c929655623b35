"""Parse and format amounts with units: `8GiB`, `100mbit`, `5ms`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
TIB: Final = 1024**4

MEMORY: Final[Mapping[str, int]] = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
"""Unit of memory to bytes."""

RATE: Final[Mapping[str, int]] = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
"""Unit of a link's rate to bits per second, as in `tc`."""

DELAY: Final[Mapping[str, int]] = {"us": 1, "ms": 10**3, "s": 10**6}
"""Unit of a link's delay to microseconds, as in `tc`."""


def pattern(units: Mapping[str, int]) -> str:
    """Return the regular expression of an amount: up to nine digits, three decimals, a unit."""
    return rf"^[0-9]{{1,9}}(\.[0-9]{{1,3}})?({'|'.join(units)})$"


def parse(text: str, units: Mapping[str, int]) -> int:
    """Parse an amount.

    Args:
        text: A number and a unit, without a space: `1.5GiB`.
        units: The allowed units, each with its size in the smallest unit.

    Returns:
        The amount in the smallest unit, rounded down.

    Raises:
        ValueError: The text is not such an amount.
    """
    match = re.fullmatch(pattern(units).removeprefix("^").removesuffix("$"), text)
    if match is None:
        raise ValueError(f"not a number and one of {', '.join(units)}")
    unit = match.group(2)
    return int(Decimal(text.removesuffix(unit)) * units[unit])


def memory_for_engine(memory_bytes: int) -> str:
    """Format an amount of memory exactly, in the largest possible unit of the engine: `8g`."""
    for unit, size in (("g", GIB), ("m", MIB), ("k", KIB)):
        if memory_bytes % size == 0:
            return f"{memory_bytes // size}{unit}"
    return f"{memory_bytes}b"


def memory_for_people(memory_bytes: int) -> str:
    """Format an amount of memory, rounded: `8 GiB`, `1.5 GiB`, `512 MiB`."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if memory_bytes >= size:
            return f"{memory_bytes / size:.4g} {unit}"
    return f"{memory_bytes} B"
