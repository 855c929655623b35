"""Parse values of options, and format amounts with units: `8GiB`, `100mbit`, `5ms`, `1h30m`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
_SECONDS: Final = r"\d{1,8}(?:\.\d{1,6})?"
_DURATION: Final = re.compile(
    rf"(?:(\d{{1,6}})d)?(?:(\d{{1,6}})h)?(?:(\d{{1,6}})m)?(?:({_SECONDS})s)?"
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


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parse function for whole numbers from `least` to `most`."""

    def parse_limited(raw: str) -> int:
        plain = raw.isascii() and raw.isdigit() and len(raw) <= len(str(most))
        if not plain or not least <= int(raw) <= most:
            raise ValueError(f"a whole number from {least} to {most:,}")
        return int(raw)

    return parse_limited


@dataclass(frozen=True, slots=True)
class OneOf:
    """A parse function that accepts only these values; shell completion offers them."""

    choices: tuple[str, ...]

    def __call__(self, raw: str) -> str:
        """Return the value, if it is one of the choices."""
        if raw not in self.choices:
            *others, last = self.choices
            raise ValueError(f"{', '.join(others)} or {last}" if others else last)
        return raw


def one_of(*choices: str) -> OneOf:
    """Return a parse function that accepts only these values."""
    return OneOf(choices)


def counts(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a parse function for different whole numbers from 1: `1,8,64`."""

    def parse_counts(raw: str) -> tuple[int, ...]:
        try:
            return tuple(dict.fromkeys(whole(1, most)(item.strip()) for item in raw.split(",")))
        except ValueError:
            raise ValueError(f"whole numbers from 1 to {most}, such as 1,8,64") from None

    return parse_counts


def duration(raw: str) -> float:
    """Return the seconds of a duration, `90s`, `1h30m`, or of a plain number of seconds.

    Raises:
        ValueError: The text is neither.
    """
    seconds = float(raw) if re.fullmatch(_SECONDS, raw) else duration_s(raw)
    if seconds is None:
        raise ValueError("a duration (90s, 5m, 1h30m), or a number of seconds")
    return seconds


def duration_s(raw: str) -> float | None:
    """Return the seconds of `1h30m` or `0.5s`; None for any other text."""
    match = _DURATION.fullmatch(raw)
    if not raw or match is None:
        return None
    return sum(float(n) * unit for n, unit in zip(match.groups("0"), _UNITS_S, strict=True))
