"""The messages for pydantic's errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lab.config.diagnostics import Loc, Problem, describe
from lab.config.fields import NODE, PROJECT
from lab.config.model import FLAG, GPU_ID, JOB, TASK

_PATTERNS: Final[Mapping[str, str]] = {
    PROJECT: "must be lower-case letters, digits and hyphens, at most 31, no hyphen first",
    NODE: "must be lower-case letters, digits and hyphens, at most 31, a letter first, "
    "no hyphen last",
    TASK: "must be a task's name, such as worker-1",
    JOB: "must be lower-case letters only, at most 31",
    FLAG: "must be a flag's name without dashes, such as epochs",
    GPU_ID: "must be a GPU's whole UUID from `nvidia-smi -L` (GPU-… or MIG-…), or its index "
    "without quotation marks",
}

_TYPES: Final[Mapping[str, str]] = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "tuple_type": "must be a list",
}

_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than_equal": ("must be at least", "ge"),
    "less_than_equal": ("must be at most", "le"),
    "greater_than": ("must be more than", "gt"),
    "less_than": ("must be less than", "lt"),
}


def to_problems(
    error: ValidationError, raw: object, models: Mapping[str, type[BaseModel]]
) -> list[Problem]:
    """Convert pydantic's errors to problems.

    Args:
        error: The error of the model.
        raw: The content of the file; needed to find the keys in pydantic's locations.
        models: The models by path, as in `lab.config.load.Format`.
    """
    problems = []
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and detail["input"]:
            continue  # the missing items have errors of their own
        problems.append(_problem(detail, raw, models))
    return problems


def _problem(detail: ErrorDetails, raw: object, models: Mapping[str, type[BaseModel]]) -> Problem:
    loc = _location(detail["loc"], raw)
    kind, found = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return Problem(
            loc,
            "unknown key",
            on_key=True,
            misspelt=str(loc[-1]),
            candidates=_known_keys(loc[:-1], models),
        )
    if kind == "missing":
        return Problem(loc, "is missing")
    if loc == ("version",):
        return Problem(loc, f"must be 1, the only version; not {describe(found)}")
    message = _message(detail, detail.get("ctx", {}))
    return Problem(loc, message, on_key=detail["loc"][-1] == "[key]")


def _message(detail: ErrorDetails, context: Mapping[str, Any]) -> str:
    kind, found = detail["type"], detail["input"]
    if kind in _TYPES:
        expected = _TYPES[kind]
        return f"{expected}{';' if ',' in expected else ','} not {describe(found)}"
    if kind in _BOUNDS:
        expected, bound = _BOUNDS[kind]
        return f"{expected} {context[bound]:g}, not {found}"
    if kind == "string_pattern_mismatch":
        return f"{_PATTERNS[context['pattern']]}; not {describe(found)}"
    if kind in {"too_short", "too_long"}:
        too_long = f"has more than {context.get('max_length')} entries"
        return "is empty; it needs at least one entry" if kind == "too_short" else too_long
    return f"{detail['msg']}; not {describe(found)}"  # a message of our own


def _location(loc: Sequence[int | str], raw: object) -> Loc:
    """Return the location without pydantic's own parts: the branch of a union, and `[key]`."""
    kept: list[int | str] = []
    inside = raw
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(inside, dict):
            if part in inside:
                inside = inside[part]
            elif not last or part == "[key]":
                continue
            kept.append(part)
        elif isinstance(inside, list) and isinstance(part, int):
            inside = inside[part]
            kept.append(part)
    return tuple(kept)


def _known_keys(loc: Loc, models: Mapping[str, type[BaseModel]]) -> list[str]:
    path = ".".join(map(str, loc))
    model = models[path if path in models else str(loc[0])]
    return list(model.model_fields)
