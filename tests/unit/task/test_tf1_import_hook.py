"""`import tensorflow` in a printed program, on a TensorFlow that is a handful of names."""

from __future__ import annotations

import builtins
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lab.task import tf1
from lab.task.tf1 import input_data
from lab.task.tf1.import_hook import CompatModule, provide

CONTRIB = (
    "TensorFlow 2 has no tf.contrib; lab has its data, framework, layers, learn.datasets, losses, "
    "metrics, rnn, slim, training"
)
SLIM = "neither TensorFlow 2 nor tf-slim has it"
KERAS = "it needs Keras 2; add --framework tensorflow-2.15"
GONE = "TensorFlow 2 removed it"
ESTIMATOR = "TensorFlow 2.15 is the last version with it; add --framework tensorflow-2.15"
LEARN = "TensorFlow 2 has no tf.contrib.learn; use tf.estimator with --framework tensorflow-2.15"
TF = "import tensorflow as tf"
IMPORTED = ("layers", "mnist_model", "parts")
"""The modules of the package that import TensorFlow."""

CELLS = "tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl"

Run = Callable[[str], dict[str, Any]]


class Modern(ModuleType):
    def __init__(self, name: str, **members: object) -> None:
        super().__init__(name)
        self.__dict__.update(members)


@pytest.fixture
def modern(monkeypatch: pytest.MonkeyPatch) -> Iterator[Modern]:
    """Today's TensorFlow, as far as the runner and its parts name it."""
    calls: list[str] = []
    v1 = Modern(
        "tensorflow.compat.v1",
        __version__="2.21.0",
        disable_v2_behavior=lambda: calls.append("disable_v2_behavior"),
        placeholder="placeholder",
        nn=SimpleNamespace(relu="relu", rnn_cell=SimpleNamespace()),
        layers=SimpleNamespace(),
        train=SimpleNamespace(
            Saver="today's Saver", Server="today's Server", get_or_create_global_step="step"
        ),
        image=SimpleNamespace(per_image_standardization="standardized"),
        multiply="multiply",
        summary=SimpleNamespace(FileWriter="FileWriter"),
        keras=Modern("keras", layers=Modern("keras.layers", Dense="Dense")),
        python_io=Modern("tensorflow.compat.v1.python_io", TFRecordWriter="TFRecordWriter"),
        get_seed=lambda op_seed: (11, op_seed),
        zeros_initializer=type("zeros_initializer", (), {}),
        float32="float32",
        calls=calls,
    )
    compat = Modern("tensorflow.compat", v1=v1)
    python = Modern("tensorflow.python", ops="the ops of today")
    top = Modern("tensorflow", compat=compat, python=python, contrib_of_today="nothing")
    layers = Modern("tf_slim.layers", conv2d="conv2d", _private="nothing")
    slim = Modern("tf_slim", layers=layers, arg_scope="arg_scope")
    adapted = Modern(f"{tf1.__name__}.slim")
    # This module is in TensorFlow 2.21; the real one needs the real TensorFlow.
    cells = Modern(CELLS, GRUCell="GRUCell")
    for module in (top, compat, v1, python, slim, layers, adapted, cells):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    # Another test of this process may have imported the real one.
    monkeypatch.setitem(sys.modules, "tensorflow.python.layers.layers", None)
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    forget()
    yield v1
    forget()


def forget() -> None:
    """Remove the modules that were imported with the TensorFlow of a test."""
    for name in IMPORTED:
        sys.modules.pop(f"{tf1.__name__}.{name}", None)
        vars(tf1).pop(name, None)


def tensorflow_1(train: Mapping[str, Any]) -> CompatModule:
    """The API, made from the TensorFlow of a test, which must be there before the import."""
    from lab.task.tf1.parts import tensorflow_1  # noqa: PLC0415

    return tensorflow_1(train)


@pytest.fixture
def run(modern: Modern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    folder = tmp_path / "printed"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    provide(folder, tensorflow_1({"Saver": "the lab's Saver"}))

    def run(text: str) -> dict[str, Any]:
        program = folder / "program.py"
        program.write_text(text)
        return runpy.run_path(str(program), run_name="__main__")

    yield run
    for name in [name for name in sys.modules if name.startswith("beside")]:
        del sys.modules[name]


def test_the_old_api_with_todays_behind_it(run: Run, modern: Modern) -> None:
    found = run(
        "import tensorflow as tf\n"
        "version, x = tf.__version__, tf.placeholder\n"
        "relu = tf.nn.relu\n"
        "saver, server = tf.train.Saver, tf.train.Server\n"
    )
    assert (found["version"], found["x"], found["relu"]) == ("2.21.0", "placeholder", "relu")
    assert (found["saver"], found["server"]) == ("the lab's Saver", "today's Server")
    assert modern.calls == ["disable_v2_behavior"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from tensorflow.contrib.layers import conv2d", "conv2d"),
        ("from tensorflow.contrib.layers.python.layers import conv2d", "conv2d"),
        ("from tensorflow.contrib.layers import *", "conv2d"),
        ("import tensorflow.contrib.slim as slim", "slim.arg_scope"),
        ("from tensorflow.contrib.rnn import GRUCell", "GRUCell"),
        (TF, "tf.contrib.framework.get_or_create_global_step"),
        (
            "from tensorflow.examples.tutorials.mnist import mnist",
            "mnist.NUM_CLASSES mnist.IMAGE_SIZE mnist.inference mnist.training",
        ),
        ("from tensorflow.contrib import training", "training.GreedyLoadBalancingStrategy"),
        (TF, "tf.mul tf.train.SummaryWriter tf.image.per_image_whitening"),
        ("from tensorflow.contrib.learn.datasets import load_dataset", "load_dataset"),
        ("from tensorflow.python_io import TFRecordWriter", "TFRecordWriter"),
        ("from tensorflow.keras.layers import Dense", "Dense"),
        ("from tensorflow.python import ops", "ops"),
        # The digits can be imported in every way.
        (
            "from tensorflow.examples.tutorials.mnist import input_data",
            "input_data.read_data_sets input_data.load_mnist",
        ),
        (
            "from tensorflow.contrib.learn.python.learn.datasets import mnist",
            "mnist.read_data_sets",
        ),
        ("from tensorflow.contrib import learn", "learn.datasets.mnist.read_data_sets"),
    ],
)
def test_existing_names_can_be_imported(run: Run, line: str, names: str) -> None:
    found = run(f"{line}\nfound = {', '.join(names.split())},")["found"]
    assert len(found) == len(names.split())
    if names.endswith("read_data_sets"):
        assert found[-1] is input_data.read_data_sets


