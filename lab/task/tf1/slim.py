"""Adapt tf-slim 1.1.0, which is `tf.contrib.slim` for TensorFlow 2, to later versions of it.

It uses modules of TensorFlow that have lost some names; they are in `tf` under the same names.

The class behind its `batch_norm` is in Keras 2 only. It has a second implementation without that
class. It takes the second one if the argument for the updates is not the graph's own collection,
but, for example, a tuple with its name.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Final

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_scope

_LOST: Final = {
    "framework.ops": ("IndexedSlices", "Tensor"),
    "ops.array_ops": ("stack", "unstack"),
    "ops.control_flow_ops": ("Assert", "case", "cond", "while_loop"),
}

for _module, _names in _LOST.items():
    for _name in _names:
        setattr(import_module(f"tensorflow.python.{_module}"), _name, getattr(tf, _name))
variable_scope.variable = tf.Variable


class _Keys(tf.GraphKeys):  # type: ignore[misc]  # TensorFlow has no types
    UPDATE_OPS = (tf.GraphKeys.UPDATE_OPS,)


# The package's own attribute of this name is not the module.
vars(import_module("tf_slim.layers.layers"))["ops"] = SimpleNamespace(
    **{**vars(ops), "GraphKeys": _Keys}
)
