"""Replace `import tensorflow` in a printed program by TensorFlow 1's API.

The API is made from the installed TensorFlow. Only the program and the modules in its directory
get it. TensorFlow itself, and its dependencies, keep the normal import.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_UNCHANGED: Final = ("tensorflow.python", "tensorflow.core", "tensorflow.compat")
"""Modules that have the same name in TensorFlow 1 and 2."""

_CONTRIB: Final = (
    "TensorFlow 2 has no tf.contrib; lab provides its layers, learn.datasets, training"
)
_KERAS: Final = "it needs Keras 2, but Keras 3 is installed; use tf.get_variable and tf.nn"
_ESTIMATOR: Final = "TensorFlow 2.15 is the last version with it"
_INSTALLED: Final = {"site-packages", "dist-packages"}


class CompatModule(ModuleType):
    """A module of TensorFlow 1: its own members, then those of an installed module."""

    def __init__(
        self,
        name: str,
        members: Mapping[str, Any],
        fallback: ModuleType | None = None,
        why: str = "",
    ) -> None:
        super().__init__(name)
        self.__dict__.update(members)
        self.__dict__["_fallback"] = fallback
        self.__dict__["_why"] = why or "TensorFlow 2 removed it"

    def __getattr__(self, name: str) -> Any:
        fallback = self.__dict__["_fallback"]
        if fallback is not None and hasattr(fallback, name):
            return getattr(fallback, name)
        raise AttributeError(_missing(self.__name__, name, self.__dict__["_why"]))


def _missing(module: str, name: str, why: str) -> str:
    short = module.replace("tensorflow", "tf", 1)
    return f"{short}.{name} is not available: {why}"


def tensorflow_1(train: Mapping[str, Any]) -> CompatModule:
    """Return TensorFlow 1's API, and switch this process to graphs and sessions.

    Args:
        train: Members of `tf.train` that replace TensorFlow's own.
    """
    import tensorflow.compat.v1 as tf  # noqa: PLC0415  (takes 3 s)

    from lab.task.tf1 import contrib, input_data  # noqa: PLC0415

    tf.disable_v2_behavior()
    data_sets = {"mnist": vars_of(input_data), "load_dataset": input_data.load_dataset}
    strategies = ("GreedyLoadBalancingStrategy", "RandomStrategy", "byte_size_load_fn")
    layers = ("l1_regularizer", "l2_regularizer", "xavier_initializer", "fully_connected")
    contrib_members = {
        "layers": {name: getattr(contrib, name) for name in layers},
        "learn": {
            "datasets": data_sets,
            # The full path in TensorFlow 1, which many programs use.
            "python": {"learn": {"datasets": data_sets}},
        },
        "training": {name: getattr(contrib, name) for name in strategies},
    }
    examples = {"tutorials": {"mnist": {"input_data": vars_of(input_data)}}}
    return CompatModule(
        "tensorflow",
        {
            "train": CompatModule("tensorflow.train", train, fallback=tf.train),
            "contrib": _tree("tensorflow.contrib", contrib_members, _CONTRIB),
            "examples": _tree("tensorflow.examples", examples),
            **_keras_modules(tf),
        },
        fallback=tf,
    )


def _tree(name: str, members: Mapping[str, Any], why: str = "") -> CompatModule:
    """Return a module; each mapping among its members becomes a submodule."""
    return CompatModule(
        name,
        {
            each: _tree(f"{name}.{each}", value, why) if isinstance(value, dict) else value
            for each, value in members.items()
        },
        why=why,
    )


def _keras_modules(tf: ModuleType) -> dict[str, CompatModule]:
    """Return the modules that the installed TensorFlow has only with an older Keras."""
    rnn_cell = CompatModule("tensorflow.nn.rnn_cell", {}, fallback=tf.nn.rnn_cell, why=_KERAS)
    estimator = getattr(tf, "estimator", None)
    return {
        "layers": CompatModule("tensorflow.layers", {}, fallback=tf.layers, why=_KERAS),
        "nn": CompatModule("tensorflow.nn", {"rnn_cell": rnn_cell}, fallback=tf.nn),
        "estimator": CompatModule("tensorflow.estimator", {}, fallback=estimator, why=_ESTIMATOR),
    }


def vars_of(module: ModuleType) -> dict[str, Any]:
    """Return the public names that a module itself defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


def provide(folder: Path, top: CompatModule) -> None:
    """Use this API for later imports of the modules in a directory."""
    original_import = builtins.__import__

    def import_old(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  (Python's name)
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        first, _, rest = name.partition(".")
        if level or first != "tensorflow" or not _is_in(folder, globals):
            return original_import(name, globals, locals, fromlist or (), level)
        if any(name == each or name.startswith(f"{each}.") for each in _UNCHANGED):
            found = original_import(name, globals, locals, fromlist or (), level)
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


def _is_in(folder: Path, globals_: Mapping[str, object] | None) -> bool:
    file = (globals_ or {}).get("__file__")
    if not isinstance(file, str):
        return False
    path = Path(file).resolve()
    # Packages of a virtual environment in the program's directory are not part of the program.
    return path.is_relative_to(folder) and _INSTALLED.isdisjoint(path.relative_to(folder).parts)
