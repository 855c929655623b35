"""Help texts: plain, never paged, and each with examples that work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lab.cli.arguments import Flag, Parameter, Rest, Switch, Word, Words, parameters, placeholder
from lab.cli.catalogue import COMMANDS, DESCRIBE, ENVIRONMENT, HELP, RUN, Command

_HEADINGS: Final = {
    RUN: "Train and look at it",
    ENVIRONMENT: "Keep an environment up",
    DESCRIBE: "Describe the cluster",
    HELP: "Set up the command line",
}
_TITLE: Final = "lab: one box as a pseudo-cluster for distributed TensorFlow"


def short() -> str:
    """What `lab` alone says: the commands that matter."""
    names = [command for command in COMMANDS.values() if command.matters]
    return "\n".join(
        [
            _TITLE,
            "",
            *_lines([(command.name, command.summary) for command in names]),
            "",
            "Begin with `lab run async --epochs 2`. All commands: `lab --help`.",
        ]
    )


def full() -> str:
    """What `lab --help` says: every command."""
    lines = [_TITLE, "", "usage: lab COMMAND [FLAGS]"]
    width = len("COMMAND --help")
    for group, heading in _HEADINGS.items():
        members = [command for command in COMMANDS.values() if command.group == group]
        lines += ["", f"{heading}:"]
        lines += _lines([(command.name, command.summary) for command in members], width)
    lines += ["", "Everywhere:"]
    lines += _lines(
        [
            ("COMMAND --help", "usage and examples of one command"),
            ("--debug", "show the traceback of an error"),
            ("--version", "the version"),
        ],
        width,
    )
    return "\n".join(lines)


def of_command(command: Command, function: Callable[..., None], named: str | None = None) -> str:
    """What `lab COMMAND --help` says.

    Args:
        command: The command.
        function: What it calls.
        named: The first word behind it: of an experiment that is known, its own flags are shown,
            and of any other word those of all.
    """
    known = parameters(function)
    lines = [f"lab {command.name}: {command.summary}", "", f"usage: {_usage(command, known)}"]
    places = [parameter for parameter in known if isinstance(parameter.kind, Word | Words)]
    if places:
        lines += ["", *_lines([(placeholder(each), each.kind.help) for each in places])]
    flags = [parameter for parameter in known if isinstance(parameter.kind, Flag | Switch)]
    if flags:
        lines += ["", "flags:", *_lines([(_flag(each), _explained(each)) for each in flags])]
    for parameter in known:
        if isinstance(parameter.kind, Rest):
            program = parameter.kind.known(named)
            rows = [
                (f"--{name}" + ("" if flag.is_switch else " VALUE"), flag.help)
                for name, flag in program.items()
            ]
            several = program == parameter.kind.known(None)
            heading = parameter.kind.help if several else f"flags of {named}"
            lines += ["", f"{heading}:", *_lines(rows)] if rows else []
    if command.notes:
        lines += ["", *command.notes]
    lines += ["", "examples:"]
    for line, why in command.examples:
        lines += [f"  # {why}", f"  {line}"]
    return "\n".join(lines)


def _usage(command: Command, known: list[Parameter]) -> str:
    words = ["lab", command.name]
    for parameter in known:
        if isinstance(parameter.kind, Word):
            shown = placeholder(parameter)
            words.append(shown if parameter.required else f"[{shown}]")
        elif isinstance(parameter.kind, Words):
            shown = placeholder(parameter)
            words += [shown, f"[{shown} …]"] if parameter.required else [f"[{shown} …]"]
        elif isinstance(parameter.kind, Flag) and parameter.required:
            words.append(placeholder(parameter))
    if any(isinstance(parameter.kind, Flag | Switch) for parameter in known):
        words.append("[FLAGS]")
    if any(isinstance(parameter.kind, Rest) for parameter in known):
        words.append("[-- WORDS FOR THE PROGRAM]")
    return " ".join(words)


def _flag(parameter: Parameter) -> str:
    name = "--" + parameter.flag.replace("_", "-")
    match parameter.kind:
        case Flag(shows=shows, short=short_name):
            return (f"{short_name}, " if short_name else "") + f"{name} {shows}"
        case Switch(short=short_name):
            return (f"{short_name}, " if short_name else "") + name
        case _:
            return name


def _explained(parameter: Parameter) -> str:
    default = parameter.default
    if isinstance(parameter.kind, Flag) and not parameter.required and default not in (None, ""):
        return f"{parameter.kind.help} (default: {default})"
    return parameter.kind.help


def _lines(rows: list[tuple[str, str]], width: int = 0) -> list[str]:
    width = max([width, *(len(left) for left, _ in rows)])
    return [f"  {left.ljust(width)}   {right}".rstrip() for left, right in rows]
