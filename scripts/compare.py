"""Is it the same training? How far two sets of parameters are apart.

In float32 the same sum in another order differs in the last of seven digits. So that this is all
that differs, GPUs must not round what they multiply: newer ones keep three digits, unless told.
"""

import numpy as np
import tensorflow.compat.v1 as tf

tf.config.experimental.enable_tensor_float_32_execution(False)


def apart(values, others):
    """Return the largest difference between two lists of arrays."""
    return max(np.abs(one - other).max() for one, other in zip(values, others, strict=True))
