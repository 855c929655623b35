"""The figures of a run, and of several: each module draws one, from what `trace.py` describes.

A figure is a pure function from runs to matplotlib's `Figure`; beside it stand a sentence that says
what is to be seen in these runs, and one that says how to read such a figure.
"""

from __future__ import annotations
