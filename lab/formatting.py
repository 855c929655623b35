"""Numbers as people read them: never wider than a column. A value that is not known is ""."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

LONG: Final = 1e12
"""From here on a number has its short form: `1.2e+300`."""

LEAST_RUNS: Final = 3
"""The interval of a mean over fewer runs is not shown."""

_WHOLE: Final = 100  # from here on a compared number has no decimals
_SHORT_S: Final = 0.1  # below it, milliseconds say more
_SMALL: Final = 100  # below it, a rate or a ratio has decimals


def fixed(value: float, decimals: int) -> str:
    """Format a number with commas and decimals, or in its short form; also `nan` and `inf`."""
    return f"{value:,.{decimals}f}" if abs(value) < LONG else f"{value:.3g}"


def number(value: float) -> str:
    """A whole number with commas, any other with six digits."""
    return fixed(value, 0) if float(value).is_integer() else f"{value:.6g}"


def whole(value: float | None) -> str:
    """A count, with commas."""
    return "" if value is None else f"{value:,}"


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def rate(value: float | None) -> str:
    """A rate without decimals."""
    return "" if value is None else fixed(value, 0)


def pace(value: float | None) -> str:
    """A rate, as precise as it is of use: two digits where it is below 10."""
    if value is None:
        return ""
    return f"{value:.1f}" if 1 <= value < 9.95 else f"{value:.2g}" if value < 1 else fixed(value, 0)  # noqa: PLR2004


def share(value: float | None) -> str:
    """A share of one, or a loss, with four decimals."""
    return "" if value is None else fixed(value, 4)


loss: Final = share


def seconds(value: float | None) -> str:
    """A tenth of a second counts in a short run, and is too wide for a long one."""
    if value is None:
        return ""
    return f"{fixed(value, 1 if value < 999.95 else 0)} s"  # noqa: PLR2004


def percent(value: float | None) -> str:
    """A share of one as per cent."""
    return "" if value is None else f"{fixed(100 * value, 0)} %"


def p_value(p: float, form: str = ".3g") -> str:
    """A p-value; what is smaller than its digits can show is named as that."""
    return f"{p:{form}}" if p >= 0.0001 else "< 0.0001"  # noqa: PLR2004


def between(low: float | None, high: float | None) -> str:
    """Limits in words: `1.95 to 2.05`, `at least 0.97`; nothing where there is none."""
    if low is None:
        return "" if high is None else f"at most {number(high)}"
    if high is None:
        return f"at least {number(low)}"
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def compared(value: float) -> str:
    """Digits enough to compare: whole steps, shares and losses with four decimals."""
    return fixed(value, 0 if _is_whole(value) else 4)


def mean_of_runs(mean: float, low: float | None, high: float | None, runs: int | None) -> str:
    """A mean with half of its interval, where that tells something: `82,500 ±1,000`.

    Args:
        mean: The mean.
        low: The interval's lower end, or None.
        high: Its upper end, or None.
        runs: Over how many; None where that is not known.
    """
    few = runs is not None and runs < LEAST_RUNS
    if few or low is None or high is None or low == high:
        return compared(mean)
    return f"{compared(mean)} ±{fixed((high - low) / 2, 0 if _is_whole(mean) else 4)}"


def band(low: float | None, high: float | None) -> str:
    """From low to high, or the one value that it has to be: `0.8800-0.8950`."""
    if low is None or high is None:
        return between(low, high)
    first, last = compared(low), compared(high)
    return first if first == last else f"{first}-{last}"


def figure(value: float | None, unit: str) -> str:
    """A figure with its unit, as precise as it is of use."""
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
    """A ratio."""
    return "" if value is None else fixed(value, 3 if abs(value) < _SMALL else 0)


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and (abs(value) >= _WHOLE or value == int(value))


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
"""Unit to form."""
