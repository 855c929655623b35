"""From the text of a flag to its value; a ValueError says what was expected."""

from __future__ import annotations

from collections.abc import Callable

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def text(raw: str) -> str:
    """Any text that is not empty, as it stands: `1.10` stays `1.10`."""
    if not raw:
        raise ValueError("a value")
    return raw


def boolean(raw: str) -> bool:
    """`true` or `false`, also `yes`, `no`, `on`, `off`, `1`, `0`."""
    word = raw.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return word in _TRUE


def count(raw: str) -> int:
    """A whole number, 0 or more."""
    if not (raw.isascii() and raw.isdigit()):
        raise ValueError("a whole number, 0 or more")
    return int(raw)


def one_of(*choices: str) -> Callable[[str], str]:
    """A parse function that takes exactly these words."""

    def parse(raw: str) -> str:
        if raw not in choices:
            raise ValueError(f"{', '.join(choices[:-1])} or {choices[-1]}")
        return raw

    return parse
