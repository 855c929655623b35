"""Amounts with units, as people write them: `8GiB`, `100mbit`, `5ms`."""

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
"""Unit of a link's rate to bits per second; the words of `tc`."""

DELAY: Final[Mapping[str, int]] = {"us": 1, "ms": 10**3, "s": 10**6}
"""Unit of a link's delay to microseconds; the words of `tc`."""


def pattern(units: Mapping[str, int]) -> str:
    """The regular expression of an amount: up to nine digits, up to three decimals, a unit."""
    return rf"^[0-9]{{1,9}}(\.[0-9]{{1,3}})?({'|'.join(units)})$"


def parse(text: str, units: Mapping[str, int]) -> int:
    """Read an amount.

    Args:
        text: A number and a unit, without a blank: `1.5GiB`.
        units: The units that are allowed, and how many of the smallest each one is.

    Returns:
        The amount in the smallest unit, rounded down.

    Raises:
        ValueError: It is no such amount.
    """
    match = re.fullmatch(pattern(units).removeprefix("^").removesuffix("$"), text)
    if match is None:
        raise ValueError(f"not a number and one of {', '.join(units)}")
    unit = match.group(2)
    return int(Decimal(text.removesuffix(unit)) * units[unit])


def memory_for_engine(memory_bytes: int) -> str:
    """An amount of memory in the largest unit of the engine that shows it exactly: `8g`."""
    for unit, size in (("g", GIB), ("m", MIB), ("k", KIB)):
        if memory_bytes % size == 0:
            return f"{memory_bytes // size}{unit}"
    return f"{memory_bytes}b"


def memory_for_people(memory_bytes: int) -> str:
    """An amount of memory, rounded: `8 GiB`, `1.5 GiB`, `512 MiB`."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if memory_bytes >= size:
            return f"{memory_bytes / size:.4g} {unit}"
    return f"{memory_bytes} B"
