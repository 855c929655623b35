"""Compare two trainings by the difference of their parameters.

In float32 the same sum in another order differs in the last of seven digits. Newer GPUs by default
round the factors of a product to three digits. This module turns that off.
"""

import numpy as np
import tensorflow.compat.v1 as tf

tf.config.experimental.enable_tensor_float_32_execution(False)


def apart(values, others):
    """Return the largest difference between two lists of arrays."""
    return max(np.abs(one - other).max() for one, other in zip(values, others, strict=True))
