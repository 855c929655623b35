"""The mean over runs, with its 95% confidence interval by Student's t."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CONFIDENCE: Final = 0.95


def mean_with_ci(values: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Compute the mean over runs, and half the width of its 95% confidence interval.

    Args:
        values: One value a run, shape [runs], or several, shape [runs, places].

    Returns:
        Both, shape [] or [places]; with a single run the interval is NaN.
    """
    table = np.asarray(values, np.float64)
    runs = len(table)
    mean = np.asarray(table.mean(axis=0))
    if runs < 2:  # noqa: PLR2004
        return mean, np.full(mean.shape, np.nan)
    # Imported here: a report of one run does not need SciPy.
    from scipy.special import stdtrit  # noqa: PLC0415

    t = float(stdtrit(runs - 1, (1 + CONFIDENCE) / 2))
    return mean, np.asarray(t * (table.std(axis=0, ddof=1) / math.sqrt(runs)))