@pytest.mark.parametrize(
    ("line", "name", "why"),
    [
        ("import tensorflow.contrib.eager", "contrib.eager", CONTRIB),
        ("from tensorflow.contrib import seq2seq", "contrib.seq2seq", CONTRIB),
        (
            "from tensorflow.contrib.layers import conv2d, embed_sequence",
            "contrib.layers.embed_sequence",
            SLIM,
        ),
        ("import tensorflow.python.gone", "python.gone", GONE),
        ("from tensorflow.python.gone.inner import x", "python.gone", GONE),
        ("from tensorflow import no_such", "no_such", GONE),
        ("from tensorflow.layers import dense", "layers.dense", KERAS),
        (TF, "contrib.seq2seq", CONTRIB),
        (TF, "contrib.learn.Estimator", LEARN),
        (TF, "layers.dense", KERAS),
        (TF, "nn.rnn_cell.BasicLSTMCell", KERAS),
        (TF, "estimator.Estimator", ESTIMATOR),
        (TF, "sub", GONE),  # this TensorFlow has no `subtract`
    ],
)
def test_missing_names_are_reported_on_import_and_on_use(
    run: Run, line: str, name: str, why: str
) -> None:
    used = line == TF
    with pytest.raises(AttributeError if used else ImportError) as caught:
        run(f"{line}\ntf.{name}" if used else line)
    assert str(caught.value) == f"tf.{name} is not available: {why}"
    # Of an import the inner frames are not shown: the last lines are enough.
    assert used or caught.value.__suppress_context__


def test_the_last_version_with_estimator_and_an_older_keras(modern: Modern) -> None:
    vars(modern).update(__version__="2.15.1", estimator=SimpleNamespace(Estimator="it"))
    modern.layers.dense, modern.nn.rnn_cell.BasicLSTMCell = "dense", "cell"
    tf = tensorflow_1({})
    assert tf.estimator.Estimator == "it"
    assert (tf.layers.dense, tf.nn.rnn_cell.BasicLSTMCell) == ("dense", "cell")
    # It gets no hint to use itself.
    for found in (tf.estimator, tf.layers, tf.contrib.learn):
        with pytest.raises(AttributeError) as caught:
            _ = found.no_such
        assert "--tensorflow" not in str(caught.value)


def test_without_tf_slim(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tf_slim.layers")
    monkeypatch.setitem(sys.modules, "tf_slim", None)
    with pytest.raises(ImportError) as caught:
        run("from tensorflow.contrib.layers import conv2d")
    expected = "tf.contrib.layers.conv2d is not available: the package tf-slim is not installed"
    assert str(caught.value) == expected


def test_only_the_program_and_its_modules_see_it(run: Run, tmp_path: Path, modern: Modern) -> None:
    text = "import tensorflow as tf\nhas_contrib = hasattr(tf, 'contrib')\n"
    printed = tmp_path / "printed"
    (printed / "beside.py").write_text(text)
    (printed / "beside_package").mkdir()
    (printed / "beside_package" / "__init__.py").write_text("from .inner import has_contrib\n")
    (printed / "beside_package" / "inner.py").write_text(text)
    environment = printed / ".venv" / "lib" / "site-packages"
    environment.mkdir(parents=True)
    (environment / "beside_installed.py").write_text(text)
    (tmp_path / "beside_elsewhere.py").write_text(text)
    found = run(
        "import sys\n"
        f"sys.path += [{str(environment)!r}, {str(tmp_path)!r}]\n"
        "import beside, beside_package, beside_installed, beside_elsewhere\n"
        "seen = [each.has_contrib for each in "
        "(beside, beside_package, beside_installed, beside_elsewhere)]\n"
        "theirs = beside_elsewhere.tf\n"
        "del sys.path[-2:]\n"
    )
    assert found["seen"] == [True, True, False, False]
    assert found["theirs"] is sys.modules["tensorflow"]
    assert modern is not found["theirs"]
