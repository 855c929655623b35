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


class Old(ModuleType):
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


def tensorflow_1(train: Mapping[str, Any]) -> Old:
    """TensorFlow 1's API, with graphs and sessions; switches this process to its behaviour.

    Args:
        train: What `tf.train` has in the place of TensorFlow's own.
    """
    import tensorflow.compat.v1 as tf  # noqa: PLC0415  (3 s, and only where a program runs)

    from lab.task.heritage import contrib, digits  # noqa: PLC0415

    tf.disable_v2_behavior()
    base = "tensorflow.contrib"
    images = Old(f"{base}.learn.datasets.mnist", vars_of(digits), why=_CONTRIB)
    members = {"mnist": images, "load_dataset": digits.load_dataset}
    datasets = {"datasets": Old(f"{base}.learn.datasets", members, why=_CONTRIB)}
    # Where it truly lay, as many a program has it.
    within = {"learn": Old(f"{base}.learn.python.learn", datasets, why=_CONTRIB)}
    learn = {**datasets, "python": Old(f"{base}.learn.python", within, why=_CONTRIB)}
    layers = {
        name: getattr(contrib, name)
        for name in ("l1_regularizer", "l2_regularizer", "xavier_initializer", "fully_connected")
    }
    training = {
        name: getattr(contrib, name)
        for name in ("GreedyLoadBalancingStrategy", "RandomStrategy", "byte_size_load_fn")
    }
    contribs = {
        "layers": Old(f"{base}.layers", layers, why=_CONTRIB),
        "learn": Old(f"{base}.learn", learn, why=_CONTRIB),
        "training": Old(f"{base}.training", training, why=_CONTRIB),
    }
    tutorials = "tensorflow.examples.tutorials"
    mnist = {"input_data": Old(f"{tutorials}.mnist.input_data", vars_of(digits))}
    examples = {
        "tutorials": Old(tutorials, {"mnist": Old(f"{tutorials}.mnist", mnist)}),
    }
    return Old(
        "tensorflow",
        {
            "train": Old("tensorflow.train", train, behind=tf.train),
            "contrib": Old(base, contribs, why=_CONTRIB),
            "examples": Old("tensorflow.examples", examples),
            **_of_keras(tf),
        },
        behind=tf,
    )


def _of_keras(tf: ModuleType) -> dict[str, Old]:
    """What TensorFlow still names, and has only with an older Keras."""
    cells = Old("tensorflow.nn.rnn_cell", {}, behind=tf.nn.rnn_cell, why=_KERAS)
    estimator = getattr(tf, "estimator", None)
    return {
        "layers": Old("tensorflow.layers", {}, behind=tf.layers, why=_KERAS),
        "nn": Old("tensorflow.nn", {"rnn_cell": cells}, behind=tf.nn),
        "estimator": Old("tensorflow.estimator", {}, behind=estimator, why=_ESTIMATOR),
    }


def vars_of(module: ModuleType) -> dict[str, Any]:
    """What a module offers: the names without an underscore that it defines itself."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


def provide(folder: Path, top: Old) -> None:
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
