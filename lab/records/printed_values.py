"""Numbers as programs print them, converted into the values of records."""

from __future__ import annotations

import math
import re
from typing import Final

_WHOLE: Final = re.compile(r"\d{1,18}|\d{1,3}(?:,\d{3}){1,5}")  # fits into 64 bits
_NUMBER: Final = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d*+)?|\.\d++)(?:e[-+]?\d{1,9})?|[-+]?(?:nan|inf)"
)


def whole(text: str) -> int | None:
    """Return a step or an epoch, such as `1200` or `1,200`; None for other text."""
    return int(text.replace(",", "")) if _WHOLE.fullmatch(text) else None


def number(text: str) -> float | None:
    """Return a number, such as `1e-05`, `0.25` or `nan`; None for other text."""
    if not _NUMBER.fullmatch(text):
        return None
    return float(text.replace(",", ""))


def fraction(text: str, *, percent: bool = False) -> float | None:
    """Return an accuracy from 0 to 1; None for other text.

    Args:
        text: A fraction, or a percentage if it is greater than 1.
        percent: Whether a per cent sign follows it.
    """
    value = number(text)
    if value is None or math.isnan(value):
        return None
    value = value / 100 if percent or value > 1 else value
    return value if 0 <= value <= 1 else None
