"""The lab's own parts of `tf.contrib.training`, on a small stand-in for TensorFlow.

Its numbers on the real one are in tests/e2e/test_tf1_programs.py.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab.task import tf1
from lab.task.tf1 import input_data

NAME = f"{tf1.__name__}.contrib"


class Shape:
    """The used part of a TensorShape."""

    def __init__(self, sides: list[int] | None) -> None:
        self.sides = sides

    def is_fully_defined(self) -> bool:
        return self.sides is not None

    def assert_is_fully_defined(self) -> None:
        if self.sides is None:
            raise ValueError("not fully defined")

    def num_elements(self) -> int:
        product = 1
        for side in self.sides or ():
            product *= side
        return product


FLOAT = SimpleNamespace(size=4)
HANDLE = SimpleNamespace(size=1)

# By `printf NAME_SEED | md5sum` and bc: the digest as a whole number, modulo 3.
NAMES = ("w1", "b1", "w2", "b2", "global_step", "layer1/weights")
DRAWN = {0: [0, 2, 0, 1, 2, 2], 7: [2, 2, 2, 1, 1, 0]}


@pytest.fixture
def contrib(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, imported with a TensorFlow that knows shapes and types."""
    v1 = ModuleType("tensorflow.compat.v1")
    vars(v1).update(
        resource=HANDLE,
        TensorShape=lambda shape: shape,
        as_dtype=lambda kind: kind,
    )
    compat, top = ModuleType("tensorflow.compat"), ModuleType("tensorflow")
    vars(compat)["v1"], vars(top)["compat"] = v1, compat
    for module in (top, compat, v1):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules.pop(NAME, None)
    yield importlib.import_module(NAME)
    sys.modules.pop(NAME, None)
    vars(tf1).pop("contrib", None)


def variable(name: str, *sides: int) -> SimpleNamespace:
    output = SimpleNamespace(shape=Shape(list(sides)), dtype=FLOAT)
    return SimpleNamespace(name=name, outputs=[output])


def test_bytes_of_a_variable(contrib: Any) -> None:
    assert contrib.byte_size_load_fn(variable("w", 784, 10)) == 31_360
    assert contrib.byte_size_load_fn(variable("scalar")) == 4


@pytest.mark.parametrize(
    "output",
    [
        SimpleNamespace(shape=Shape(None), dtype=FLOAT),  # a scalar, while it is being made
        SimpleNamespace(shape=Shape([]), dtype=HANDLE),  # a resource variable's
    ],
)
def test_bytes_of_a_variable_of_unknown_size(contrib: Any, output: SimpleNamespace) -> None:
    attributes = {"shape": Shape([3, 5]), "dtype": SimpleNamespace(size=8)}
    op = SimpleNamespace(name="v", outputs=[output], get_attr=attributes.__getitem__)
    assert contrib.byte_size_load_fn(op) == 120


def test_an_operation_that_is_no_variable(contrib: Any) -> None:
    op = variable("split", 2)
    op.outputs *= 2
    with pytest.raises(ValueError, match=r"^Op split must have a single output$"):
        contrib.byte_size_load_fn(op)


def test_the_greedy_strategy_takes_the_least(contrib: Any) -> None:
    greedy = contrib.GreedyLoadBalancingStrategy(3, contrib.byte_size_load_fn)
    sizes = [100, 10, 20, 20, 20, 1, 100]
    # Loads before each: 0 0 0, 100 0 0, 100 10 0, 100 10 20, 100 30 20, 100 30 40, 100 31 40.
    assert [greedy(variable("v", size)) for size in sizes] == [0, 1, 2, 1, 2, 1, 1]


def test_the_random_strategy_uses_the_name(contrib: Any) -> None:
    for seed, expected in DRAWN.items():
        strategy = contrib.RandomStrategy(3, seed)
        assert [strategy(variable(name)) for name in NAMES] == expected
        assert [strategy(variable(name)) for name in reversed(NAMES)] == expected[::-1]
    assert [contrib.RandomStrategy(3)(variable(name)) for name in NAMES] == DRAWN[0]


def hyperparameters(contrib: Any) -> Any:
    return contrib.HParams(rate=0.1, steps=10, sync=True, name="a", sizes=[1, 2], pair=(3, 4))


def test_hyperparameters_are_attributes(contrib: Any) -> None:
    found = hyperparameters(contrib)
    found.rate = 0.2
    found.add_hparam("momentum", None)
    assert (found.rate, found.pair, found.momentum) == (0.2, [3, 4], None)
    assert "steps" in found
    assert "other" not in found
    assert not hasattr(found, "other")
    assert found.get("other", 5) == 5
    assert json.loads(found.to_json()) == found.values()
    with pytest.raises(ValueError, match="is reserved: parse"):
        found.add_hparam("parse", 1)


def test_hyperparameters_from_text_keep_their_types(contrib: Any) -> None:
    found = hyperparameters(contrib)
    assert found.parse("rate=1,steps=20, sync=false,name=b c,sizes=[3,4,5]") is found
    assert found.values() == {
        **{"rate": 1.0, "steps": 20, "sync": False},
        **{"name": "b c", "sizes": [3, 4, 5], "pair": [3, 4]},
    }
    assert isinstance(found.rate, float)
    assert found.override_from_dict({"steps": "30", "sync": True}).steps == 30
    assert found.parse("").steps == 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("other=1", "Unknown hyperparameter: other"),
        ("steps", "Could not parse hyperparameters: steps"),
        ("rate=1,sizes=[1,2", r"Could not parse hyperparameters: sizes=\[1,2"),
        ("sync=maybe", "Could not parse as bool: maybe"),
        ("steps=1.5", "invalid literal"),
    ],
)
def test_refused_hyperparameters(contrib: Any, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hyperparameters(contrib).parse(text)


def test_mnist_is_the_data_set_of_contrib_learn() -> None:
    found = input_data.load_dataset("mnist")
    assert found.train.num_examples == 55_000
    assert found.test.labels.shape == (10_000,)
    with pytest.raises(ValueError, match=r"^Name of dataset is not found: iris; the lab has mnist"):
        input_data.load_dataset("iris")


def test_the_graphs_seed_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(seed: int | None) -> list[int]:
        data = input_data.DataSet(np.arange(50), np.arange(50), seed)
        return [int(each) for each in data.next_batch(50)[0]]

    v1 = ModuleType("tensorflow.compat.v1")
    vars(v1)["get_seed"] = lambda op_seed: (11, op_seed)
    monkeypatch.setitem(sys.modules, v1.__name__, v1)
    assert drawn(None) == drawn(11) != drawn(12)
    vars(v1)["get_seed"] = lambda op_seed: (None, op_seed)
    assert drawn(None) != drawn(None)
