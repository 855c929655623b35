"""Which programs need the older TensorFlow version, and what is said about it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lab.programs.needs import needed_tf1

STRATEGY = "strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()\n"
FIT = "with strategy.scope(): model = make()\nmodel.fit(data)\n"
KERAS = "own.py calls Keras's fit in a strategy for several tasks"


def notice(
    source: str,
    *,
    module: str = "",
    tasks: int = 2,
    runtime: str = "",
    chosen: bool = False,
    tensorflow_1: bool = False,
) -> str | None:
    """The notice about a program and a module that it imports; None if it needs no version."""
    sources = {"own.py": source, "module.py": module}
    trees = {Path(name): ast.parse(text) for name, text in sources.items()}
    need = needed_tf1(trees, tasks, tensorflow_1=tensorflow_1)
    return need and need.notice("own.py", runtime or "tensorflow-2.15", chosen=chosen)


@pytest.mark.parametrize(
    ("source", "module", "what"),
    [
        ("import horovod.tensorflow as hvd", "", "own.py imports Horovod"),
        ("tf.estimator.train_and_evaluate(a, b, c)", "", "own.py uses Estimator"),
        (STRATEGY + FIT, "", KERAS),
        (FIT, STRATEGY, KERAS),
        ("from a import ParameterServerStrategy as P\nmodel.fit_generator(x)", "", KERAS),
        (
            "import keras\nmodel.predict_generator(x)",
            "",
            "own.py uses predict_generator of Keras 2",
        ),
        ("o = tf.keras.optimizers.SGD(lr=0.1)", "", "own.py uses SGD(lr=) of Keras 2"),
        (
            "from keras import backend as K\nK.function([a], [b])",
            "",
            "own.py uses K.function of Keras 2",
        ),
        (
            "",
            "from tensorflow.keras.optimizers.legacy import Adam",
            "own.py uses optimizers.legacy of Keras 2",
        ),
    ],
)
def test_the_version_is_chosen_and_said(source: str, module: str, what: str) -> None:
    assert notice(source, module=module) == f"{what}: it runs with TensorFlow 2.15"
    assert notice(source, module=module, chosen=True) == ""
    other = notice(source, module=module, runtime="tensorflow", chosen=True)
    assert other.startswith(f"{what}, which ")
    assert "TensorFlow 2.21" in other
    assert other.endswith("; use --framework tensorflow-2.15")


@pytest.mark.parametrize(
    "source",
    [
        "import keras\nmodel.fit(data)",
        STRATEGY + "strategy.run(step)",
        "strategy = tf.distribute.MirroredStrategy()\nmodel.fit(data)",
        "import torch, keras\ntorch.optim.SGD(p, lr=0.1)",
        "import tensorflow as tf\nown.SGD(p, lr=0.1)",
        "tf.keras.optimizers.SGD(learning_rate=0.1)",
        "try:\n    from keras.optimizers.legacy import Adam\nexcept ImportError:\n    pass",
    ],
)
def test_other_programs_run_with_the_newest_version(source: str) -> None:
    assert notice(source) is None


def test_one_task_alone_fits_with_the_newest_version() -> None:
    assert notice(STRATEGY + FIT, tasks=1) is None


def test_a_program_for_tensorflow_1_fits_with_keras_2() -> None:
    source = "import tensorflow as tf\nm = tf.keras.Sequential()\n"
    what = "own.py calls Keras's fit in a program for TensorFlow 1: it runs with TensorFlow 2.15"
    assert notice(f"{source}m.fit(x, y)", tasks=1, tensorflow_1=True) == what
    assert notice(f"{source}m.fit(x, y)", tasks=1) is None
    assert notice(source, tasks=1, tensorflow_1=True) is None  # its layers work in both
    assert notice("import tensorflow as tf\nscaler.fit(x)", tasks=1, tensorflow_1=True) is None
