"""How a function declares its options, for Python and for the command line.

The annotation of a parameter has its form on the command line and the function that reads its
text::

    def run(*, stall: Annotated[float, Flag("…", duration, shows="TIME")] = STALL_S)
"""

from __future__ import annotations

import inspect
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, ParamSpec, TypeVar, get_type_hints

from lab.base.console import messages_shown
from lab.base.converters import boolean, text
from lab.base.errors import InputError
from lab.base.shipped import named_extras

P = ParamSpec("P")
T = TypeVar("T")

_DESCRIBED: Final = re.compile(r" {4}\**(\w+): (.*)")
_ARGUMENTS: Final = re.compile(
    r"\n(?:Args:\n.*?(?:\n\n|\Z)|(?=(?:Returns|Raises):\n)|\Z)", re.DOTALL
)
"""Where a docstring describes the arguments, or would."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag with a value, `--name=value` or `--name value`.

    Attributes:
        help: One line; "" if the function's docstring describes the option.
        parse: Reads the text; a ValueError names what is expected.
        shows: The placeholder of the value in the help.
        short: The short name, `-f`, or "".
        separator: What joins the elements of a list from Python into the text; "" if each of them
            is an element of the value as it is.
        pair: What joins a key of a mapping from Python with its value.
    """

    help: str = ""
    parse: Callable[[str], object] = text
    shows: str = "VALUE"
    short: str = ""
    separator: str = ","
    pair: str = "="


@dataclass(frozen=True, slots=True)
class RepeatedFlag(Flag):
    """A flag with a value that can be given several times; its parameter is a tuple."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A flag without a value; `--name=false` and `--no-name` switch it off.

    With a `parse` of its own it also takes other values, which `shows` names: `--name=value`.
    """

    help: str = ""
    short: str = ""
    parse: Callable[[str], object] = boolean
    shows: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument."""

    help: str = ""
    parse: Callable[[str], object] = text
    shows: str = ""


@dataclass(frozen=True, slots=True)
class Arguments:
    """All further positional arguments, after every `Argument`."""

    help: str
    shows: str


@dataclass(frozen=True, slots=True)
class ProgramArguments:
    """Flags that are passed on to a program, and all arguments after `--`, verbatim.

    Attributes:
        help: The lines of the help that replace the flags of all programs.
        flags: Returns the flags of the program that is the command's first argument; with None,
            those of all programs.
        verbatim: Whether only arguments after `--` are passed on, and the first argument of the
            command is no program.
    """

    help: str
    flags: Callable[[str | None], Mapping[str, Parameter]] = lambda _program: {}
    verbatim: bool = False


ParameterKind = Flag | Switch | Argument | Arguments | ProgramArguments


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command, as it appears on the command line.

    Attributes:
        name: Its name in the signature.
        kind: Its form on the command line.
        default: Its default value.
        function: The function, whose docstring describes a kind without a line of help.
    """

    name: str
    kind: ParameterKind
    default: object = inspect.Parameter.empty
    function: Callable[..., object] | None = None

    @property
    def help(self) -> str:
        """One line for the user: without a full stop, and lower case at its start."""
        if self.kind.help or self.function is None:
            return self.kind.help
        text = _described(self.function).get(self.name, "").removesuffix(".")
        return text if text[1:2].isupper() else text[:1].lower() + text[1:]  # not `CPU`

    @property
    def flag(self) -> str:
        """The name on the command line: `all` for the parameter `all_`."""
        return self.name.rstrip("_")

    @property
    def required(self) -> bool:
        """Whether the user must give it."""
        return self.default is inspect.Parameter.empty

    @property
    def is_flag(self) -> bool:
        """Whether it is a flag, with or without a value."""
        return isinstance(self.kind, Flag | Switch)

    @property
    def is_switch(self) -> bool:
        """Whether it is a flag without a value."""
        return isinstance(self.kind, Switch)

    @property
    def short(self) -> str:
        """The short name, `-f`, or ""."""
        return self.kind.short if isinstance(self.kind, Flag | Switch) else ""

    @property
    def usage(self) -> str:
        """The form in an error or a usage line: `EXPERIMENT`, or `--over QUANTITIES`."""
        if isinstance(self.kind, Flag):
            return f"--{self.flag} {self.kind.shows}"
        return getattr(self.kind, "shows", "") or self.flag.upper()

    def read(self, texts: Sequence[str]) -> Any:  # noqa: ANN401  (the type of the converted value)
        """Convert the texts of a command line to the parameter's value.

        Raises:
            InputError: A text is not valid; the message begins with the flag or the argument.
        """
        if isinstance(self.kind, Arguments | ProgramArguments):
            return tuple(texts)
        label = f"--{self.flag}" if self.is_flag else self.flag
        values = tuple(read_value(label, self.kind.parse, each) for each in texts)
        return values if isinstance(self.kind, RepeatedFlag) else values[-1]

    def value_of(self, given: object) -> Any:  # noqa: ANN401  (the type of the converted value)
        """Convert what a caller from Python has given; a text is read as on the command line.

        Raises:
            InputError: It is not valid.
        """
        if given == self.default:
            return given
        if isinstance(given, os.PathLike):
            given = os.fspath(given)
        if isinstance(self.kind, Arguments | ProgramArguments):
            return tuple(_texts([given] if isinstance(given, str) else _elements(given)))
        if isinstance(self.kind, Flag) and isinstance(given, Mapping):
            given = [f"{key}{self.kind.pair}{_joined(value)}" for key, value in given.items()]
        if isinstance(self.kind, RepeatedFlag):
            several = [given] if isinstance(given, str) else _elements(given)
            return tuple(read_value(self.name, self.kind.parse, str(each)) for each in several)
        if self.kind.parse is text or (isinstance(given, bool) and self.kind.parse is boolean):
            return given
        if isinstance(self.kind, Flag) and isinstance(given, list | tuple):
            if not self.kind.separator:
                return tuple(_texts(given))
            given = self.kind.separator.join(map(str, given))
        return read_value(self.name, self.kind.parse, str(given)) if given != "" else self.default


