"""The figures of one run or of several runs. Each module draws one figure from `data.Trace`.

`draw()` is a pure function from runs to matplotlib's `Figure`. `describe()` states what these runs
show in it. `caption()` explains how to read it.
"""

from __future__ import annotations

from typing import Final

CREATOR: Final = "lab"
"""The creator in the metadata of a picture."""


def is_svg(begin: bytes) -> bool:
    """Whether a file with these first bytes is an SVG drawn by lab."""
    return begin.startswith(b"<?xml") and f"<dc:title>{CREATOR}</dc:title>".encode() in begin
