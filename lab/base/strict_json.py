"""Write and read JSON by RFC 8259, which has no NaN and no infinities.

Such a number becomes null, and a second field names it: `{"loss": null, "loss_is": "nan"}`. For a
list the second field has the indices: `{"losses": [1.5, null], "losses_is": {"1": "inf"}}`; no file
that is read has such a list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from lab.base.text import short
from lab.base.units import parse_whole

SUFFIX: Final = "_is"
_NUMBERS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def dump(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON."""
    return json.dumps(_strict(value), indent=indent, allow_nan=False)


def parse(text: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        ValueError: The text is not JSON, not an object, or nested too deeply, or has a whole number
            that does not fit into 64 bits.
    """
    try:
        value: object = json.loads(text, parse_int=parse_whole)
        if f'{SUFFIX}"' in text:
            value = _loose(value)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {short(str(error))}") from None
    if isinstance(value, dict):
        return value
    raise ValueError("its JSON is not an object")


def _strict(value: object) -> object:
    if isinstance(value, Mapping):
        marks = {f"{name}{SUFFIX}": mark for name, item in value.items() if (mark := _mark(item))}
        return {name: _strict(item) for name, item in value.items()} | marks
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return None if _literal(value) else value


def _mark(value: object) -> str | dict[str, str]:
    """Name a number that is not finite; for a list, name each by index. Else return ""."""
    if isinstance(value, (list, tuple)):
        return {str(index): name for index, item in enumerate(value) if (name := _literal(item))}
    return _literal(value)


def _literal(value: object) -> str:
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return "" if is_finite else str(float(value))  # type: ignore[arg-type]


def _loose(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    if isinstance(value, list):
        return [_loose(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {name: _loose(item) for name, item in value.items()}
    for name in [name for name in members if name.endswith(SUFFIX)]:
        bare, mark = name.removesuffix(SUFFIX), members[name]
        if isinstance(mark, str) and mark in _NUMBERS and members.get(bare, 0) is None:
            members[bare] = _NUMBERS[mark]
            del members[name]
    return members
