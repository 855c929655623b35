"""Print the result of a verb: as JSON, or for a person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lab.base.console import print_json
from lab.base.options import presents
from lab.verbs.common_options import AsJson


class Result(Protocol):
    """A result that shows itself."""

    def to_json(self) -> object:
        """Return all of it as a JSON value."""

    def show(self) -> None:
        """Print it for a person."""


def print_result(result: Result | Sequence[Result], *, json: bool) -> None:
    """Print one result or several: as JSON, or for a person."""
    several = result if isinstance(result, Sequence) else [result]
    if json:
        values = [each.to_json() for each in several]
        print_json(values if several is result else values[0])
        return
    for each in several:
        each.show()


def prints(function: Callable[..., Result | Sequence[Result]]) -> Callable[..., None]:
    """Make the command of a function that returns one result or several."""

    @presents(function)
    def command(called: Callable[[], Result | Sequence[Result]], *, json: AsJson = False) -> None:
        print_result(called(), json=json)

    return command
