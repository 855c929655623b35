"""Decode JSON into frozen dataclasses, and check the types of their fields.

The image contains no library for this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from lab.records import parse_whole

T = TypeVar("T")

_hints = cache(get_type_hints)


def from_json(text: str, kind: type[T], name: str) -> T:
    """Decode a dataclass from the JSON of its `asdict`.

    Args:
        text: The JSON.
        kind: The dataclass; its fields may be dataclasses, enums, lists, tuples and mappings.
        name: The name of the object in messages.

    Raises:
        ValueError: The text is not JSON, a key is missing or unknown, or a type is wrong.
    """
    try:
        decoded: T = _decode(json.loads(text, parse_int=parse_whole), kind, name)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a {name}: {error}") from error
    return decoded


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _decode(raw: Any, kind: Any, name: str) -> Any:  # noqa: ANN401  (what JSON can hold)
    if type(raw) is kind or (kind is float and type(raw) is int):
        return raw
    container, parts = get_origin(kind), get_args(kind)
    if container is UnionType:
        (one,) = (part for part in parts if part is not NoneType)
        return None if raw is None else _decode(raw, one, name)
    if container in {list, tuple} and isinstance(raw, list):
        return container(_decode(item, parts[0], name) for item in raw)
    if container in {Mapping, dict} and isinstance(raw, dict):
        return {key: _decode(item, parts[1], name) for key, item in raw.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(raw, dict):
        hints = _hints(kind)
        if unknown := raw.keys() - hints.keys():
            raise ValueError(f"{name}: unknown key {min(unknown)!r}")
        required = (field.name for field in fields(kind) if _is_required(field))
        if missing := [key for key in required if key not in raw]:
            raise ValueError(f"{name}: key {missing[0]!r} is missing")
        return kind(**{key: _decode(value, hints[key], key) for key, value in raw.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    raise ValueError(f"{name}: a value has the wrong type")
