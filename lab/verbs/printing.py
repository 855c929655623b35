"""Print the result of a verb: as JSON, or for a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lab.base.console import print_json
from lab.base.options import Arguments, Parameter, Switch, parameters

Called = partial[Any]
"""A verb with its options, which returns its result."""


def print_result(result: Any, *, json: bool) -> None:  # noqa: ANN401  (of any verb)
    """Print the result of a verb: as JSON, or for a person. What is wrong is an error after it."""
    if json:
        print_json(result.to_json())
    elif hasattr(result, "show"):
        result.show()
    if hasattr(result, "check"):
        result.check()


def prints(
    function: Callable[..., object],
    present: Callable[..., None] | None = None,
    *,
    json: str = "print JSON",
    **given: object,
) -> Callable[..., None]:
    """Make the command of a function that returns a result.

    Args:
        function: The function. All of its options are options of the command.
        present: Calls the function with its options, and prints the result; None: `print_result`.
        json: The help of `--json`; "": the command has none.
        **given: What the command gives for parameters that are no options.
    """
    options = parameters(function)
    listed = [each.name for each in options if isinstance(each.kind, Arguments)]
    with_values = getattr(function, "takes_values", function)

    def command(*, json: bool = False, **values: Any) -> None:  # noqa: ANN401  (of the options)
        several = [each for name in listed for each in values.pop(name, ())]
        called = partial(with_values, *several, **given, **values)
        if present is None:
            print_result(called(), json=json)
        else:
            present(called, json=json)

    if json:
        options = [*options, Parameter("json", Switch(json), default=False)]
    command.options = options  # type: ignore[attr-defined]
    return command
