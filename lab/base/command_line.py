"""The arguments of a command, read by its signature before Fire calls it.

Without this, Fire runs a command first and reports a misspelt flag afterwards. It assigns a stray
argument to a parameter, and guesses types (`1.10` becomes 1.1, `--sync=false` a text). It pages its
help, and applies further arguments to the command's result. Here a command is a function. Its
parameters are annotated with their form on the command line::

    def run(task: Annotated[str, Argument("…")], *, tail: Annotated[int, Flag("…", count)] = 10)

This module matches the command line with these parameters, rejects every error, and converts each
text once. Fire receives only the names of the values, with a parse function that looks them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lab.base.errors import InputError
from lab.base.options import (
    Argument,
    Arguments,
    Parameter,
    ProgramArguments,
    RepeatedFlag,
    parameters,
)
from lab.base.text import suggestion

HELP_FLAGS: Final = frozenset({"--help", "-h"})
_UNCHECKED_HINT: Final = "arguments after `--` are passed to the program unchecked"


@dataclass(slots=True)
class _Words:
    """A command line: texts by flag, positional arguments, and arguments after `--`."""

    flags: dict[str, list[str]] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)

    @property
    def program(self) -> str | None:
        """The program that receives the flags."""
        return self.positional[0] if self.positional else None


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether a command's own arguments contain `--help`."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument in HELP_FLAGS for argument in own)


def call(name: str, function: Callable[..., None], arguments: Sequence[str]) -> None:
    """Check the arguments and call the command through Fire.

    Args:
        name: The command's name, for messages.
        function: The command; its parameters are keyword-only and have a `ParameterKind`.
        arguments: The arguments after the command's name.

    Raises:
        InputError: The arguments are not valid; nothing was executed.
        LabError: The command failed.
    """
    values = read_arguments(name, function, arguments)
    # A function that also reads texts from Python gets values here.
    function = getattr(function, "takes_values", function)
    # Imported here: Fire is slow to import, and errors in arguments are reported without it.
    import fire  # noqa: PLC0415
    from fire.decorators import SetParseFns  # noqa: PLC0415

    SetParseFns(**dict.fromkeys(values, values.__getitem__))(function)
    names = [f"--{each}={each}" for each in values]
    try:
        fire.Fire(function, command=names, name=f"lab {name}", serialize=lambda _: None)
    except fire.core.FireExit as error:
        raise RuntimeError(f"fire rejected checked arguments: {names}") from error


def read_arguments(
    command: str, function: Callable[..., object], arguments: Sequence[str]
) -> dict[str, Any]:
    """Match arguments with a command's parameters, without a call of the command.

    Returns:
        The value of each given parameter, by its name.

    Raises:
        InputError: The arguments are not valid.
    """
    known = parameters(function)
    rest = {each.name: each.kind for each in known if isinstance(each.kind, ProgramArguments)}
    given = _separated(command, known, next(iter(rest.values()), None), arguments)
    texts = _positional(command, known, given.positional)
    own = [each for each in known if each.is_flag]
    texts |= {each.name: given.flags.pop(each.flag) for each in own if each.flag in given.flags}
    for parameter in known:
        if parameter.required and parameter.name not in texts:
            raise InputError(
                f"`lab {command}` needs {parameter.usage}", f"see `lab {command} --help`"
            )
    values = {each.name: each.read(texts[each.name]) for each in known if each.name in texts}
    if given.verbatim and not rest:
        raise InputError(f"`lab {command}` takes no program", "leave out the arguments after `--`")
    for name, kind in rest.items():
        values[name] = tuple(_program_arguments(command, kind, given))
    return values


def _separated(
    command: str,
    known: Sequence[Parameter],
    rest: ProgramArguments | None,
    arguments: Sequence[str],
) -> _Words:
    """Separate flags with their values, positional arguments, and arguments after `--`."""
    parsed = _Words()
    own = {each.flag: each for each in known if each.is_flag}
    flags = {**(rest.flags(None) if rest else {}), **own}
    shorts = {each.short: each.flag for each in known if each.short}
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        if argument == "--":
            parsed.verbatim = queue
            break
        if not argument.startswith("-") or argument == "-":
            parsed.positional.append(argument)
            continue
        head, equals, raw = argument.partition("=")
        name = head[2:].replace("-", "_") if head.startswith("--") else shorts.get(head, head)
        negated = name.removeprefix("no_")
        if name not in flags and negated in own and own[negated].is_switch:
            if equals:
                raise InputError(f"{head} takes no value")
            name, equals, raw = negated, "=", "false"
        if name not in flags and rest and not rest.verbatim and parsed.program:
            flags = {**rest.flags(parsed.program), **flags}
        if name not in flags:
            program = parsed.program if rest and not rest.verbatim else None
            if head.startswith("--") and program and rest and not rest.flags(program):
                # It may belong to a program whose flags lab does not know.
                raise _after_dashes_error(command, program, name)
            near = suggestion(f"--{name}", [f"--{each}" for each in flags])
            more = f"; {_UNCHECKED_HINT}" if rest and rest.flags(None) and not near else ""
            problem = f"no option {head!r} for `lab {command}`"
            raise InputError(problem, f"{near}see `lab {command} --help`{more}")
        if not equals:
            raw = "true" if flags[name].is_switch else _next_value(head, queue)
        if name in parsed.flags and not isinstance(flags[name].kind, RepeatedFlag):
            raise InputError(f"--{name} is given twice", "give it once")
        parsed.flags.setdefault(name, []).append(raw)
    return parsed


def _next_value(flag: str, queue: list[str]) -> str:
    """Return the value of a flag: the next argument. `-1`, `-.5` and `-` are values."""
    if not queue or (queue[0].startswith("-") and queue[0][1:2] not in {"", ".", *"0123456789"}):
        raise InputError(f"{flag} needs a value", f"write {flag}=VALUE")
    return queue.pop(0)


def _positional(
    command: str, known: Sequence[Parameter], given: Sequence[str]
) -> dict[str, list[str]]:
    """Return the texts of the positional parameters, by name."""
    single = [each.name for each in known if isinstance(each.kind, Argument)]
    texts = {name: [text] for name, text in zip(single, given, strict=False)}
    further = given[len(single) :]
    several = next((each.name for each in known if isinstance(each.kind, Arguments)), None)
    if further and several is not None:
        texts[several] = list(further)
    elif further:
        stray = further[0]
        near = suggestion(f"--{stray}", [f"--{each.flag}" for each in known if each.is_flag])
        if stray.lower() in {"true", "false"}:
            near = "give the value of a switch after an equals sign, as in --json=false; "
        hint = f"see `lab {command} --help`"
        raise InputError(f"unexpected argument {stray!r} for `lab {command}`", near + hint)
    return texts


def _program_arguments(command: str, rest: ProgramArguments, parsed: _Words) -> list[str]:
    """Check the program's flags; return them and the verbatim arguments."""
    program = parsed.program
    flags = rest.flags(program)
    passed_on = []
    for name, texts in parsed.flags.items():
        flag = flags.get(name)
        if flag is None and program is not None and not flags:
            raise _after_dashes_error(command, program, name)
        if flag is None:
            near = suggestion(name, flags)
            raise InputError(
                f"{program!r} has no flag --{name}",
                f"{near}see `lab {command} {program} --help`; {_UNCHECKED_HINT}",
            )
        value = flag.read(texts)
        if not flag.is_switch:
            passed_on.append(f"--{name}={texts[-1]}")
        elif value:
            passed_on.append(f"--{name}")
    return passed_on + parsed.verbatim


def _after_dashes_error(command: str, program: str, name: str) -> InputError:
    """Return the error for a flag of a program whose flags lab does not know."""
    return InputError(
        f"--{name} is not an option of `lab {command}`",
        f"put the flags of {program} after `--`: `lab {command} {program} -- --{name}`",
    )
