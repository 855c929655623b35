"""How a function declares its options, for Python and for the command line.

The annotation of a parameter has its form on the command line and the function that reads its
text::

    def run(*, stall: Annotated[float, Flag("…", duration, shows="TIME")] = STALL_S)
"""

from __future__ import annotations

import inspect
import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from lab.errors import InputError
from lab.options.types import boolean, text

if TYPE_CHECKING:
    from lab.experiments.registry import ProgramFlag


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag with a value, `--name=value` or `--name value`."""

    help: str
    parse: Callable[[str], object] = text
    shows: str = "VALUE"
    short: str = ""


@dataclass(frozen=True, slots=True)
class RepeatedFlag(Flag):
    """A flag with a value that can be given several times; its parameter is a tuple."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A flag without a value; `--name=false` and `--no-name` switch it off."""

    help: str
    short: str = ""
    parse: Callable[[str], object] = boolean


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument."""

    help: str
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
        known: Returns the flags of the program that is the command's first argument; with None,
            those of all programs.
        verbatim: Whether only arguments after `--` are passed on, and the first argument of the
            command is no program.
    """

    help: str
    known: Callable[[str | None], Mapping[str, ProgramFlag]] = lambda _program: {}
    verbatim: bool = False

    def flags(self, program: str | None) -> dict[str, Parameter]:
        """Return the program's flags by name, as parameters."""
        flags = {}
        for name, flag in self.known(program).items():
            kind = Switch if flag.is_switch else Flag
            flags[name] = Parameter(name, kind(flag.help, parse=flag.parse), default=None)
        return flags


ParameterKind = Flag | Switch | Argument | Arguments | ProgramArguments


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command, as it appears on the command line."""

    name: str
    kind: ParameterKind
    default: object = inspect.Parameter.empty

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

    def parse(self, raw: str) -> Any:  # noqa: ANN401  (the type of the command's parameter)
        """Convert a text to the parameter's value.

        Raises:
            ValueError: The text is not valid; the message names what is expected.
            ArgumentTypeError: The text is not valid; the message describes the error.
        """
        if isinstance(self.kind, Arguments | ProgramArguments):
            return tuple(json.loads(raw))
        if isinstance(self.kind, RepeatedFlag):
            return tuple(map(self.kind.parse, json.loads(raw)))
        return self.kind.parse(raw)

    def check(self, raw: str) -> None:
        """Check that a text can be parsed.

        Raises:
            InputError: The text is not valid.
        """
        label = f"--{self.flag}" if self.is_flag else self.flag
        parse: Callable[[str], object] = self.parse
        values = [raw]
        if isinstance(self.kind, RepeatedFlag):
            parse, values = self.kind.parse, json.loads(raw)
        for each in values:
            try:
                parse(each)
            except ValueError as error:
                raise InputError(f"{label}: {each!r} is not {error}") from error
            except ArgumentTypeError as error:
                raise InputError(f"{label}: {error}") from error


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """Return the parameters of a command, in the order of its signature."""
    hints = get_type_hints(function, include_extras=True)
    return [
        Parameter(each.name, hints[each.name].__metadata__[0], each.default)
        for each in inspect.signature(function).parameters.values()
    ]