def _joined(value: object) -> str:
    """Return a value of a mapping as text; several with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _texts(several: Iterable[object]) -> Iterator[str]:
    """Yield each element as text; a path is absolute, so that it differs from the id of a run."""
    for each in several:
        yield str(Path(each).absolute()) if isinstance(each, os.PathLike) else str(each)


def _elements(given: object) -> Iterable[object]:
    return given if isinstance(given, Iterable) else [given]


def read_value(label: str, parse: Callable[[str], T], raw: str) -> T:
    """Parse the value of an option.

    Raises:
        InputError: It is not valid; the message begins with the label.
    """
    try:
        return parse(raw)
    except ValueError as error:
        raise InputError(f"{label}: {raw!r} is not {error}") from error
    except ArgumentTypeError as error:
        raise InputError(f"{label}: {error}") from error


def parameters(function: Callable[..., object]) -> list[Parameter]:
    """Return the options of a function, in the order of its signature.

    The types of other parameters and of the result are not read: they may be imported for a type
    checker only.
    """
    if hasattr(function, "options"):
        options: list[Parameter] = function.options
        return options
    several = inspect.signature(function).parameters.values()
    hints = get_type_hints(
        SimpleNamespace(__annotations__={each.name: each.annotation for each in several}),
        inspect.unwrap(function).__globals__,
        include_extras=True,
    )
    return [
        Parameter(each.name, hints[each.name].__metadata__[0], each.default, function)
        for each in several
        if hasattr(hints[each.name], "__metadata__")
    ]


def reads_options(function: Callable[P, T]) -> Callable[P, T]:
    """Let Python call a function also with texts, which it reads as on the command line.

    The call raises an InputError if an argument is not valid, and a LabError without a package of
    an extra. A command, whose arguments have been read, calls the function itself. The docstring
    then has all options, also those that several functions share, as `--help` describes them.
    """
    options = parameters(function)

    @wraps(function)
    @named_extras()
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        given = inspect.signature(function).bind(*args, **kwargs)
        given.apply_defaults()
        for each in options:
            given.arguments[each.name] = each.value_of(given.arguments[each.name])
        return function(*given.args, **given.kwargs)

    read.__doc__ = _complete(function, options)
    read.takes_values, read.options = function, options  # type: ignore[attr-defined]
    return read


def verb(function: Callable[P, T]) -> Callable[P, T]:
    """Let Python call a function with texts, and show its messages to the user."""
    return reads_options(messages_shown()(function))


def given_flags(
    function: Callable[..., object], given: Mapping[str, object], *names: str
) -> list[str]:
    """Return the flags of those of the named options that are not at their default."""
    return [
        f"--{each.flag.replace('_', '-')}"
        for each in parameters(function)
        if each.name in names and given[each.name] != each.default
    ]


@cache
def _described(function: Callable[..., object]) -> dict[str, str]:
    """Return the description of each argument in a docstring."""
    _, _, rest = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    found: dict[str, str] = {}
    name = ""
    for line in rest.partition("\n\n")[0].splitlines():
        if match := _DESCRIBED.fullmatch(line):
            name, found[match[1]] = match[1], match[2]
        else:
            found[name] += f" {line.strip()}"
    return found


def _complete(function: Callable[..., object], options: Iterable[Parameter]) -> str:
    """Return a docstring with all arguments, in the order of the signature.

    Options are described as by `--help`, but not the arguments of programs: its line is about the
    command.
    """
    of_function = [each for each in options if not isinstance(each.kind, ProgramArguments)]
    described = _described(function) | {each.name: each.help for each in of_function}
    lines = [
        f"    {each.replace(annotation=each.empty, default=each.empty)}: {described[name]}\n"
        for name, each in inspect.signature(function).parameters.items()
        if name in described
    ]
    section = "".join(["\nArgs:\n", *lines, "\n"]) if lines else "\n"
    doc = f"{inspect.getdoc(function)}\n\n"
    return _ARGUMENTS.sub(lambda _: section, doc, count=1).rstrip()
