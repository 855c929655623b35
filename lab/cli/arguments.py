"""The arguments of a command, checked against its signature before Fire runs it.

Without these checks, Fire runs a command first and reports a misspelt flag afterwards. It assigns
a stray argument to a parameter, and guesses types (`1.10` becomes 1.1, `--sync=false` a text). It
pages its help, and applies further arguments to the command's result. Here a command is a function.
Its parameters are keyword-only and annotated with their form on the command line::

    def command(*, task: Annotated[str, Argument("…")], tail: Annotated[int, Flag("…", count)] = 10)

This module matches the command line with these parameters and rejects every error. Fire receives
exactly one `--name=text` for each value, with an explicit parse function for each name.
"""

from __future__ import annotations

import inspect
import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from lab.cli.param_types import boolean, text
from lab.errors import InputError
from lab.text import suggestion

if TYPE_CHECKING:
    from lab.experiments.registry import ProgramFlag

HELP_FLAGS: Final = frozenset({"--help", "-h"})
_UNCHECKED_HINT: Final = "arguments after `--` are passed to the program unchecked"


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


@dataclass(slots=True)
class _ParsedArguments:
    """A command line: values by flag, positional arguments, and arguments after `--`."""

    flags: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)

    @property
    def program(self) -> str | None:
        """The program that receives the flags."""
        return self.positional[0] if self.positional else None


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """Return the parameters of a command, in the order of its signature."""
    hints = get_type_hints(function, include_extras=True)
    return [
        Parameter(each.name, hints[each.name].__metadata__[0], each.default)
        for each in inspect.signature(function).parameters.values()
    ]


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
    texts = check(name, function, arguments)
    # Imported here: Fire is slow to import, and errors in arguments are reported without it.
    import fire  # noqa: PLC0415
    from fire.decorators import SetParseFns  # noqa: PLC0415

    SetParseFns(**{each.name: each.parse for each in parameters(function)})(function)
    argv_for_fire = [f"--{key}={value}" for key, value in texts.items()]
    try:
        fire.Fire(function, command=argv_for_fire, name=f"lab {name}", serialize=lambda _: None)
    except fire.core.FireExit as error:
        raise RuntimeError(f"fire rejected checked arguments: {argv_for_fire}") from error


def check(command: str, function: Callable[..., None], arguments: Sequence[str]) -> dict[str, str]:
    """Match arguments with a command's parameters, without a call of the command.

    Returns:
        The text of each given parameter, by its name.

    Raises:
        InputError: The arguments are not valid.
    """
    known = parameters(function)
    rests = {each.name: each.kind for each in known if isinstance(each.kind, ProgramArguments)}
    rest = next(iter(rests.values()), None)
    given = _parse(command, known, rest, arguments)
    texts = _positional(command, known, given.positional)
    own = [each for each in known if each.is_flag]
    texts |= {each.name: given.flags.pop(each.flag) for each in own if each.flag in given.flags}
    for parameter in known:
        if parameter.required and parameter.name not in texts:
            raise InputError(
                f"`lab {command}` needs {parameter.usage}", f"see `lab {command} --help`"
            )
    for parameter in known:
        if parameter.name in texts:
            parameter.check(texts[parameter.name])
    if rest is None and given.verbatim:
        raise InputError(f"`lab {command}` starts no program", "leave out the arguments after `--`")
    for name, kind in rests.items():
        texts[name] = json.dumps(_program_arguments(command, kind, given))
    return texts


