"""Problems of a config: message, location and suggestion; also those that pydantic finds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lab.base.text import clipped, nearest
from lab.cluster.config.cluster import FLAG, GPU_ID, JOB, NODE, PACKAGE, PROJECT, TASK, VARIABLE

Loc = tuple[str | int, ...]
"""The path from the top of a config to a value: keys and positions in lists."""

MAX_SHOWN: Final = 100
"""The maximum number of problems shown; more are usually one mistake, repeated."""

_BARE = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """A position in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a config.

    Attributes:
        path: The path to the key or value.
        message: What is wrong, and the hint; user text in it is escaped.
        on_key: Whether the key is wrong, not its value.
        location: The position in the file; None: it is looked up by `path`.
        misspelt: A name that may be misspelt, or "".
        candidates: The known names, for a suggestion.
    """

    path: Loc
    message: str
    on_key: bool = False
    location: SourceLocation | None = None
    misspelt: str = ""
    candidates: Sequence[str] = ()

    def text(self) -> str:
        """Return path, message and suggestion: `nodes.tf2.gpus: …; did you mean …?`."""
        path = f"{path_text(self.path)}: " if self.path else ""
        return f"{path}{self.message}{self._suggestion()}"

    def _suggestion(self) -> str:
        if not self.misspelt or not self.candidates:
            return ""
        if near := nearest(self.misspelt[:60].lower(), self.candidates):
            return f"; did you mean {quoted(near)}?"
        listed = ", ".join(unquoted_if_plain(name) for name in self.candidates[:8])
        return f"; known: {listed}{', …' if len(self.candidates) > 8 else ''}"  # noqa: PLR2004


class ProblemError(Exception):
    """A config has problems.

    Attributes:
        problems: The problems.
    """

    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems = problems


def report(
    file: str,
    problems: Iterable[Problem],
    values: Mapping[Loc, SourceLocation],
    keys: Mapping[Loc, SourceLocation],
) -> list[str]:
    """Return problems as lines, in their order in the file.

    Args:
        file: The file's name, as the user gave it.
        problems: The problems.
        values: The position of each value.
        keys: The position of each key.

    Returns:
        One line each, `cluster.yaml:12:5: nodes.tf2.gpus: …`.
    """
    placed = sorted(
        ((_place(problem, values, keys), problem) for problem in problems),
        key=lambda pair: pair[0],
    )
    lines = [
        f"{file}:{at.line}:{at.column}: {problem.text()}" for at, problem in placed[:MAX_SHOWN]
    ]
    if len(placed) > MAX_SHOWN:
        lines.append(f"{file}: … and {len(placed) - MAX_SHOWN} more problems like these")
    return lines


def texts(problems: Iterable[Problem]) -> list[str]:
    """Return problems without a position in a file, as lines."""
    return [problem.text() for problem in problems]


def path_text(loc: Loc) -> str:
    """Return a path as text: `jobs.worker.on[2]`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{unquoted_if_plain(part)}" if text else unquoted_if_plain(part)
    return text


def quoted(text: str, limit: int = 60) -> str:
    """Return user text in one line, in quotation marks."""
    return f'"{clipped(text, limit)}"'


def unquoted_if_plain(text: str) -> str:
    """Return a key; in quotation marks if it is not a plain name."""
    return text if _BARE.fullmatch(text) else quoted(text)


def describe(value: object) -> str:
    """Return a short description of a value: `the string "two"`, `the number 2.5`, `a list`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    return "a list" if isinstance(value, list) else "a mapping"


def _place(
    problem: Problem, values: Mapping[Loc, SourceLocation], keys: Mapping[Loc, SourceLocation]
) -> SourceLocation:
    if problem.location is not None:
        return problem.location
    loc = problem.path
    if problem.on_key and loc in keys:
        return keys[loc]
    while loc:
        if loc in values:
            return values[loc]
        # A missing key is reported at the key above it.
        loc = loc[:-1]
        if loc in keys:
            return keys[loc]
    return SourceLocation(1, 1)


_PATTERNS: Final[Mapping[str, str]] = {
    PROJECT: "must be lower-case letters, digits and hyphens, at most 31, no hyphen first",
    NODE: "must be lower-case letters, digits and hyphens, at most 31, a letter first, "
    "no hyphen last",
    TASK: "must be a task's name, such as worker-1",
    JOB: "must be lower-case letters only, at most 31",
    FLAG: "must be a flag's name without dashes, such as epochs",
    PACKAGE: "must be a package, such as boto3 or boto3==1.40.*",
    VARIABLE: "must be a variable's name, such as OMP_NUM_THREADS",
    GPU_ID: "must be a GPU's whole UUID from `nvidia-smi -L` (GPU-… or MIG-…), or its index "
    "without quotation marks",
}

_TYPES: Final[Mapping[str, str]] = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a string",
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


def to_problems(error: ValidationError, raw: object, model: type[BaseModel]) -> list[Problem]:
    """Convert pydantic's errors to problems.

    Args:
        error: The error of the model.
        raw: The content of the file; needed to find the keys in pydantic's locations.
        model: The model of the whole file.
    """
    # The missing items of a list that is too short have errors of their own.
    return [
        _problem(detail, raw, model)
        for detail in error.errors(include_url=False)
        if detail["type"] != "too_short" or not detail["input"]
    ]


def _problem(detail: ErrorDetails, raw: object, model: type[BaseModel]) -> Problem:
    loc = _location(detail["loc"], raw)
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return Problem(
            loc,
            "unknown key",
            on_key=True,
            misspelt=str(loc[-1]),
            candidates=_known_keys(loc[:-1], model),
        )
    if not loc:
        return Problem(loc, f"must be a mapping (`version: 1`, …), not {describe(value)}")
    if kind == "missing":
        return Problem(loc, "is missing")
    if loc == ("version",):
        return Problem(loc, f"must be 1, the only version; not {describe(value)}")
    message = _message(detail, detail.get("ctx", {}))
    return Problem(loc, message, on_key=detail["loc"][-1] == "[key]")


def _message(detail: ErrorDetails, context: Mapping[str, Any]) -> str:
    kind, value = detail["type"], detail["input"]
    if kind in _TYPES:
        expected = _TYPES[kind]
        return f"{expected}{';' if ',' in expected else ','} not {describe(value)}"
    if kind in _BOUNDS:
        expected, bound = _BOUNDS[kind]
        return f"{expected} {context[bound]:g}, not {value}"
    if kind == "string_pattern_mismatch":
        return f"{_PATTERNS[context['pattern']]}; not {describe(value)}"
    if kind in {"too_short", "too_long"}:
        too_long = f"has more than {context.get('max_length')} entries"
        return "is empty; it needs at least one entry" if kind == "too_short" else too_long
    return f"{detail['msg']}; not {describe(value)}"  # a message of our own


def _location(loc: Sequence[int | str], raw: object) -> Loc:
    """Return the location without pydantic's own parts: the branch of a union, and `[key]`."""
    path: list[int | str] = []
    inside = raw
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(inside, dict):
            if part in inside:
                inside = inside[part]
            elif not last or part == "[key]":
                continue
            path.append(part)
        elif isinstance(inside, list) and isinstance(part, int):
            inside = inside[part]
            path.append(part)
    return tuple(path)


def _known_keys(loc: Loc, model: type[BaseModel]) -> list[str]:
    for part in loc:
        if (field := model.model_fields.get(str(part))) is not None:
            model = next(_models_in(field.annotation), model)
    return list(model.model_fields)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
