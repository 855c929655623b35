"""The parts of `tf.contrib` that printed programs use, with the behaviour of TensorFlow 1.4.

TensorFlow 2 has no `tf.contrib`. This module has the regularizers, the initializer and the layer
of `tf.contrib.layers`, and the placement strategies of `tf.contrib.training`.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

Regularizer = Callable[[Any], Any]


def _regularizer(scale: float, name: str, penalty: Callable[[Any], Any]) -> Regularizer:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"scale cannot be an integer: {scale}")  # noqa: TRY004  (as in TensorFlow 1)
    if scale < 0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale}")
    if scale == 0:
        return lambda _: None

    def regularizer(weights: Any) -> Any:
        with tf.name_scope(name):
            return tf.multiply(
                tf.convert_to_tensor(scale, weights.dtype.base_dtype), penalty(weights)
            )

    return regularizer


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return a function for scale / 2 times the sum of squares; it returns None if scale is 0."""
    return _regularizer(scale, scope or "l2_regularizer", tf.nn.l2_loss)


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return a function for scale times the sum of absolute values; None if scale is 0."""
    return _regularizer(
        scale, scope or "l1_regularizer", lambda weights: tf.reduce_sum(tf.abs(weights))
    )


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32
) -> Any:
    """Return the initializer of Glorot and Bengio (2010): variance 2 / (inputs + outputs)."""
    kind = "uniform" if uniform else "truncated_normal"
    # TensorFlow warns about an explicit type here, even about the default type.
    given = {} if dtype == tf.float32 else {"dtype": dtype}
    return tf.variance_scaling_initializer(1.0, "fan_avg", kind, seed=seed, **given)


def fully_connected(  # noqa: PLR0917  (TensorFlow 1's order of arguments)
    inputs: Any,
    num_outputs: int,
    activation_fn: Callable[[Any], Any] | None = tf.nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: dict[str, Any] | None = None,
    weights_initializer: Any = None,
    weights_regularizer: Regularizer | None = None,
    biases_initializer: Any = tf.zeros_initializer,
    biases_regularizer: Regularizer | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Add a layer: `weights` [inputs, num_outputs], `biases` unless normalized, an activation."""
    initial = biases_initializer() if isinstance(biases_initializer, type) else biases_initializer
    with tf.variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        common = {"dtype": inputs.dtype.base_dtype, "trainable": trainable}
        weights = tf.get_variable(
            "weights",
            [inputs.shape[-1], num_outputs],
            initializer=weights_initializer or xavier_initializer(),
            regularizer=weights_regularizer,
            collections=variables_collections,
            **common,
        )
        outputs = tf.tensordot(inputs, weights, [[inputs.shape.rank - 1], [0]])
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif initial is not None:
            biases = tf.get_variable(
                "biases",
                [num_outputs],
                initializer=initial,
                regularizer=biases_regularizer,
                collections=variables_collections,
                **common,
            )
            outputs = tf.nn.bias_add(outputs, biases)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        for name in (
            [outputs_collections]
            if isinstance(outputs_collections, str)
            else outputs_collections or ()
        ):
            tf.add_to_collection(name, outputs)
        return outputs


def byte_size_load_fn(op: Any) -> int:
    """Return the size of an operation's only output in bytes; for a variable, of its value.

    Raises:
        ValueError: The number of outputs is not 1, or the shape is unknown.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op.name} must have a single output")
    shape, kind = op.outputs[0].shape, op.outputs[0].dtype
    if kind == tf.resource or not shape.is_fully_defined():
        # The output of a variable may be only a handle; its attributes have shape and type.
        shape, kind = tf.TensorShape(op.get_attr("shape")), tf.as_dtype(op.get_attr("dtype"))
    shape.assert_is_fully_defined()
    return int(shape.num_elements() * kind.size)


class GreedyLoadBalancingStrategy:
    """Assigns each variable to the parameter server with the least load so far."""

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._load_fn = load_fn
        self._loads = np.zeros(num_tasks)

    def __call__(self, op: Any) -> int:
        """Return the task for the next variable."""
        task = int(np.argmin(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy:
    """Assigns each variable to a parameter server by a digest of its name, as TensorFlow 1 does.

    So all workers choose the same server.
    """

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_ps_tasks
        self._seed = seed

    def __call__(self, op: Any) -> int:
        """Return the task for the next variable."""
        key = f"{op.name}_{self._seed}".encode()
        return int(hashlib.md5(key, usedforsecurity=False).hexdigest(), 16) % self._num_tasks