def _parse(
    command: str,
    known: Sequence[Parameter],
    rest: ProgramArguments | None,
    arguments: Sequence[str],
) -> _ParsedArguments:
    """Separate flags with their values, positional arguments, and arguments after `--`."""
    given = _ParsedArguments()
    own = {each.flag: each for each in known if each.is_flag}
    flags = (rest.flags(None) if rest else {}) | own
    shorts = {each.short: each.flag for each in known if each.short}
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        if argument == "--":
            given.verbatim = queue
            break
        if not argument.startswith("-") or argument == "-":
            given.positional.append(argument)
            continue
        head, equals, raw = argument.partition("=")
        name = head[2:].replace("-", "_") if head.startswith("--") else shorts.get(head, head)
        negated = name.removeprefix("no_")
        if name not in flags and negated in own and own[negated].is_switch:
            if equals:
                raise InputError(f"{head} takes no value")
            name, equals, raw = negated, "=", "false"
        if name not in flags:
            if _is_program_flag(head, rest, given.program):
                raise _after_dashes_error(command, given.positional[0], name)
            near = suggestion(f"--{name}", [f"--{each}" for each in flags])
            more = f"; {_UNCHECKED_HINT}" if rest and rest.known(None) and not near else ""
            what = f"no option {head!r} for `lab {command}`"
            raise InputError(what, f"{near}see `lab {command} --help`{more}")
        if not equals:
            raw = "true" if flags[name].is_switch else _next_value(head, queue)
        if isinstance(flags[name].kind, RepeatedFlag):
            raw = json.dumps([*json.loads(given.flags.pop(name, "[]")), raw])
        if name in given.flags:
            raise InputError(f"--{name} is given twice", "give it once")
        given.flags[name] = raw
    return given


def _next_value(flag: str, queue: list[str]) -> str:
    """Return the value of a flag: the next argument. `-1`, `-.5` and `-` are values."""
    if not queue or (queue[0].startswith("-") and queue[0][1:2] not in {"", ".", *"0123456789"}):
        raise InputError(f"{flag} needs a value", f"write {flag}=VALUE")
    return queue.pop(0)


def _positional(command: str, known: Sequence[Parameter], given: Sequence[str]) -> dict[str, str]:
    """Return the texts of the positional parameters, by name."""
    single = [each.name for each in known if isinstance(each.kind, Argument)]
    texts = dict(zip(single, given, strict=False))
    further = given[len(single) :]
    several = next((each.name for each in known if isinstance(each.kind, Arguments)), None)
    if further and several is not None:
        texts[several] = json.dumps(further)
    elif further:
        stray = further[0]
        near = suggestion(f"--{stray}", [f"--{each.flag}" for each in known if each.is_flag])
        if stray.lower() in {"true", "false"}:
            near = "give the value of a switch after an equals sign, as in --json=false; "
        hint = f"see `lab {command} --help`"
        raise InputError(f"unexpected argument {stray!r} for `lab {command}`", near + hint)
    return texts


def _program_arguments(command: str, rest: ProgramArguments, given: _ParsedArguments) -> list[str]:
    """Check the program's flags; return them and the verbatim arguments."""
    program = given.program
    flags = rest.flags(program)
    passed_on = []
    for name, raw in given.flags.items():
        flag = flags.get(name)
        if flag is None and program is not None and not flags:
            raise _after_dashes_error(command, program, name)
        if flag is None:
            near = suggestion(name, flags)
            raise InputError(
                f"{program!r} has no flag --{name}",
                f"{near}see `lab {command} {program} --help`; {_UNCHECKED_HINT}",
            )
        flag.check(raw)
        if not flag.is_switch:
            passed_on.append(f"--{name}={raw}")
        elif flag.parse(raw):
            passed_on.append(f"--{name}")
    return passed_on + given.verbatim


def _is_program_flag(flag: str, rest: ProgramArguments | None, program: str | None) -> bool:
    """Whether an unknown flag may belong to a program whose flags lab does not know."""
    if rest is None or rest.verbatim or program is None:
        return False
    return flag.startswith("--") and not rest.known(program)


def _after_dashes_error(command: str, program: str, name: str) -> InputError:
    """Return the error for a flag of a program whose flags lab does not know."""
    return InputError(
        f"--{name} is no option of `lab {command}`",
        f"put the flags of {program} after `--`: `lab {command} {program} -- --{name}`",
    )
