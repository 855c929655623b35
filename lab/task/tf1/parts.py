"""The modules of TensorFlow 1, and where their names are today.

TensorFlow 1.0 has changed names and orders of arguments of 0.8 to 0.12. A call in the old order is
recognized where the new order gives it no meaning.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow.compat.v1 as tf

from lab.task.tf1 import input_data, mnist_model
from lab.task.tf1.import_hook import REMOVED, CompatModule, Part, vars_of

_HERITAGE: Final = "2.15"
"""The last version with Keras 2 and Estimator, which `lab run --framework` accepts."""

_NO_CONTRIB: Final = (
    "TensorFlow 2 has no tf.contrib; lab has its data, framework, layers, learn.datasets, losses, "
    "metrics, rnn, slim, training"
)
_NOT_IN_SLIM: Final = "neither TensorFlow 2 nor tf-slim has it"
_RNN_CELLS: Final = "tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl"
_VARIABLES: Final = "tf_slim.ops.variables"
_ARG_SCOPE: Final = "tf_slim.ops.arg_scope"

_FRAMEWORK: Final = {name: f"tf.{name}" for name in ("argsort", "is_tensor", "nest", "sort")}


def tensorflow_1(train: Mapping[str, Any]) -> CompatModule:
    """Return TensorFlow 1's API, and switch this process to graphs and sessions.

    Args:
        train: Members of `tf.train` that replace TensorFlow's own.
    """
    tf.disable_v2_behavior()
    return CompatModule("tensorflow", _tensorflow(train))


def _tensorflow(train: Mapping[str, Any]) -> Part:
    """Return the parts of `tf`."""
    # A program that already runs with the last version gets no hint to use it.
    has_old = tf.__version__.startswith(f"{_HERITAGE}.")
    hint = "" if has_old else f"; add --framework tensorflow-{_HERITAGE}"
    keras = f"it needs Keras 2{hint}"
    estimator = f"TensorFlow {_HERITAGE} is the last version with it{hint}"
    rnn_cells = ("tf.nn.rnn_cell", _RNN_CELLS)
    return Part(
        {
            "contrib": _contrib(rnn_cells, has_old),
            "estimator": Part(sources=("tf.estimator",), why=REMOVED if has_old else estimator),
            "examples": _examples(),
            "image": Part(renamed=IMAGE, sources=("tf.image",)),
            "layers": Part(sources=("tf.layers", "lab.task.tf1.layers"), why=keras),
            "nn": Part(
                {"rnn_cell": Part(sources=rnn_cells, why=keras), **NN_FUNCTIONS},
                NN,
                ("tf.nn",),
            ),
            "train": Part(train, TRAIN, ("tf.train",)),
            **TOP_FUNCTIONS,
        },
        TOP,
        ("tf",),
    )


def _contrib(rnn_cells: tuple[str, ...], has_old: bool) -> Part:
    data_sets = Part({"mnist": Part(vars_of(input_data)), "load_dataset": input_data.load_dataset})
    estimators = "use tf.estimator" + (
        "" if has_old else f" with --framework tensorflow-{_HERITAGE}"
    )
    slim_layers = Part(sources=("tf_slim.layers",), why=_NOT_IN_SLIM)
    slim = Part(
        {
            name: Part(sources=(f"tf_slim.{name}",), why=_NOT_IN_SLIM)
            for name in ("learning", "losses", "metrics", "nets")
        },
        sources=("tf_slim",),
        why=_NOT_IN_SLIM,
    )
    operations = Part(sources=(_ARG_SCOPE, _VARIABLES, "tf_slim.ops"), why=_NOT_IN_SLIM)
    return Part(
        {
            "data": Part(sources=("tf.data", "tf.data.experimental")),
            "framework": Part(
                {"python": Part({"ops": operations})},
                _FRAMEWORK,
                ("tf.train", _ARG_SCOPE, _VARIABLES),
                _NOT_IN_SLIM,
            ),
            "layers": slim_layers._replace(members={"python": Part({"layers": slim_layers})}),
            "learn": Part(
                # The full path in TensorFlow 1, which many programs use, is the second one.
                {
                    "datasets": data_sets,
                    "python": Part({"learn": Part({"datasets": data_sets})}),
                },
                why=f"TensorFlow 2 has no tf.contrib.learn; {estimators}",
            ),
            "losses": slim.members["losses"],
            "metrics": slim.members["metrics"],
            "rnn": Part(sources=(*rnn_cells, "tf.nn")),
            "slim": slim._replace(members={**slim.members, "python": Part({"slim": slim})}),
            "training": Part(
                _TRAINING,
                sources=("tf_slim.training.training", "tf_slim.training.evaluation"),
                why=_NOT_IN_SLIM,
            ),
        },
        why=_NO_CONTRIB,
    )


def _examples() -> Part:
    modules = {"input_data": Part(vars_of(input_data)), "mnist": Part(vars_of(mnist_model))}
    return Part({"tutorials": Part({"mnist": Part(modules)})})


# ---- names and orders of arguments of TensorFlow 0.8 to 0.12

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


# ---- the parts of `tf.contrib.training` that tf-slim lacks, as in TensorFlow 1.4


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


_TRAINING: Final = {
    each.__name__: each for each in (byte_size_load_fn, GreedyLoadBalancingStrategy)
}
