"""`tf.layers`, which TensorFlow exports only beside Keras 2 but still has.

Its `batch_normalization` is Keras 2's, so that of tf-slim replaces it.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow.compat.v1 as tf
import tf_slim
from tensorflow.python.layers.layers import *  # noqa: F403

from lab.task.tf1 import slim as _slim  # noqa: F401  (adapts tf-slim)

_PARAMETERS: Final = ("beta", "gamma", "moving_mean", "moving_variance")


def batch_normalization(  # noqa: PLR0917  (TensorFlow 1's order of arguments)
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    *,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
    fused: bool | None = None,
    **others: Any,
) -> Any:
    """Normalize the last axis, or axis 1 of images; the updates are in `tf.GraphKeys.UPDATE_OPS`.

    Initializers and regularizers need their names: `beta_initializer=…`.

    Raises:
        NotImplementedError: The axis is another one, or an argument is for renorm or a constraint.
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    channels_first = rank == 4 and axis in {1, -3}  # noqa: PLR2004
    others.pop("renorm_momentum", None)
    initializers = {name: others.pop(f"{name}_initializer", None) for name in _PARAMETERS}
    regularizers = {name: others.pop(f"{name}_regularizer", None) for name in ("beta", "gamma")}
    if any(others.values()) or not (channels_first or axis in {-1, rank - 1}):
        raise NotImplementedError(
            "tf.layers.batch_normalization has no renorm, constraint or other axis here; "
            "add --framework tensorflow-2.15"
        )
    with tf.variable_scope(name, "batch_normalization", [inputs], reuse=reuse) as scope:
        return tf_slim.batch_norm(
            inputs,
            decay=momentum,
            center=center,
            scale=scale,
            epsilon=epsilon,
            param_initializers={name: value for name, value in initializers.items() if value},
            param_regularizers=regularizers,
            is_training=training,
            trainable=trainable,
            fused=fused,
            data_format="NCHW" if channels_first else "NHWC",
            scope=scope,
        )
