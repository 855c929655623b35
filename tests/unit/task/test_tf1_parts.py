"""What `lab` provides for a program of TensorFlow 1, on a TensorFlow that is a handful of names.

Its numbers on the real one are in tests/e2e/test_tf1_programs.py.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from absl import flags

from lab.protocol.mnist import load_mnist
from lab.task import tf1
from lab.task.flag_completion import restore_flags
from lab.task.tf1 import numpy_1
from lab.task.tf1.input_data import DataSet, dense_to_one_hot, load_dataset, read_data_sets
from lab.task.tf1.known_bugs import missing_file_line
from lab.task.tf1.numpy_1 import one_element

Load = Callable[[str], Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports a module of the package with this TensorFlow, whose functions name themselves."""

    def returns(name: str) -> Any:
        return lambda **named: (name, named)

    v1 = ModuleType("tensorflow.compat.v1")
    vars(v1).update(
        {name: returns(name) for name in ("concat", "matmul", "split")},
        summary=SimpleNamespace(image=returns("summary.image")),
        nn=SimpleNamespace(
            sigmoid_cross_entropy_with_logits=returns("sigmoid"),
            softmax_cross_entropy_with_logits=returns("softmax"),
        ),
        resource=SimpleNamespace(size=1),
    )
    compat, top = ModuleType("tensorflow.compat"), ModuleType("tensorflow")
    vars(compat)["v1"], vars(top)["compat"] = v1, compat
    for module in (top, compat, v1):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    names = ("mnist_model", "parts")

    def forget() -> None:
        for name in names:
            sys.modules.pop(f"{tf1.__name__}.{name}", None)
            vars(tf1).pop(name, None)

    forget()
    yield lambda name: importlib.import_module(f"{tf1.__name__}.{name}")
    forget()


# ---- calls of TensorFlow 0.8 to 0.12, and the calls of 1.x that they become

JOINED = ("concat", {"values": ["x", "y"], "axis": 1})
PARTS = ("split", {"value": "x", "num_or_size_splits": 2, "axis": 1})


MULTIPLIED = ("matmul", {"a": "m", "b": "n", "adjoint_b": True})
SHOWN = ("summary.image", {"name": "t", "tensor": "x", "max_outputs": 5})
CROSSED = {"logits": "l", "labels": "y"}


@pytest.mark.parametrize(
    ("name", "values", "named", "expected"),
    [
        ("concat", (1, ["x", "y"]), {}, JOINED),
        ("concat", (["x", "y"], 1), {}, JOINED),
        ("split", (1, 2, "x"), {}, PARTS),
        ("split", ("x", 2, 1), {}, PARTS),
        ("split", (), {"split_dim": 1, "num_split": 2, "value": "x"}, PARTS),
        ("batch_matmul", ("m", "n"), {"adj_y": True}, MULTIPLIED),
        ("image_summary", ("t", "x", 5), {}, SHOWN),
        ("softmax_cross_entropy_with_logits", ("l", "y"), {}, ("softmax", CROSSED)),
        ("sigmoid_cross_entropy_with_logits", ("l",), {"targets": "y"}, ("sigmoid", CROSSED)),
    ],
)
def test_both_orders_of_arguments(
    load: Load, name: str, values: tuple[Any, ...], named: dict[str, Any], expected: object
) -> None:
    parts = load("parts")
    functions = {**parts.TOP_FUNCTIONS, **parts.NN_FUNCTIONS}
    assert functions[name](*values, **named) == expected


# ---- `tf.contrib.training`


def variable(size: int) -> Mock:
    shape = Mock(unsafe=True, **{"num_elements.return_value": size})
    return Mock(outputs=[Mock(shape=shape, dtype=Mock(size=4))])


def test_the_greedy_strategy_takes_the_server_with_the_least_load(load: Load) -> None:
    contrib = load("parts")
    greedy = contrib.GreedyLoadBalancingStrategy(3, contrib.byte_size_load_fn)
    sizes = [100, 10, 20, 20, 20, 1, 100]
    # Loads before each: 0 0 0, 100 0 0, 100 10 0, 100 10 20, 100 30 20, 100 30 40, 100 31 40.
    assert [greedy(variable(size)) for size in sizes] == [0, 1, 2, 1, 2, 1, 1]


