"""Numbers for people."""

from __future__ import annotations

from typing import Final

LONG: Final = 1e12
"""From here on a number has its short form: `1.2e+300`."""


def fixed(value: float, decimals: int) -> str:
    """Format a number with commas and decimals, or in its short form; also `nan` and `inf`."""
    return f"{value:,.{decimals}f}" if abs(value) < LONG else f"{value:.3g}"


def plural(count: int, word: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
