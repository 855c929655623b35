"""NumPy as programs of 2017 use it: names that later versions removed, and arrays as numbers.

The names are from NumPy's deprecations in 1.20, 1.24 and 1.25, its expired ones in 1.24 and 2.4,
and its guide to migration to 2.0: https://numpy.org/doc/stable/numpy_2_0_migration_guide.html

`"%f" % session.run(weight)` printed a weight of shape [1, 1]. NumPy 2.4 refuses it: "only
0-dimensional arrays can be converted to Python scalars".
"""

from __future__ import annotations

import builtins
from functools import partial
from typing import Any, Final

import numpy as np

_TYPES: Final = ("bool", "complex", "float", "int", "object", "str")
_RENAMED: Final = {
    "Inf": "inf", "Infinity": "inf", "NaN": "nan", "PINF": "inf", "infty": "inf",
    "bool8": "bool_", "cfloat": "complex128", "clongfloat": "clongdouble", "complex_": "complex128",
    "float_": "float64", "int0": "intp", "long": "int_", "longcomplex": "clongdouble",
    "longfloat": "longdouble", "object0": "object_", "singlecomplex": "complex64",
    "string_": "bytes_", "uint0": "uintp", "unicode": "str_", "unicode_": "str_",
    "alltrue": "all", "cumproduct": "cumprod", "in1d": "isin", "issubsctype": "issubdtype",
    "mat": "asmatrix", "product": "prod", "round_": "round", "row_stack": "vstack",
    "sometrue": "any", "trapz": "trapezoid",
}  # fmt: skip
"""The old name to the new one, which takes the same arguments."""


def restore_names() -> None:
    """Add to NumPy the old names that it lacks."""
    names = vars(np)
    for name in _TYPES:
        names.setdefault(name, getattr(builtins, name))
    for old, new in _RENAMED.items():
        if new in names:  # "trapezoid" is in NumPy 2 only, which lacks "trapz"
            names.setdefault(old, names[new])
    names.setdefault("NINF", -np.inf)
    names.setdefault("asfarray", partial(np.asarray, dtype=np.float64))


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
