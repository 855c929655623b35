"""The arguments and flags of all commands, from the registry and the commands' signatures."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Final

from lab.backends.names import CAPABILITIES
from lab.cli.registry import COMMANDS
from lab.experiments.registry import EXPERIMENTS
from lab.options import (
    Argument,
    Arguments,
    Flag,
    Parameter,
    ProgramArguments,
    RepeatedFlag,
    parameters,
)
from lab.options.shared import OWN_OPTION

_SOURCES: Final = {
    "RUN": "runs",
    "RECORDING": "recordings",
    "TASK": "tasks",
    "TARGET": "tasks",
    "ENVIRONMENT": "environments",
    "EXAMPLE": "examples",
}
"""Placeholder of a value to the kind of names that `lab __complete` prints for it."""

_MAX_ARGUMENTS: Final = 10
"""The number of completed arguments of a command that accepts any number of them."""


@dataclass(frozen=True, slots=True)
class Value:
    """The possible values of an argument or flag.

    Attributes:
        metavar: The placeholder in the help: `FILE`.
        choices: The allowed values.
        source: The kind of names that `lab __complete` prints, or "".
        files: Whether to offer files; some shells also offer their directories.
        directories: Whether to offer directories.
    """

    metavar: str
    choices: tuple[str, ...] = ()
    source: str = ""
    files: bool = False
    directories: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A flag, as a completion script needs it.

    Attributes:
        name: The name without leading dashes, as in the help: `runs-dir`.
        help: One line.
        short: `y`, or "".
        value: Its value; None for a switch.
        repeats: Whether it can be given several times.
    """

    name: str
    help: str
    short: str = ""
    value: Value | None = None
    repeats: bool = False

    @property
    def names(self) -> list[str]:
        """All names, with dashes."""
        return [f"--{self.name}", *([f"-{self.short}"] if self.short else [])]


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """The command line of one command.

    Attributes:
        name: The command.
        summary: One line.
        options: Its flags, and `--help`.
        arguments: Its positional arguments, in this order.
        passes_arguments: Whether arguments after `--` are passed to the program.
    """

    name: str
    summary: str
    options: list[Option]
    arguments: list[Value]
    passes_arguments: bool


def specs() -> list[CommandSpec]:
    """Return the specifications of all commands."""
    return [_command(name) for name in COMMANDS]


def _command(name: str) -> CommandSpec:
    known = parameters(importlib.import_module(f"lab.cli.commands.{name}").command)
    positional = [each for each in known if isinstance(each.kind, Argument)]
    positional += [
        each for each in known if isinstance(each.kind, Arguments) for _ in range(_MAX_ARGUMENTS)
    ]
    rests = [each.kind for each in known if isinstance(each.kind, ProgramArguments)]
    options = {each.flag: _option(each) for each in known if each.is_flag}
    for rest in rests:
        for each in rest.flags(None).values():
            options.setdefault(each.flag, _option(each, each.flag))
    return CommandSpec(
        name,
        COMMANDS[name],
        [*options.values(), Option("help", "print usage and examples", "h")],
        [_value(each) for each in positional],
        passes_arguments=bool(rests),
    )


def _option(parameter: Parameter, name: str = "") -> Option:
    return Option(
        name or parameter.flag.replace("_", "-"),
        parameter.help,
        parameter.short.lstrip("-"),
        None if parameter.is_switch else _value(parameter),
        repeats=isinstance(parameter.kind, RepeatedFlag),
    )


def _value(parameter: Parameter) -> Value:
    kind, name = parameter.kind, parameter.flag
    shows = getattr(kind, "shows", "")
    if name == "experiment" or shows == "EXPERIMENT":
        # The path of a program is allowed, too.
        return Value(shows or "EXPERIMENT", tuple(EXPERIMENTS), files="PROGRAM" in shows)
    choices = getattr(kind.parse, "choices", ()) if isinstance(kind, Flag | Argument) else ()
    if shows == OWN_OPTION:
        options = [option for each in CAPABILITIES.values() for option in each.options]
        choices = tuple(text for option in options for text in option.completions)
    metavar = shows or name.upper()
    return Value(
        metavar,
        choices,
        _SOURCES.get(metavar.partition(",")[0], ""),
        files=shows == "FILE",
        directories=shows == "DIR" or name.endswith("_dir"),
    )
