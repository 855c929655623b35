"""Reads a file as structs of msgspec, with the positions of its problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from lab.cluster.config.diagnostics import Problem, ProblemError
from lab.cluster.config.load import parse_with, read_file

T = TypeVar("T", bound=msgspec.Struct)


def read_struct(path: Path, model: type[T], rules: Callable[[T], Iterable[Problem]]) -> T:
    """Read a file as `parse_config` does.

    Args:
        path: The file.
        model: The type of the whole file.
        rules: Returns a problem for every rule that it breaks.

    Raises:
        InputError: The file cannot be read.
        ConfigError: It is invalid.
    """

    def converted(value: object) -> T:
        try:
            return msgspec.convert(value, model)
        except msgspec.ValidationError as error:
            raise ProblemError(_problem(str(error))) from None

    return parse_with(converted, rules, read_file(path, "remove it"), str(path))


def _problem(error: str) -> Problem:
    """Return the problem of an error: `Expected `int`, got `str` - at `$.stages[0].minutes``."""
    what, _, place = error.partition(" - at `$")
    steps = re.findall(r"\w+", place) + re.findall("unknown field `(.*)`", what)
    path = tuple(int(step) if step.isdecimal() else step for step in steps)
    return Problem(path, f"{what[0].lower()}{what[1:]}", on_key=True)
