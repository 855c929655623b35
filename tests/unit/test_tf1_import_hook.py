"""`import tensorflow` in a printed program, on a TensorFlow that is a handful of names."""

from __future__ import annotations

import builtins
import operator
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lab.task import tf1
from lab.task.tf1 import input_data
from lab.task.tf1.import_hook import CompatModule, Part, provide, tensorflow_1, vars_of

CONTRIB = (
    "TensorFlow 2 has no tf.contrib; lab has its data, framework, layers, learn.datasets, losses, "
    "metrics, rnn, slim, training"
)
SLIM = "neither TensorFlow 2 nor tf-slim has it"
KERAS = "it needs Keras 2; add --tensorflow 2.15"
GONE = "TensorFlow 2 removed it"
ESTIMATOR = "TensorFlow 2.15 is the last version with it; add --tensorflow 2.15"
LEARN = "TensorFlow 2 has no tf.contrib.learn; use tf.estimator with --tensorflow 2.15"
IMPORTED = ("contrib", "layers", "mnist_model", "parts", "renames")
"""The modules of the package that import TensorFlow."""

CELLS = "tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl"

Run = Callable[[str], dict[str, Any]]


class Modern(ModuleType):
    """A module of today's TensorFlow."""

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


@pytest.fixture
def run(modern: Modern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a text as the program of a directory; gives back its names."""
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
    "line",
    [
        "from tensorflow.examples.tutorials.mnist import input_data as found",
        "import tensorflow.examples.tutorials.mnist.input_data as found",
        "import tensorflow.examples.tutorials.mnist.input_data; "
        "found = tensorflow.examples.tutorials.mnist.input_data",
        "from tensorflow.contrib.learn.python.learn.datasets import mnist as found",
        "import tensorflow as tf; found = tf.contrib.learn.datasets.mnist",
        "from tensorflow.contrib import learn; found = learn.datasets.mnist",
    ],
)
def test_the_digits_in_every_way_of_importing_them(run: Run, line: str) -> None:
    found = run(line)["found"]
    assert found.read_data_sets is input_data.read_data_sets
    assert found.load_mnist is input_data.load_mnist


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from tensorflow.contrib.layers import conv2d", ("conv2d",)),
        ("from tensorflow.contrib.layers.python.layers import conv2d", ("conv2d",)),
        ("from tensorflow.contrib.layers import *", ("conv2d",)),
        ("import tensorflow.contrib.slim as slim; scope = slim.arg_scope", ("scope",)),
        ("from tensorflow.contrib.rnn import GRUCell", ("GRUCell",)),
        (
            "import tensorflow as tf; step = tf.contrib.framework.get_or_create_global_step",
            ("step",),
        ),
        (
            "from tensorflow.examples.tutorials.mnist import mnist\n"
            "found = mnist.NUM_CLASSES, mnist.IMAGE_SIZE, mnist.inference, mnist.training",
            ("found",),
        ),
        ("from tensorflow.contrib.training import HParams", ("HParams",)),
        (
            "import tensorflow as tf\n"
            "mul, writer, old = tf.mul, tf.train.SummaryWriter, tf.image.per_image_whitening",
            ("mul", "writer", "old"),
        ),
        (
            "from tensorflow.contrib.training import GreedyLoadBalancingStrategy, RandomStrategy\n"
            "import tensorflow as tf; load = tf.contrib.training.byte_size_load_fn",
            ("GreedyLoadBalancingStrategy", "RandomStrategy", "load"),
        ),
        (
            "from tensorflow.contrib.learn.python.learn.datasets.mnist import DataSet\n"
            "from tensorflow.contrib.learn.datasets import load_dataset",
            ("DataSet", "load_dataset"),
        ),
        ("from tensorflow.contrib.training import *", ("RandomStrategy",)),
        ("from tensorflow.python_io import TFRecordWriter", ("TFRecordWriter",)),
        ("from tensorflow.keras.layers import Dense", ("Dense",)),
        ("from tensorflow.python import ops", ("ops",)),
    ],
)
def test_existing_names_can_be_imported(run: Run, line: str, names: tuple[str, ...]) -> None:
    found = run(line)
    for name in names:
        assert found[name]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import tensorflow.contrib.eager", f"tf.contrib.eager is not available: {CONTRIB}"),
        (
            "from tensorflow.contrib import seq2seq",
            f"tf.contrib.seq2seq is not available: {CONTRIB}",
        ),
        (
            "from tensorflow.contrib.layers import conv2d, embed_sequence",
            f"tf.contrib.layers.embed_sequence is not available: {SLIM}",
        ),
        (
            "from tensorflow.contrib.seq2seq import sequence_loss",
            f"tf.contrib.seq2seq is not available: {CONTRIB}",
        ),
        (
            "from tensorflow.contrib.learn import DNNClassifier",
            f"tf.contrib.learn.DNNClassifier is not available: {LEARN}",
        ),
        ("import tensorflow.python.gone", f"tf.python.gone is not available: {GONE}"),
        ("from tensorflow.python.gone.inner import x", f"tf.python.gone is not available: {GONE}"),
        ("from tensorflow import no_such", f"tf.no_such is not available: {GONE}"),
        ("from tensorflow.layers import dense", f"tf.layers.dense is not available: {KERAS}"),
    ],
)
def test_missing_names_are_reported_on_import(run: Run, line: str, message: str) -> None:
    with pytest.raises(ImportError) as caught:
        run(line)
    assert str(caught.value) == message
    # The inner frames are not shown: the last lines are enough.
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("contrib.seq2seq.x", f"tf.contrib.seq2seq is not available: {CONTRIB}"),
        ("contrib.rnn.no_such", f"tf.contrib.rnn.no_such is not available: {GONE}"),
        ("contrib.learn.Estimator", f"tf.contrib.learn.Estimator is not available: {LEARN}"),
        ("layers.dense", f"tf.layers.dense is not available: {KERAS}"),
        (
            "nn.rnn_cell.BasicLSTMCell",
            f"tf.nn.rnn_cell.BasicLSTMCell is not available: {KERAS}",
        ),
        ("nn.no_such", f"tf.nn.no_such is not available: {GONE}"),
        ("estimator.Estimator", f"tf.estimator.Estimator is not available: {ESTIMATOR}"),
        ("sub", f"tf.sub is not available: {GONE}"),  # this TensorFlow has no `subtract`
    ],
)
def test_missing_names_are_reported_on_use(run: Run, name: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        run(f"import tensorflow as tf\ntf.{name}")
    assert str(caught.value) == message


def test_names_of_an_older_keras_exist(run: Run, modern: Modern) -> None:
    modern.layers.dense = "dense"
    modern.nn.rnn_cell.BasicLSTMCell = "cell"
    found = run("import tensorflow as tf\nfound = tf.layers.dense, tf.nn.rnn_cell.BasicLSTMCell\n")
    assert found["found"] == ("dense", "cell")


def test_the_last_version_with_estimator(modern: Modern) -> None:
    vars(modern).update(__version__="2.15.1", estimator=SimpleNamespace(Estimator="it"))
    tf = tensorflow_1({})
    assert tf.estimator.Estimator == "it"
    # It gets no hint to use itself.
    for found in (tf.estimator, tf.layers, tf.contrib.learn):
        with pytest.raises(AttributeError) as caught:
            _ = found.no_such
        assert "--tensorflow" not in str(caught.value)


def test_the_parts_of_contrib_are_those_that_the_error_names(modern: Modern) -> None:
    contrib = tensorflow_1({}).contrib
    named = CONTRIB.partition("its ")[2].split(", ")
    assert named == sorted(named)
    for name in named:
        assert isinstance(operator.attrgetter(name)(contrib), CompatModule)
    parts = [name for name, each in vars(contrib).items() if isinstance(each, CompatModule)]
    assert sorted(parts) == [name.partition(".")[0] for name in named]


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


def test_other_imports_are_as_ever(run: Run) -> None:
    found = run("import os.path, json as j\nfrom os import sep\nname = os.path.__name__\n")
    assert (found["sep"], found["j"].__name__) == ("/", "json")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module'"):
        run("import no_such_module")


def test_names_of_a_module() -> None:
    offered = vars_of(input_data)
    assert {"read_data_sets", "load_mnist", "load_dataset", "DataSet"} <= offered.keys()
    assert offered["VALIDATION_SIZE"] == 5000
    # Neither its own imports nor its private names.
    assert not {"np", "Path", "DATA_DIR", "CLASSES", "_graph_seed"} & offered.keys()


def test_a_name_without_a_module() -> None:
    module = CompatModule("tensorflow.contrib", Part({"there": 1}, why="it went"))
    assert module.there == 1
    with pytest.raises(AttributeError, match=r"^tf\.contrib\.slim is not available: it went$"):
        _ = module.slim
