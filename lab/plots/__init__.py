"""The figures of a run, and of several: each module draws one, from what `trace.py` describes.

A figure is a pure function from runs to matplotlib's `Figure`; beside it stand a sentence that says
what is to be seen in these runs, and one that says how to read such a figure.
"""

from __future__ import annotations

from typing import Final

CREATOR: Final = "lab"
"""Who drew a picture, as its metadata say."""


def is_svg(begin: bytes) -> bool:
    """Whether a file that begins so is an SVG that lab drew."""
    return begin.startswith(b"<?xml") and f"<dc:title>{CREATOR}</dc:title>".encode() in begin
