"""Convert fetched arrays of one element to numbers, as NumPy 1 did.

`"%f" % session.run(weight)` printed a weight of shape [1, 1]. NumPy 2.4 refuses it: "only
0-dimensional arrays can be converted to Python scalars".
"""

from __future__ import annotations

from typing import Any

import numpy as np


class OneElement(np.ndarray):
    """An array that is a number for `float`, `int` and `%` if it has one element."""

    def __float__(self) -> float:
        """Return its element."""
        return float(self.item())

    def __int__(self) -> int:
        """Return its element without its fraction."""
        return int(self.item())


def one_element(value: Any) -> Any:
    """Return an array of one number as one that converts; anything else unchanged."""
    # The exact type: a record array or a masked array keeps its own class.
    if type(value) is np.ndarray and value.ndim and value.size == 1 and value.dtype.kind in "biuf":
        return value.view(OneElement)
    return value


def convert_fetched() -> None:
    """Make the sessions of this process return `OneElement` arrays."""
    from tensorflow.python.client.session import _FetchHandler  # noqa: PLC0415

    build = _FetchHandler.build_results

    def build_converted(self: Any, session: Any, values: Any) -> Any:
        return build(self, session, [one_element(value) for value in values])

    _FetchHandler.build_results = build_converted
