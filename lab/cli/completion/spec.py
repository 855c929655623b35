"""What can stand where on the command line, from the registry and the commands' signatures."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Final

from lab.cli.arguments import Argument, Arguments, Flag, Parameter, ProgramArguments, parameters
from lab.cli.registry import COMMANDS
from lab.task.protocol.experiments import EXPERIMENTS

_SOURCES: Final = {"run": "runs", "runs": "runs", "task": "tasks", "name": "environments"}
"""From a parameter's name to the kind of what `lab __complete` answers for it."""

_MAX_ARGUMENTS: Final = 10
"""The number of arguments that are completed where a command takes any number of them."""

_NEW_NAMES: Final = frozenset({("init", "name")})
"""Commands and their parameters that name what does not exist yet."""


@dataclass(frozen=True, slots=True)
class Value:
    """What can stand in a place.

    Attributes:
        metavar: What it is called: `FILE`.
        choices: These words.
        source: The kind of what `lab __complete` answers, or "".
        files: Names of files; several shells also offer directories, to go into.
        directories: Names of directories.
    """

    metavar: str
    choices: tuple[str, ...] = ()
    source: str = ""
    files: bool = False
    directories: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A flag as the shell sees it.

    Attributes:
        name: Without dashes, as help shows it: `runs-dir`.
        help: One line.
        short: `y`, or "".
        value: What follows it; None for a switch.
    """

    name: str
    help: str
    short: str = ""
    value: Value | None = None

    @property
    def names(self) -> list[str]:
        """All its names, with dashes."""
        return [f"--{self.name}", *([f"-{self.short}"] if self.short else [])]


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """The command line of one command.

    Attributes:
        name: The command.
        summary: One line.
        options: Its flags, and `--help`.
        arguments: What stands there without a flag, in this order.
        passes_arguments: Whether arguments after `--` are passed to the program.
    """

    name: str
    summary: str
    options: list[Option]
    arguments: list[Value]
    passes_arguments: bool


def specs() -> list[CommandSpec]:
    """What can stand behind `lab`."""
    return [_command(name) for name in COMMANDS]


def _command(name: str) -> CommandSpec:
    known = parameters(importlib.import_module(f"lab.cli.commands.{name}").command)
    places = [each for each in known if isinstance(each.kind, Argument)]
    places += [
        each for each in known if isinstance(each.kind, Arguments) for _ in range(_MAX_ARGUMENTS)
    ]
    rests = [each.kind for each in known if isinstance(each.kind, ProgramArguments)]
    options = {each.flag: _option(name, each) for each in known if each.is_flag}
    for rest in rests:
        for each in rest.flags(None).values():
            options.setdefault(each.flag, _option(name, each, each.flag))
    return CommandSpec(
        name,
        COMMANDS[name],
        [*options.values(), Option("help", "usage and examples", "h")],
        [_value(name, each) for each in places],
        passes_arguments=bool(rests),
    )


def _option(command: str, parameter: Parameter, name: str = "") -> Option:
    return Option(
        name or parameter.flag.replace("_", "-"),
        parameter.kind.help,
        parameter.short.lstrip("-"),
        None if parameter.is_switch else _value(command, parameter),
    )


def _value(command: str, parameter: Parameter) -> Value:
    kind, name = parameter.kind, parameter.flag
    shows = getattr(kind, "shows", "")
    if name == "experiment":
        # A program of one's own is named by its path.
        return Value(shows or "EXPERIMENT", tuple(EXPERIMENTS), files="PROGRAM" in shows)
    arguments = getattr(kind.parse, "choices", ()) if isinstance(kind, Flag | Argument) else ()
    fixed = arguments or (command, name) in _NEW_NAMES
    return Value(
        shows or name.upper(),
        arguments,
        "" if fixed else _SOURCES.get(name, ""),
        files=shows == "FILE",
        directories=shows == "DIR" or name.endswith("_dir"),
    )
