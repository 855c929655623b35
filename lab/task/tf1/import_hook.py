"""`import tensorflow` in a printed program: TensorFlow 1's API, on the TensorFlow that is here.

Only the program and the modules beside it see it. TensorFlow itself, and what it imports, goes on
with its own.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_TODAY: Final = ("tensorflow.python", "tensorflow.core", "tensorflow.compat")
"""What there was and is under the same name."""

_CONTRIB: Final = "TensorFlow 2 has no tf.contrib; of it there are layers, learn.datasets, training"
_KERAS: Final = "it needs Keras 2, and here is Keras 3; use tf.get_variable and tf.nn"
_ESTIMATOR: Final = "TensorFlow 2.15 was the last that had it"
_INSTALLED: Final = {"site-packages", "dist-packages"}


class CompatModule(ModuleType):
    """A module of TensorFlow 1: what it is given, and behind it what TensorFlow still has."""

    def __init__(
        self, name: str, members: Mapping[str, Any], behind: ModuleType | None = None, why: str = ""
    ) -> None:
        super().__init__(name)
        self.__dict__.update(members)
        self.__dict__["_behind"] = behind
        self.__dict__["_why"] = why or "TensorFlow 2 has it no longer"

    def __getattr__(self, name: str) -> Any:
        behind = self.__dict__["_behind"]
        if behind is not None and hasattr(behind, name):
            return getattr(behind, name)
        raise AttributeError(_missing(self.__name__, name, self.__dict__["_why"]))


def _missing(module: str, name: str, why: str) -> str:
    short = module.replace("tensorflow", "tf", 1)
    return f"{short}.{name} is not available: {why}"


def tensorflow_1(train: Mapping[str, Any]) -> CompatModule:
    """TensorFlow 1's API, with graphs and sessions; switches this process to its behaviour.

    Args:
        train: What `tf.train` has in the place of TensorFlow's own.
    """
    import tensorflow.compat.v1 as tf  # noqa: PLC0415  (3 s, and only where a program runs)

    from lab.task.tf1 import contrib, input_data  # noqa: PLC0415

    tf.disable_v2_behavior()
    data_sets = {"mnist": vars_of(input_data), "load_dataset": input_data.load_dataset}
    strategies = ("GreedyLoadBalancingStrategy", "RandomStrategy", "byte_size_load_fn")
    layers = ("l1_regularizer", "l2_regularizer", "xavier_initializer", "fully_connected")
    contribs = {
        "layers": {name: getattr(contrib, name) for name in layers},
        "learn": {
            "datasets": data_sets,
            # Where it truly lay, as many a program has it.
            "python": {"learn": {"datasets": data_sets}},
        },
        "training": {name: getattr(contrib, name) for name in strategies},
    }
    examples = {"tutorials": {"mnist": {"input_data": vars_of(input_data)}}}
    return CompatModule(
        "tensorflow",
        {
            "train": CompatModule("tensorflow.train", train, behind=tf.train),
            "contrib": _tree("tensorflow.contrib", contribs, _CONTRIB),
            "examples": _tree("tensorflow.examples", examples),
            **_of_keras(tf),
        },
        behind=tf,
    )


def _tree(name: str, members: Mapping[str, Any], why: str = "") -> CompatModule:
    """A module of modules: each mapping among its members is one of them."""
    return CompatModule(
        name,
        {
            each: _tree(f"{name}.{each}", value, why) if isinstance(value, dict) else value
            for each, value in members.items()
        },
        why=why,
    )


def _of_keras(tf: ModuleType) -> dict[str, CompatModule]:
    """What TensorFlow still names, and has only with an older Keras."""
    cells = CompatModule("tensorflow.nn.rnn_cell", {}, behind=tf.nn.rnn_cell, why=_KERAS)
    estimator = getattr(tf, "estimator", None)
    return {
        "layers": CompatModule("tensorflow.layers", {}, behind=tf.layers, why=_KERAS),
        "nn": CompatModule("tensorflow.nn", {"rnn_cell": cells}, behind=tf.nn),
        "estimator": CompatModule("tensorflow.estimator", {}, behind=estimator, why=_ESTIMATOR),
    }


def vars_of(module: ModuleType) -> dict[str, Any]:
    """What a module offers: the names without an underscore that it defines itself."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


def provide(folder: Path, top: CompatModule) -> None:
    """Give this API to the program and the modules in a directory, from now on."""
    modern = builtins.__import__

    def import_old(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  (as Python calls it)
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        first, _, rest = name.partition(".")
        if level or first != "tensorflow" or not _lies_in(folder, globals):
            return modern(name, globals, locals, fromlist or (), level)
        if any(name == each or name.startswith(f"{each}.") for each in _TODAY):
            found = modern(name, globals, locals, fromlist or (), level)
            return found if fromlist else top
        module: Any = top
        try:
            for part in filter(None, rest.split(".")):
                module = getattr(module, part)
            for each in fromlist or ():
                if each != "*":
                    getattr(module, each)
        except AttributeError as error:
            raise ImportError(str(error), name=name) from None
        return module if fromlist else top

    builtins.__import__ = import_old


def _lies_in(folder: Path, globals_: Mapping[str, object] | None) -> bool:
    file = (globals_ or {}).get("__file__")
    if not isinstance(file, str):
        return False
    path = Path(file).resolve()
    # A virtual environment may lie beside the program; what is installed there is no part of it.
    return path.is_relative_to(folder) and _INSTALLED.isdisjoint(path.relative_to(folder).parts)
