"""Which programs need the older TensorFlow version, and what is said about it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lab.program.tensorflow_use import needed_tf1

STRATEGY = "strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()\n"
FIT = "with strategy.scope(): model = make()\nmodel.fit(data)\n"
KERAS = "own.py calls Keras's fit in a strategy for several tasks"


def notice(
    source: str, *, module: str = "", tasks: int = 2, runtime: str = "", chosen: bool = False
) -> str | None:
    """The notice about a program and a module that it imports; None if it needs no version."""
    sources = {"own.py": source, "module.py": module}
    need = needed_tf1({Path(name): ast.parse(text) for name, text in sources.items()}, tasks)
    return need and need.notice("own.py", runtime or "tensorflow-2.15", chosen=chosen)


@pytest.mark.parametrize(
    ("source", "module", "what"),
    [
        ("import horovod.tensorflow as hvd", "", "own.py imports Horovod"),
        ("tf.estimator.train_and_evaluate(a, b, c)", "", "own.py uses Estimator"),
        (STRATEGY + FIT, "", KERAS),
        (FIT, STRATEGY, KERAS),
        ("from a import ParameterServerStrategy as P\nmodel.fit_generator(x)", "", KERAS),
    ],
)
def test_the_version_is_chosen_and_said(source: str, module: str, what: str) -> None:
    assert notice(source, module=module) == f"{what}: it runs with TensorFlow 2.15"
    assert notice(source, module=module, chosen=True) == ""
    other = notice(source, module=module, runtime="tensorflow", chosen=True)
    assert other is not None
    assert other.startswith(f"{what}, which ")
    assert "TensorFlow 2.21" in other
    assert other.endswith("; use --framework tensorflow-2.15")


@pytest.mark.parametrize(
    "source",
    [
        "import keras\nmodel.fit(data)",
        STRATEGY + "strategy.run(step)",
        "strategy = tf.distribute.MirroredStrategy()\nmodel.fit(data)",
    ],
)
def test_other_programs_run_with_the_newest_version(source: str) -> None:
    assert notice(source) is None


def test_one_task_alone_fits_with_the_newest_version() -> None:
    assert notice(STRATEGY + FIT, tasks=1) is None
