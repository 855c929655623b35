"""Parse and format amounts with units: `8GiB`, `100mbit`, `5ms`, `1h30m`."""

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


_MAX_NUMBER: Final = 10**9 - 1  # an amount has at most nine digits before the point
SECONDS: Final = r"\d{1,8}(?:\.\d{1,6})?"
_DURATION: Final = re.compile(
    rf"(?:(\d{{1,6}})d)?(?:(\d{{1,6}})h)?(?:(\d{{1,6}})m)?(?:({SECONDS})s)?"
)
_UNITS_S: Final = (86_400, 3_600, 60, 1)


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


def exact(amount: int, units: Mapping[str, int]) -> str:
    """Format an amount in the largest unit that states it exactly, else to three decimals.

    `parse` reads it back.

    Args:
        amount: The amount in the smallest unit.
        units: The units, the smallest first, each with its size.
    """
    for unit, size in reversed([*units.items()]):
        if amount % size == 0:
            return f"{amount // size}{unit}"
    unit, size = next((unit, size) for unit, size in units.items() if amount < _MAX_NUMBER * size)
    return f"{(Decimal(amount) / size).quantize(Decimal('0.001')).normalize():f}{unit}"


def memory_for_people(memory_bytes: int) -> str:
    """Format an amount of memory, rounded: `8 GiB`, `1.5 GiB`, `512 MiB`."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if memory_bytes >= size:
            return f"{memory_bytes / size:.4g} {unit}"
    return f"{memory_bytes} B"


def is_in_range(whole: int) -> bool:
    """Whether a whole number fits into 64 bits with its sign.

    Larger numbers may not fit into a float, and dividing them by a time would fail.
    """
    return -(2**63) <= whole < 2**63


def parse_whole(text: str) -> int:
    """Parse a whole number of JSON.

    Raises:
        ValueError: It does not fit into 64 bits.
    """
    if not is_in_range(value := int(text)):
        raise ValueError("a whole number does not fit into 64 bits")
    return value


def duration_s(raw: str) -> float | None:
    """Return the seconds of `1h30m` or `0.5s`; None for any other text."""
    match = _DURATION.fullmatch(raw)
    if not raw or match is None:
        return None
    return sum(float(n) * unit for n, unit in zip(match.groups("0"), _UNITS_S, strict=True))
