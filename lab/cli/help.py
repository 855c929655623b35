"""The help of one command: plain text, not paged, with tested examples."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import ModuleType
from typing import Final

from lab.base.options import Argument, Arguments, Flag, Parameter, ProgramArguments, parameters
from lab.base.text import wrapped
from lab.cli.registry import columns, line_width
from lab.protocol.experiments.experiment import Experiment
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.verbs import COMMANDS

_LEFT: Final = re.compile(r".*\S {2,}(?=\S)")
"""The left column of a table in a command's notes, with the space after it."""


def command_help(name: str, module: ModuleType, program: str | None = None) -> str:
    """Return what `lab COMMAND --help` prints.

    Args:
        name: The command.
        module: Its module, whose docstring has notes and examples.
        program: The first argument after the command. For an experiment, the help of `lab run` has
            its own flags only, and that of another command has them, too.
    """
    if name == "run" and program is not None and (experiment := _experiment(program)):
        return _experiment_help(experiment)
    known = parameters(module.command)
    lines = wrapped(f"lab {name}: {COMMANDS[name]}", line_width(), indent="  ")
    lines += ["", *wrapped(f"usage: {_usage(name, known)}", line_width(), indent="  ")]
    positional = [
        (each.usage, each.help) for each in known if isinstance(each.kind, Argument | Arguments)
    ]
    if positional:
        lines += ["", *columns(positional)]
    flags = [(_flag(each), _description(each)) for each in known if each.is_flag]
    if flags:
        lines += ["", "flags:", *columns(flags)]
    for parameter in known:
        if isinstance(parameter.kind, ProgramArguments):
            own, of_all = parameter.kind.flags(program), parameter.kind.flags(None)
            if own and own == of_all:
                lines += ["", parameter.kind.help]
            elif own:
                lines += ["", f"flags of {program}:", *_program_flags(own)]
    _, _, notes = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    notes, _, examples = notes.partition("Examples:\n")
    lines += ["", *_notes(notes), "examples:", *(line[2:] for line in examples.splitlines())]
    return "\n".join(lines)


def _notes(text: str) -> Iterator[str]:
    """Yield the lines of notes: sentences, and tables of two columns."""
    width = line_width()
    for paragraph in text.removesuffix("\n\n").split("\n\n") if text else ():
        for is_table, group in groupby(paragraph.splitlines(), lambda line: "  " in line):
            lines = list(group)
            if not is_table and width < sys.maxsize:
                lines = [" ".join(lines)]
            for line in lines:
                left = _LEFT.match(line)
                yield from wrapped(line, width, indent=" " * len(left.group() if left else ""))
        yield ""


def _experiment(name: str) -> Experiment | None:
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    # Imported here, as most calls need neither.
    from lab.cluster.experiments import find_experiment  # noqa: PLC0415
    from lab.cluster.project import default_root  # noqa: PLC0415

    return find_experiment(name, default_root())


def _experiment_help(experiment: Experiment) -> str:
    """Return what `lab run EXPERIMENT --help` prints."""
    from lab.verbs.run import program_flags  # noqa: PLC0415  (other commands do not need it)

    name = experiment.name
    own = program_flags(name)
    flags = [f"flags of {name}:", *_program_flags(own)] if own else [f"{name} has no flags."]
    return "\n".join(
        [
            f"lab run {name}: {experiment.summary}",
            "",
            f"usage: lab run {name} [FLAGS]",
            "",
            f"It needs a cluster with the jobs {', '.join(experiment.jobs)}.",
            "",
            *flags,
            "",
            "example:",
            f"  {_example(experiment)}",
            "",
            "`lab run --help` lists the flags of every run.",
        ]
    )


def _example(experiment: Experiment) -> str:
    """Return a short run of an experiment, on a config with the jobs that it needs."""
    parts = ["lab run", experiment.name]
    if experiment.cluster:
        parts.append(f"--cluster {experiment.cluster}")
    ends = ("epochs 2", "global_steps 2000", "steps 200")
    parts += [f"--{end}" for end in ends if end.split()[0] in experiment.flags][:1]
    return " ".join(parts)


def _program_flags(flags: Mapping[str, Parameter]) -> list[str]:
    """Return a line for each flag of a program."""
    return columns(
        (f"--{each.name}" + ("" if each.is_switch else " VALUE"), each.kind.help)
        for each in flags.values()
    )


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
    shows = getattr(parameter.kind, "shows", "")
    value = f" {shows}" if isinstance(parameter.kind, Flag) else shows
    return f"{parameter.short}, {name}{value}" if parameter.short else f"{name}{value}"


def _description(parameter: Parameter) -> str:
    default = parameter.default
    if not isinstance(parameter.kind, Flag) or parameter.required or default in (None, "", ()):
        return parameter.help
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{parameter.help} (default: {shown})"
