"""What a verb returns, and how a command prints it: as JSON, or for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.base.console import messages_shown, print_json
from lab.base.errors import ConfigError, InputError
from lab.base.log import LOG
from lab.base.options import Arguments, Parameter, Switch, parameters
from lab.base.shipped import named_extras

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

Called = partial[Any]
"""A verb with its options, which returns its result."""


class Note(str):
    """A line of a result for stderr; what stdout gets can then be used by a program."""

    __slots__ = ()


class Shown:
    """A result of a verb: text in a terminal, HTML in a notebook, and JSON.

    What draws tables is imported when one is shown: many commands need none.
    """

    def _shown(self) -> Iterable[RenderableType]:
        """Return the tables, texts and notes; a `str` is a line that is printed as it is."""
        raise NotImplementedError

    def to_json(self) -> Any:  # noqa: ANN401  (any JSON value)
        """Return all of it as a JSON value."""
        import msgspec  # noqa: PLC0415  (`lab doctor` reports a missing one)

        return msgspec.to_builtins(self, enc_hook=str)

    @messages_shown()
    def show(self) -> None:
        """Print it: the notes to stderr, the rest to stdout."""
        for part in self._shown():
            if isinstance(part, Note):
                LOG.info(part)
            elif isinstance(part, str):
                print(part)
            else:
                from lab.base.tables import show  # noqa: PLC0415

                show(part)

    def _repr_html_(self) -> str:
        from lab.verbs.shown import html  # noqa: PLC0415

        return html(self._shown())

    def __repr__(self) -> str:
        from lab.verbs.shown import plain  # noqa: PLC0415

        return plain(self._shown())


class Tabular(Shown):
    """A result that is a table: also a pandas data frame."""

    def _entries(self) -> Any:  # noqa: ANN401  (a list of JSON objects)
        """Return the rows of the data frame: by default the JSON value."""
        return self.to_json()

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each entry of the table, with the keys of `--json` as its columns.

        Raises:
            LabError: pandas is not installed.
        """
        import pandas as pd  # noqa: PLC0415  (it takes half a second)

        return pd.DataFrame(self._entries())


class Said(Shown):
    """A result of which a command has said everything while it worked."""

    def show(self) -> None:
        """Print nothing more."""


@dataclass(frozen=True, slots=True, repr=False)
class Lines(Shown):
    """Lines, read again by each loop: `for line in lab.logs("last")`.

    Attributes:
        read: Reads them; a note is not one of them.
        is_live: Whether new lines follow until Ctrl-C; only a loop, or `show()`, reads those.
    """

    read: Callable[[], Iterable[str]]
    is_live: bool = False

    def __iter__(self) -> Iterator[str]:
        return (line for line in self.read() if not isinstance(line, Note))

    def to_json(self) -> list[str]:
        """Return the lines.

        Raises:
            InputError: There is no last one.
        """
        if self.is_live:
            raise InputError("--follow cannot be used with --json", "leave out one of them")
        return list(self)

    def show(self) -> None:
        """Print them, each new one at once."""
        if not self.is_live:
            Shown.show(self)
        for line in self if self.is_live else ():
            print(line, flush=True)

    def _shown(self) -> Iterable[str]:
        live = Note("new lines until Ctrl-C: read them in a loop, or print them with show()")
        return [live] if self.is_live else self.read()


def print_result(result: Any, *, json: bool) -> None:  # noqa: ANN401  (of any verb)
    """Print the result of a verb: as JSON, or for a person. What is wrong is an error after it."""
    if json:
        print_json(result.to_json())
    else:
        result.show()
    if hasattr(result, "check"):
        result.check()


def print_checked(called: Called, file: Callable[[], object], *, json: bool) -> None:
    """Print the result of a verb that reads a config; with `json`, also what is wrong in it.

    Args:
        called: The verb.
        file: Returns the file of the config.
        json: Whether JSON is printed.

    Raises:
        ConfigError: The config has errors.
    """
    try:
        result = called()
    except ConfigError as error:
        if json:
            print_json({"file": str(file()), "valid": False, "problems": error.problems})
        raise
    if result is not None:
        print_result(result, json=json)


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
