"""Parse functions for values on the command line; a ValueError names what is expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_MAX_DIGITS = 18  # Python rejects numbers of thousands of digits


def text(raw: str) -> str:
    """Return a non-empty text unchanged: `1.10` stays `1.10`."""
    if not raw:
        raise ValueError("a value")
    return raw


def boolean(raw: str) -> bool:
    """Parse `true` or `false`, also `yes`, `no`, `on`, `off`, `1`, `0`."""
    lower = raw.lower()
    if lower not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return lower in _TRUE


def count(raw: str) -> int:
    """Parse a whole number, 0 or more."""
    if not (raw.isascii() and raw.isdigit() and len(raw) <= _MAX_DIGITS):
        raise ValueError("a whole number, 0 or more")
    return int(raw)


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parse function for whole numbers from `least` to `most`."""

    def parse(raw: str) -> int:
        plain = raw.isascii() and raw.isdigit() and len(raw) <= len(str(most))
        if not plain or not least <= int(raw) <= most:
            raise ValueError(f"a whole number from {least} to {most:,}")
        return int(raw)

    return parse


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
