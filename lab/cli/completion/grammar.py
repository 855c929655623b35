"""What can stand where on the command line, from the catalogue and the commands' signatures."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lab.cli.arguments import Flag, Parameter, Rest, Switch, Word, Words, parameters
from lab.cli.catalogue import COMMANDS, Command
from lab.task.experiments import EXPERIMENTS

_ASKED: Final = {"run": "runs", "runs": "runs", "task": "tasks", "name": "environments"}
"""From a parameter's name to the kind of answers that can stand there."""

_SEVERAL: Final = 10
"""So many words are completed where a command takes any number of them."""

_NEW: Final = frozenset({("init", "name")})
"""Commands and their parameters that name what is not there yet."""


@dataclass(frozen=True, slots=True)
class Value:
    """What can stand in a place.

    Attributes:
        shows: What it is called: `FILE`.
        words: These words.
        asks: The kind of what `lab __complete` answers, or "".
        files: Names of files; several shells also offer directories, to go into.
        folders: Names of directories.
    """

    shows: str = "VALUE"
    words: tuple[str, ...] = ()
    asks: str = ""
    files: bool = False
    folders: bool = False


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


@dataclass(frozen=True, slots=True)
class Line:
    """The command line of one command."""

    name: str
    summary: str
    options: tuple[Option, ...]
    places: tuple[Value, ...]
    hands_on: bool

    def valued(self) -> dict[str, Value]:
        """The values of its options, by all names with dashes."""
        found = {}
        for option in self.options:
            if option.value is not None:
                found[f"--{option.name}"] = option.value
                if option.short:
                    found[f"-{option.short}"] = option.value
        return found


Grammar = Mapping[str, Line]
"""All command lines, by the command's name."""

HELP: Final = Option("help", "usage and examples", "h")


def grammar() -> dict[str, Line]:
    """What can stand behind `lab`."""
    return {command.name: _line(command) for command in COMMANDS.values()}


def _line(command: Command) -> Line:
    module = importlib.import_module(f"lab.cli.commands.{command.module}")
    known = parameters(module.command)
    options = [_option(command, each) for each in known if isinstance(each.kind, Flag | Switch)]
    words = [each for each in known if isinstance(each.kind, Word)]
    words += [each for each in known if isinstance(each.kind, Words) for _ in range(_SEVERAL)]
    rests = [each.kind for each in known if isinstance(each.kind, Rest)]
    for rest in rests:
        options += _of_programs(rest)
    return Line(
        command.name,
        command.summary,
        (*_once(options), HELP),
        tuple(_value(command, each) for each in words),
        hands_on=bool(rests),
    )


def _option(command: Command, parameter: Parameter) -> Option:
    kind = parameter.kind
    name = parameter.flag.replace("_", "-")
    if isinstance(kind, Flag):
        return Option(name, kind.help, kind.short.lstrip("-"), _value(command, parameter))
    short = kind.short.lstrip("-") if isinstance(kind, Switch) else ""
    return Option(name, kind.help, short)


def _value(command: Command, parameter: Parameter) -> Value:
    kind = parameter.kind
    shows = kind.shows if isinstance(kind, Flag | Word | Words) else ""
    words = getattr(kind.parse, "choices", ()) if isinstance(kind, Flag | Word) else ()
    name = parameter.flag
    if name == "experiment":
        # A program of one's own is named by its path.
        return Value(shows or "EXPERIMENT", tuple(EXPERIMENTS), files="PROGRAM" in shows)
    new = (command.name, name) in _NEW
    return Value(
        shows or name.upper(),
        words,
        "" if words or new else _ASKED.get(name, ""),
        files=shows == "FILE",
        folders=shows == "DIR",
    )


def _of_programs(rest: Rest) -> Iterable[Option]:
    for name, flag in rest.known(None).items():
        words = getattr(flag.parse, "choices", ())
        folder = name.endswith("_dir")
        value = None if flag.is_switch else Value("VALUE", words, folders=folder)
        yield Option(name, flag.help, value=value)


def _once(options: Iterable[Option]) -> Iterable[Option]:
    found: dict[str, Option] = {}
    for option in options:
        found.setdefault(option.name.replace("_", "-"), option)
    return found.values()