# ---- MNIST as the tutorials drew it


def numbered(count: int, seed: int | None = 3) -> DataSet:
    return DataSet(np.arange(count), np.arange(count) * 10, seed=seed)


def test_the_three_parts_whatever_directory_is_named() -> None:
    found = read_data_sets("/no/such/directory", one_hot=True)
    assert [part.num_examples for part in found] == [55_000, 5_000, 10_000]
    assert (found.train.images.shape, found.train.images.dtype) == ((55_000, 784), np.float32)
    assert found.test.labels.shape == (10_000, 10)
    assert (found.test.labels.sum(axis=1) == 1).all()
    mnist = load_mnist()
    # The first 5,000 images of the file are kept for validation.
    assert (found.validation.images == mnist.train.images[:5_000]).all()
    assert (found.train.labels.argmax(axis=1)[-5_000:] == mnist.validation.labels).all()
    assert load_dataset("mnist").train.num_examples == 55_000
    assert dense_to_one_hot(np.array([2, 0], np.int32), 3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_as_images_as_bytes_and_with_digits() -> None:
    found = read_data_sets("x", dtype=np.uint8, reshape=False, validation_size=0)
    assert (found.train.images.shape, found.train.images.dtype) == ((60_000, 28, 28, 1), np.uint8)
    assert found.validation.num_examples == 0
    assert found.test.labels[:4].tolist() == load_mnist().test.labels[:4].tolist()


def test_a_batch_across_the_end_continues_in_the_next_epoch() -> None:
    data = numbered(10)
    epoch = [*data.next_batch(4)[0], *data.next_batch(4)[0]]
    assert (data.epochs_completed, len(set(epoch))) == (0, 8)
    images, labels = data.next_batch(4)
    assert data.epochs_completed == 1
    # The rest of the first epoch comes first, and then two of the second.
    assert sorted([*epoch, *images[:2]]) == list(range(10))
    assert labels.tolist() == (images * 10).tolist()
    second = [*images[2:], *data.next_batch(8)[0]]
    assert sorted(second) == list(range(10)) != second
    assert data.epochs_completed == 1  # It ends with the first batch of the next.
    in_order = numbered(5)
    drawn = [in_order.next_batch(2, shuffle=False)[0].tolist() for _ in range(4)]
    assert drawn == [[0, 1], [2, 3], [4, 0], [1, 2]]


# ---- `tf.app.flags` of TensorFlow 1.0 to 1.4, on absl's flags


@pytest.fixture
def values() -> Any:
    """Flags of a program, which declares one that a library has declared before."""

    class Values(flags.FlagValues):
        """A class of its own, so that no other test sees the changed methods."""

    found = Values()
    flags.DEFINE_string("log_dir", "", "the library's", flag_values=found)
    restore_flags(found)
    flags.DEFINE_string("log_dir", "logs", "the program's", flag_values=found)
    flags.DEFINE_integer("steps", 10, "", flag_values=found)
    flags.DEFINE_boolean("sync", True, "", flag_values=found)
    return found


@pytest.mark.parametrize(
    ("arguments", "steps", "sync", "left"),
    [
        ([], 10, True, []),
        (["--unknown=1", "--steps=20", "data"], 20, True, ["--unknown=1", "data"]),
        (["--nosync"], 10, False, []),
        (["--sync=False"], 10, False, []),
        (["--sync", "False"], 10, False, []),
        (["--sync", "true", "data"], 10, True, ["data"]),
        (["--sync", "data"], 10, True, ["data"]),
        (["--steps", "1", "--sync", "0"], 1, False, []),
    ],
)
def test_forms_of_flags(
    values: Any, arguments: list[str], steps: int, sync: bool, left: list[str]
) -> None:
    assert values(["program.py", *arguments])[1:] == left
    assert (values.log_dir, values.steps, values.sync) == ("logs", steps, sync)


def test_parsing_by_the_old_name(values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program.py", "--steps=30", "--other"])
    values._parse_flags()
    assert values.steps == 30
    with pytest.raises(flags.DuplicateFlagError):  # a second one by the program, as it was
        flags.DEFINE_integer("steps", 5, "", flag_values=values)


class NotFoundError(Exception):
    """Named as TensorFlow's."""


class OutOfRangeError(Exception):
    """Named as TensorFlow's."""


EMPTY = "RandomShuffleQueue '_1_batch' is closed and has insufficient elements (requested 3)"
MAKE = "in the directory of main.py, run `lab data tfrecords"


@pytest.mark.parametrize(
    ("error", "noted", "line"),
    [
        (FileNotFoundError(2, "No", "x.csv"), [], "x.csv is missing; put it beside main.py, and"),
        (FileNotFoundError(2, "No", "/x/y.csv"), [], "/x/y.csv is missing; put it there"),
        (NotFoundError("in/a.tfrecord; No such file or directory\n"), [], MAKE),
        (OutOfRangeError(EMPTY), ["a b.tfrecords"], f"{MAKE} 'a b.tfrecords'`"),
        (OutOfRangeError(EMPTY), ["gone.csv", "there.csv"], "gone.csv is missing"),
        (OutOfRangeError(EMPTY), [], None),
        (OutOfRangeError("End of sequence"), ["a.tfrecords"], None),
        (NotFoundError("Key weights not found in checkpoint"), ["a.tfrecords"], None),
        (NotFoundError("there.csv; No such file or directory"), [], None),
        (FileNotFoundError("without a name"), [], None),
        (FileNotFoundError(2, "No", 5), [], None),
        (ValueError("x; No such file or directory"), ["x"], None),
        (NotFoundError("W0 a.cc:1] NOT_FOUND: a.tfrecord; No such file or directory"), [], MAKE),
        # The parts of a checkpoint are TensorFlow's own.
        (NotFoundError("train/model.ckpt-0_temp; No such file or directory"), [], None),
    ],
)
def test_the_line_for_a_missing_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    noted: list[str],
    line: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.csv").touch()
    found = missing_file_line(error, noted, "main.py")
    assert (found is None) == (line is None)
    assert (line or "") in (found or "")
    assert (found or "MissingFileError: ").startswith("MissingFileError: ")


# ---- arrays of one element, which convert to numbers


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1)])
def test_an_array_of_one_element_is_a_number(shape: tuple[int, ...]) -> None:
    value = one_element(np.full(shape, 2.5, np.float32))
    assert "%.1f %d" % (value, value) == "2.5 2"  # noqa: UP031  (the programs' own form)
    assert (value.shape, value.dtype) == (shape, np.float32)
    assert "%.1f" % (value + value) == "5.0"
    assert pickle.loads(pickle.dumps(value)).item() == 2.5  # noqa: S301


@pytest.mark.parametrize(
    "value", [np.zeros(2), np.float32(1), np.zeros(()), np.array([b"x"], object), 5, [1.0]]
)
def test_no_other_array_changes(value: object) -> None:
    assert one_element(value) is value


def test_numpys_names_of_2017_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = ModuleType("numpy")
    vars(numpy).update(vars(np))
    monkeypatch.setattr(numpy_1, "np", numpy)
    numpy_1.restore_names()
    old: Any = numpy
    assert np.array([1.5, 0]).astype(old.int).tolist() == [1, 0]
    assert (old.float, old.object, old.str) == (float, object, str)
    assert np.dtype(old.bool) == np.bool_
    assert (old.float_, old.unicode_, old.product) == (np.float64, np.str_, np.prod)
    assert (old.Inf, old.NINF) == (np.inf, -np.inf)
    assert old.asfarray(["1", "2.5"]).tolist() == [1.0, 2.5]
    assert old.alltrue([True, True])
    assert {name: vars(numpy)[name] for name in vars(np)} == vars(np)
    assert "int" not in vars(np)
