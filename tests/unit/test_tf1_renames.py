"""Calls of TensorFlow 0.8 to 0.12, and the calls of 1.x that they become."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lab.task import tf1

NAME = f"{tf1.__name__}.renames"


@pytest.fixture
def renames(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, imported with a TensorFlow whose functions return their arguments."""

    def returns(name: str) -> Any:
        return lambda **named: (name, named)

    v1 = ModuleType("tensorflow.compat.v1")
    v1.__dict__.update(
        {name: returns(name) for name in ("concat", "matmul", "split")},
        summary=SimpleNamespace(image=returns("summary.image")),
        nn=SimpleNamespace(
            sigmoid_cross_entropy_with_logits=returns("sigmoid"),
            softmax_cross_entropy_with_logits=returns("softmax"),
        ),
    )
    compat, top = ModuleType("tensorflow.compat"), ModuleType("tensorflow")
    vars(compat)["v1"], vars(top)["compat"] = v1, compat
    for module in (top, compat, v1):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules.pop(NAME, None)
    yield importlib.import_module(NAME)
    sys.modules.pop(NAME, None)
    vars(tf1).pop("renames", None)


JOINED = ("concat", {"values": ["x", "y"], "axis": 1})
PARTS = ("split", {"value": "x", "num_or_size_splits": 2, "axis": 1})


@pytest.mark.parametrize(
    ("name", "values", "named", "expected"),
    [
        ("concat", (1, ["x", "y"]), {}, JOINED),
        ("concat", (["x", "y"], 1), {}, JOINED),
        ("concat", (), {"concat_dim": 1, "values": ["x", "y"]}, JOINED),
        ("concat", (["x", "y"],), {"axis": 1}, JOINED),
        ("split", (1, 2, "x"), {}, PARTS),
        ("split", ("x", 2, 1), {}, PARTS),
        ("split", (), {"split_dim": 1, "num_split": 2, "value": "x"}, PARTS),
        ("split", ("x", 2), {"axis": 1}, PARTS),
        (
            "batch_matmul",
            ("m", "n"),
            {"adj_y": True},
            ("matmul", {"a": "m", "b": "n", "adjoint_b": True}),
        ),
        (
            "image_summary",
            ("t", "x", 5),
            {},
            ("summary.image", {"name": "t", "tensor": "x", "max_outputs": 5}),
        ),
    ],
)
def test_both_orders(
    renames: Any, name: str, values: tuple[Any, ...], named: dict[str, Any], expected: object
) -> None:
    assert renames.TOP_FUNCTIONS[name](*values, **named) == expected


def test_a_cross_entropy_without_names(renames: Any) -> None:
    softmax = renames.NN_FUNCTIONS["softmax_cross_entropy_with_logits"]
    expected = ("softmax", {"logits": "l", "labels": "y"})
    assert softmax("l", "y") == softmax(labels="y", logits="l") == expected
    sigmoid = renames.NN_FUNCTIONS["sigmoid_cross_entropy_with_logits"]
    assert sigmoid("l", targets="y") == ("sigmoid", {"logits": "l", "labels": "y"})
