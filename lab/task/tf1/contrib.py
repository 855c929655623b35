"""The parts of `tf.contrib.training` that tf-slim lacks, with the behaviour of TensorFlow 1.4."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow.compat.v1 as tf


def byte_size_load_fn(op: Any) -> int:
    """Return the size of an operation's only output in bytes; for a variable, of its value.

    Raises:
        ValueError: The number of outputs is not 1, or the shape is unknown.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op.name} must have a single output")
    shape, kind = op.outputs[0].shape, op.outputs[0].dtype
    if kind == tf.resource or not shape.is_fully_defined():
        # The output of a variable may be only a handle; its attributes have shape and type.
        shape, kind = tf.TensorShape(op.get_attr("shape")), tf.as_dtype(op.get_attr("dtype"))
    shape.assert_is_fully_defined()
    return int(shape.num_elements() * kind.size)


class GreedyLoadBalancingStrategy:
    """Assigns each variable to the parameter server with the least load so far."""

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._load_fn = load_fn
        self._loads = np.zeros(num_tasks)

    def __call__(self, op: Any) -> int:
        """Return the task for the next variable."""
        task = int(np.argmin(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class HParams:
    """Hyperparameters: each is an attribute that keeps its type."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            self.add_hparam(name, value)

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter.

        Raises:
            ValueError: The name is in use.
        """
        if hasattr(self, name):
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        setattr(self, name, list(value) if isinstance(value, tuple) else value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Give a hyperparameter another value, in its type.

        Raises:
            ValueError: It does not exist, or the value does not have its type.
        """
        if name not in self:
            raise ValueError(f"Unknown hyperparameter: {name}")
        old = getattr(self, name)
        if isinstance(old, list):
            items = value if isinstance(value, list) else [value]
            value = [_like(old[0] if old else None, item) for item in items]
        else:
            value = _like(old, value)
        setattr(self, name, value)

    def parse(self, values: str) -> HParams:
        """Set values as in `rate=0.1,sizes=[1,2]`.

        Raises:
            ValueError: The text has another form, or as `set_hparam`.
        """
        rest = values.strip()
        while rest:
            found = _SETTING.match(rest)
            if found is None:
                raise ValueError(f"Could not parse hyperparameters: {rest}")
            name, items, value = found.groups()
            self.set_hparam(name, value if items is None else items.split(","))
            rest = rest[found.end() :]
        return self

    def override_from_dict(self, values: Mapping[str, Any]) -> HParams:
        """Set values by name; raise ValueError as `set_hparam`."""
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default if there is none."""
        return getattr(self, key, default)

    def values(self) -> dict[str, Any]:
        """Return all values by name."""
        return dict(vars(self))

    def to_json(self, **options: Any) -> str:
        """Return all values as JSON, with options of `json.dumps`."""
        return json.dumps(vars(self), **options)


_SETTING: Final = re.compile(r"\s*(\w+)\s*=\s*(?:\[([^\]]*)\]|([^,\[]*))\s*(?:,|$)")


def _like(old: Any, value: Any) -> Any:
    """Return a value in the type of another one; text is parsed."""
    if isinstance(old, bool) and isinstance(value, str):
        if value.strip().lower() not in {"true", "1", "false", "0"}:
            raise ValueError(f"Could not parse as bool: {value}")
        return value.strip().lower() in {"true", "1"}
    return value if old is None or value is None else type(old)(value)
