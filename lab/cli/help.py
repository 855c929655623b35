"""The help of one command: plain text, not paged, with tested examples."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import ModuleType

from lab.cli.arguments import Argument, Arguments, Flag, Parameter, ProgramArguments, parameters
from lab.cli.registry import COMMANDS, columns


def command_help(name: str, module: ModuleType, program: str | None = None) -> str:
    """Return what `lab COMMAND --help` prints.

    Args:
        name: The command.
        module: Its module, whose docstring has notes and examples.
        program: The first argument after the command. For an experiment the help lists its own
            flags, otherwise the flags of all experiments.
    """
    known = parameters(module.command)
    lines = [f"lab {name}: {COMMANDS[name]}", "", f"usage: {_usage(name, known)}"]
    positional = [
        (each.usage, each.kind.help)
        for each in known
        if isinstance(each.kind, Argument | Arguments)
    ]
    if positional:
        lines += ["", *columns(positional)]
    flags = [(_flag(each), _description(each)) for each in known if each.is_flag]
    if flags:
        lines += ["", "flags:", *columns(flags)]
    for parameter in known:
        if isinstance(parameter.kind, ProgramArguments):
            own, of_all = parameter.kind.flags(program), parameter.kind.flags(None)
            heading = parameter.kind.help if own == of_all else f"flags of {program}"
            rows = [
                (f"--{each.name}" + ("" if each.is_switch else " VALUE"), each.kind.help)
                for each in own.values()
            ]
            lines += ["", f"{heading}:", *columns(rows)] if rows else []
    _, _, notes = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    notes, _, examples = notes.partition("Examples:\n")
    lines += ["", f"{notes}examples:", *(line[2:] for line in examples.splitlines())]
    return "\n".join(lines)


def _usage(name: str, known: Sequence[Parameter]) -> str:
    parts = ["lab", name]
    for parameter in known:
        match parameter.kind:
            case Argument():
                parts.append(parameter.usage if parameter.required else f"[{parameter.usage}]")
            case Arguments():
                parts += [parameter.usage] if parameter.required else []
                parts.append(f"[{parameter.usage} …]")
            case Flag() if parameter.required:
                parts.append(parameter.usage)
    if any(parameter.is_flag for parameter in known):
        parts.append("[FLAGS]")
    if any(isinstance(parameter.kind, ProgramArguments) for parameter in known):
        parts.append("[-- ARGUMENTS FOR THE PROGRAM]")
    return " ".join(parts)


def _flag(parameter: Parameter) -> str:
    """Return `-f, --follow`, or `--tail COUNT`."""
    name = f"--{parameter.flag.replace('_', '-')}"
    value = f" {parameter.kind.shows}" if isinstance(parameter.kind, Flag) else ""
    return f"{parameter.short}, {name}{value}" if parameter.short else f"{name}{value}"


def _description(parameter: Parameter) -> str:
    default = parameter.default
    if not isinstance(parameter.kind, Flag) or parameter.required or default in (None, ""):
        return parameter.kind.help
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{parameter.kind.help} (default: {shown})"
