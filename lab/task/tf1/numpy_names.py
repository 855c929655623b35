"""Names of NumPy that programs of 2017 use, and later versions removed.

They are from NumPy's deprecations in 1.20, 1.24 and 1.25, its expired ones in 1.24 and 2.4, and its
guide to migration to 2.0: https://numpy.org/doc/stable/numpy_2_0_migration_guide.html
"""

from __future__ import annotations

import builtins
from functools import partial
from typing import Final

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


def restore() -> None:
    """Add to NumPy the old names that it lacks."""
    names = vars(np)
    for name in _TYPES:
        names.setdefault(name, getattr(builtins, name))
    for old, new in _RENAMED.items():
        if new in names:  # "trapezoid" is in NumPy 2 only, which lacks "trapz"
            names.setdefault(old, names[new])
    names.setdefault("NINF", -np.inf)
    names.setdefault("asfarray", partial(np.asarray, dtype=np.float64))
