"""From the text of a flag to its value; a ValueError says what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_MAX_DIGITS = 18  # more of them count nothing, and Python refuses to read thousands of them


def text(raw: str) -> str:
    """Any text that is not empty, as it stands: `1.10` stays `1.10`."""
    if not raw:
        raise ValueError("a value")
    return raw


def boolean(raw: str) -> bool:
    """`true` or `false`, also `yes`, `no`, `on`, `off`, `1`, `0`."""
    argument = raw.lower()
    if argument not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return argument in _TRUE


def count(raw: str) -> int:
    """A whole number, 0 or more."""
    if not (raw.isascii() and raw.isdigit() and len(raw) <= _MAX_DIGITS):
        raise ValueError("a whole number, 0 or more")
    return int(raw)


def whole(least: int, most: int) -> Callable[[str], int]:
    """A parse function that takes whole numbers from `least` to `most`."""

    def parse(raw: str) -> int:
        plain = raw.isascii() and raw.isdigit() and len(raw) <= len(str(most))
        if not plain or not least <= int(raw) <= most:
            raise ValueError(f"a whole number from {least} to {most:,}")
        return int(raw)

    return parse


@dataclass(frozen=True, slots=True)
class OneOf:
    """A parse function that takes exactly these words; help and shell completion show them."""

    choices: tuple[str, ...]

    def __call__(self, raw: str) -> str:
        """The word itself."""
        if raw not in self.choices:
            *others, last = self.choices
            raise ValueError(f"{', '.join(others)} or {last}" if others else last)
        return raw


def one_of(*choices: str) -> OneOf:
    """A parse function that takes exactly these words."""
    return OneOf(choices)
