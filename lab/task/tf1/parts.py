"""The modules of TensorFlow 1, and where their names are today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tensorflow.compat.v1 as tf

from lab.task.tf1 import contrib, input_data, mnist_model, renames
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
            "image": Part(renamed=renames.IMAGE, sources=("tf.image",)),
            "layers": Part(sources=("tf.layers", "lab.task.tf1.layers"), why=keras),
            "nn": Part(
                {"rnn_cell": Part(sources=rnn_cells, why=keras), **renames.NN_FUNCTIONS},
                renames.NN,
                ("tf.nn",),
            ),
            "train": Part(train, renames.TRAIN, ("tf.train",)),
            **renames.TOP_FUNCTIONS,
        },
        renames.TOP,
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
                vars_of(contrib),
                sources=("tf_slim.training.training", "tf_slim.training.evaluation"),
                why=_NOT_IN_SLIM,
            ),
        },
        why=_NO_CONTRIB,
    )


def _examples() -> Part:
    modules = {"input_data": Part(vars_of(input_data)), "mnist": Part(vars_of(mnist_model))}
    return Part({"tutorials": Part({"mnist": Part(modules)})})
