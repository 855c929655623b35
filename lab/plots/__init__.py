"""The figures of one run or of several runs. Each module draws one figure from `data.Trace`.

`draw()` is a pure function from runs to matplotlib's `Figure`. `registry.py` has the titles and the
captions.
"""

from __future__ import annotations

from typing import Final

CREATOR: Final = "lab"
"""The creator in the metadata of a picture."""
