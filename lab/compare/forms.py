"""How a figure looks, a difference and a ratio: as precise as each is of use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lab.numbers import fixed
from lab.run.tables import loss, number, rate, seconds, share

_SHORT_S: Final = 0.1  # below it, milliseconds say more
_SMALL: Final = 100  # below it, a rate or a ratio has decimals


def figure(value: float | None, unit: str) -> str:
    """A figure with its unit; nothing where there is none."""
    return "" if value is None else _FORMS.get(unit, _plain)(value)


def signed(value: float | None, unit: str, beside: float | None = None) -> str:
    """A difference: what is more has a sign, too.

    Args:
        value: The difference.
        unit: Its unit.
        beside: A figure that it is a difference to: of seconds it is told in seconds.
    """
    if value is None:
        return ""
    is_long = unit == "s" and beside is not None and abs(beside) >= _SHORT_S
    text = seconds(value) if is_long else figure(value, unit)
    return f"+{text}" if value > 0 else text


def ratio(value: float | None) -> str:
    """A ratio; nothing where there is none."""
    if value is None:
        return ""
    return fixed(value, 3 if abs(value) < _SMALL else 0)


def _time(value: float) -> str:
    return f"{1000 * value:.2f} ms" if abs(value) < _SHORT_S else seconds(value)


def _rate(value: float) -> str:
    return f"{value:.3g}" if abs(value) < _SMALL else rate(value)


def _plain(value: float) -> str:
    return number(float(f"{value:.5g}"))


_FORMS: Final[Mapping[str, Callable[[float], str]]] = {
    "share": share,
    "loss": loss,
    "count": lambda value: fixed(value, 0),
    "1/s": _rate,
    "s": _time,
    "byte": lambda value: f"{fixed(value / 2**30, 2)} GiB",
    "W": lambda value: f"{fixed(value, 0)} W",
    "updates": lambda value: fixed(value, 2),
}
"""Unit to form."""
