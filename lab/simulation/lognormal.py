"""Times that vary."""

from __future__ import annotations

import math
import random


def factor(source: random.Random, spread: float) -> float:
    """A factor whose mean is 1 and whose standard deviation is `spread`; log-normal.

    A log-normal variable exp(N(m, s²)) has the mean exp(m + s²/2) and the variance (exp(s²) - 1)
    times the mean's square (N. L. Johnson et al., Continuous Univariate Distributions, chapter 14).
    """
    if not spread:
        return 1.0
    variance = math.log1p(spread**2)
    return math.exp(source.gauss(-variance / 2, math.sqrt(variance)))
