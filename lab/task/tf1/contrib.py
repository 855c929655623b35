"""The parts of `tf.contrib.training` that tf-slim lacks, with the behaviour of TensorFlow 1.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


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
