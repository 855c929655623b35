"""Format numbers for tables and messages, in a limited width. An unknown value is ""."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

UNKNOWN: Final = "–"  # noqa: RUF001  (as in the tables of a report)
"""The mark of an unknown value in a table whose rows are compared."""

LONG: Final = 1e12
"""Numbers from this one on have the short form: `1.2e+300`."""

_LISTED: Final = 4  # the most names in a list
_WHOLE: Final = 100  # from this number on, a compared number has no decimals
_SHORT_S: Final = 0.1  # a shorter time is shown in milliseconds
_SMALL: Final = 100  # a smaller rate or ratio has decimals


def fixed(value: float, decimals: int) -> str:
    """Format a number with commas and decimals, or in its short form; also `nan` and `inf`."""
    if abs(value) >= LONG or not math.isfinite(value):
        return f"{value:.3g}"
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # no -0.0000


def number(value: float) -> str:
    """Format a whole number with commas, and any other number with six digits."""
    return fixed(value, 0) if float(value).is_integer() else f"{value:.6g}"


def whole(value: float | None) -> str:
    """Format a count with commas."""
    return "" if value is None else f"{value:,}"


def counted(count: int, noun: str) -> str:
    """Format a count and its noun: `1 run`, `2 runs`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(names: Iterable[str]) -> str:
    """List names: up to four, and the number of the others: `a, b, c, d and 2 more`."""
    every = list(names)
    more = len(every) - _LISTED
    return ", ".join(every[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def rate(value: float | None) -> str:
    """Format a rate without decimals."""
    return "" if value is None else fixed(value, 0)


def pace(value: float | None) -> str:
    """Format a rate with two digits below 10, and without decimals above."""
    if value is None:
        return ""
    return f"{value:.1f}" if 1 <= value < 9.95 else f"{value:.2g}" if value < 1 else fixed(value, 0)  # noqa: PLR2004


def share(value: float | None) -> str:
    """Format a fraction from 0 to 1, or a loss, with four decimals."""
    return "" if value is None else fixed(value, 4)


loss: Final = share


def seconds(value: float | None) -> str:
    """Format seconds with one decimal below 1,000, and without decimals above."""
    if value is None:
        return ""
    return f"{fixed(value, 1 if value < 999.95 else 0)} s"  # noqa: PLR2004


def about(value: float) -> str:
    """Format a rough time: `40 s`, `3 min`, `2 h 10 min`."""
    if value < 100:  # noqa: PLR2004
        return f"{value:.0f} s"
    minutes = round(min(value, LONG) / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60:,} h {minutes % 60} min"  # noqa: PLR2004


def percent(value: float | None) -> str:
    """Format a fraction from 0 to 1 as per cent."""
    return "" if value is None else f"{fixed(100 * value, 0)} %"


def p_value(p: float, form: str = ".3g") -> str:
    """Format a p-value; small values become `< 0.0001`."""
    return f"{p:{form}}" if p >= 0.0001 else "< 0.0001"  # noqa: PLR2004


def between(low: float | None, high: float | None) -> str:
    """Format limits: `1.95 to 2.05`, `at least 0.97`; without limits return ""."""
    if low is None:
        return "" if high is None else f"at most {number(high)}"
    if high is None:
        return f"at least {number(low)}"
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def compared(value: float) -> str:
    """Format a value for comparison: steps as whole numbers, fractions and losses with decimals."""
    return fixed(value, 0 if abs(value) >= _WHOLE or float(value).is_integer() else 4)


def band(low: float | None, high: float | None) -> str:
    """Format a range for comparison: `0.8800-0.8950`; a single value if both limits are equal."""
    if low is None or high is None:
        return between(low, high)
    first, last = compared(low), compared(high)
    if first == last:
        return first
    return f"{first}-{last}" if low >= 0 else f"{first} to {last}"


def figure(value: float | None, unit: str) -> str:
    """Format a value with its unit, rounded for reading."""
    return "" if value is None else _FORMS.get(unit, _plain)(value)


def signed(value: float | None, unit: str, beside: float | None = None) -> str:
    """Format a difference with its sign, also if it is positive.

    Args:
        value: The difference.
        unit: Its unit.
        beside: The value that it is a difference to. If that is shown in seconds, the difference
            is, too.
    """
    if value is None:
        return ""
    is_long = unit == "s" and beside is not None and abs(beside) >= _SHORT_S
    text = seconds(value) if is_long else figure(value, unit)
    return f"+{text}" if value > 0 else text


def ratio(value: float | None) -> str:
    """Format a ratio."""
    return "" if value is None else fixed(value, 3 if abs(value) < _SMALL else 0)


def _plain(value: float) -> str:
    return number(float(f"{value:.5g}"))


_FORMS: Final[Mapping[str, Callable[[float], str]]] = {
    "share": share,
    "loss": share,
    "count": rate,
    "1/s": lambda value: f"{value:.3g}" if abs(value) < _SMALL else rate(value),
    "s": lambda value: f"{1000 * value:.2f} ms" if abs(value) < _SHORT_S else seconds(value),
    "byte": lambda value: f"{fixed(value / 2**30, 2)} GiB",
    "W": lambda value: f"{fixed(value, 0)} W",
    "updates": lambda value: fixed(value, 2),
}
"""Unit to its format function."""
