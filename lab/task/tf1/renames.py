"""Names and orders of arguments of TensorFlow 0.8 to 0.12, which 1.0 changed.

A call in the old order is recognized where the new order gives it no meaning.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import tensorflow.compat.v1 as tf

TOP: Final = {
    "histogram_summary": "tf.summary.histogram",
    "inv": "tf.reciprocal",
    "merge_all_summaries": "tf.summary.merge_all",
    "merge_summary": "tf.summary.merge",
    "mul": "tf.multiply",
    "neg": "tf.negative",
    "pack": "tf.stack",
    "scalar_summary": "tf.summary.scalar",
    "select": "tf.where",
    "sub": "tf.subtract",
    "unpack": "tf.unstack",
}
"""Members of `tf`: the old name to the new one, which takes the same arguments."""

NN: Final = {
    "bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
    "deconv2d": "tf.nn.conv2d_transpose",
    "rnn": "tf.nn.static_rnn",
    "state_saving_rnn": "tf.nn.static_state_saving_rnn",
}
TRAIN: Final = {"SummaryWriter": "tf.summary.FileWriter"}
IMAGE: Final = {"per_image_whitening": "tf.image.per_image_standardization"}


_ARGUMENTS: Final = {
    "adj_x": "adjoint_a",
    "adj_y": "adjoint_b",
    "concat_dim": "axis",
    "max_images": "max_outputs",
    "num_split": "num_or_size_splits",
    "split_dim": "axis",
    "tag": "name",
    "targets": "labels",
    "x": "a",
    "y": "b",
}


def _reordered(name: str, old: Sequence[str], new: Sequence[str] = ()) -> Callable[..., Any]:
    """Return a function that accepts the arguments of 0.x or of 1.x.

    Args:
        name: The name of the function in `tf`.
        old: The order of the arguments in 0.x.
        new: Their order in 1.x, if 1.x accepts arguments without names. In 0.x the first one is
            then the number of an axis.
    """

    def call(*values: Any, **named: Any) -> Any:
        is_old = not new or (bool(values) and isinstance(values[0], int))
        named |= dict(zip(old if is_old else new, values, strict=False))
        arguments = {_ARGUMENTS.get(argument, argument): value for argument, value in named.items()}
        return operator.attrgetter(name)(tf)(**arguments)

    return call


TOP_FUNCTIONS: Final = {
    "batch_matmul": _reordered("matmul", ("x", "y", "adj_x", "adj_y", "name")),
    "concat": _reordered("concat", ("concat_dim", "values", "name"), ("values", "axis", "name")),
    "image_summary": _reordered("summary.image", ("tag", "tensor", "max_images", "collections")),
    "split": _reordered(
        "split",
        ("split_dim", "num_split", "value", "name"),
        ("value", "num_or_size_splits", "axis", "num", "name"),
    ),
}
NN_FUNCTIONS: Final = {
    function: _reordered(f"nn.{function}", order)
    for function, order in {
        "sigmoid_cross_entropy_with_logits": ("logits", "targets", "name"),
        "softmax_cross_entropy_with_logits": ("logits", "labels", "dim", "name"),
        "sparse_softmax_cross_entropy_with_logits": ("logits", "labels", "name"),
    }.items()
}
"""1.x refuses arguments without a name, so that these are in the order of 0.x."""
