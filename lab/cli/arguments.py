"""The arguments of a command, checked against its signature before Fire runs it.

Left alone, Fire runs a command first and reports a misspelt flag afterwards. It lets a stray
argument fill a parameter, guesses types (`1.10` becomes 1.1, `--sync=false` a true text), pages its
help and chains into whatever a command returns. Here a command is a function whose parameters are
keyword-only and annotated with what they are on the command line::

    def command(*, task: Annotated[str, Word("…")], tail: Annotated[int, Flag("…", count)] = 10)

The command line is matched with these parameters and all faults are refused. Fire receives exactly
one `--name=text` for each value, with an explicit parse function for each name.
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
from lab.task.text import suggestion

if TYPE_CHECKING:
    from lab.task.protocol.experiments import ProgramFlag

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
class Switch:
    """A flag without a value; `--name=false` and `--no-name` say no."""

    help: str
    short: str = ""
    parse: Callable[[str], object] = boolean


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument in its place, without a flag."""

    help: str
    parse: Callable[[str], object] = text
    shows: str = ""


@dataclass(frozen=True, slots=True)
class Arguments:
    """All further arguments without a flag: one at least. It stands behind every `Word`."""

    help: str
    shows: str


@dataclass(frozen=True, slots=True)
class ProgramArguments:
    """Flags that are handed on to a program, and all arguments behind `--`, verbatim.

    Attributes:
        help: What they are.
        known: The program's flags, by the first argument of the command (None: of any program).
        verbatim: Whether only arguments behind `--` are handed on, and the first one is no program.
    """

    help: str
    known: Callable[[str | None], Mapping[str, ProgramFlag]] = lambda _program: {}
    verbatim: bool = False

    def flags(self, program: str | None) -> dict[str, Parameter]:
        """The program's flags by name, as parameters."""
        flags = {}
        for name, flag in self.known(program).items():
            kind = Switch if flag.is_switch else Flag
            flags[name] = Parameter(name, kind(flag.help, parse=flag.parse), default=None)
        return flags


ParameterKind = Flag | Switch | Argument | Arguments | ProgramArguments


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command, as the command line sees it."""

    name: str
    kind: ParameterKind
    default: object = inspect.Parameter.empty

    @property
    def flag(self) -> str:
        """Its name on the command line: `all` for the parameter `all_`."""
        return self.name.rstrip("_")

    @property
    def required(self) -> bool:
        """Whether the command needs it."""
        return self.default is inspect.Parameter.empty

    @property
    def is_flag(self) -> bool:
        """Whether it is given by its name."""
        return isinstance(self.kind, Flag | Switch)

    @property
    def is_switch(self) -> bool:
        """Whether it is given by its name alone."""
        return isinstance(self.kind, Switch)

    @property
    def short(self) -> str:
        """Its short name, `-f`, or ""."""
        return self.kind.short if isinstance(self.kind, Flag | Switch) else ""

    @property
    def usage(self) -> str:
        """How an error or a usage line shows it: `EXPERIMENT`, or `--over QUANTITIES`."""
        if isinstance(self.kind, Flag):
            return f"--{self.flag} {self.kind.shows}"
        return getattr(self.kind, "shows", "") or self.flag.upper()

    def parse(self, raw: str) -> Any:  # noqa: ANN401  (whatever the command's parameter takes)
        """The value of a text.

        Raises:
            ValueError: It says what was expected.
            ArgumentTypeError: It says what is wrong.
        """
        if isinstance(self.kind, Arguments | ProgramArguments):
            return tuple(json.loads(raw))
        return self.kind.parse(raw)

    def check(self, raw: str) -> None:
        """See that a text can be parsed.

        Raises:
            InputError: It cannot.
        """
        label = f"--{self.flag}" if self.is_flag else self.flag
        try:
            self.parse(raw)
        except ValueError as error:
            raise InputError(f"{label}: {raw!r} is not {error}") from error
        except ArgumentTypeError as error:
            raise InputError(f"{label}: {error}") from error


@dataclass(slots=True)
class _ParsedArguments:
    """What a command line gives: values by flag, arguments in their places, those behind `--`."""

    flags: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)

    @property
    def program(self) -> str | None:
        """The program for which flags are handed on."""
        return self.positional[0] if self.positional else None


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """The parameters of a command, in the order in which they stand in its signature."""
    hints = get_type_hints(function, include_extras=True)
    return [
        Parameter(each.name, hints[each.name].__metadata__[0], each.default)
        for each in inspect.signature(function).parameters.values()
    ]


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether `--help` stands among a command's own arguments."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument in HELP_FLAGS for argument in own)


def call(name: str, function: Callable[..., None], arguments: Sequence[str]) -> None:
    """Check the arguments and call the command through Fire.

    Args:
        name: The command's name, for messages.
        function: The command; its parameters are keyword-only and annotated with a `Kind`.
        arguments: The arguments behind the command's name.

    Raises:
        InputError: The arguments do not fit; nothing was executed.
        LabError: What the command itself raises.
    """
    texts = check(name, function, arguments)
    # Imported here: Fire costs more than many a command, and none of it is needed to refuse.
    import fire  # noqa: PLC0415
    from fire.decorators import SetParseFns  # noqa: PLC0415

    SetParseFns(**{each.name: each.parse for each in parameters(function)})(function)
    argv_for_fire = [f"--{key}={value}" for key, value in texts.items()]
    try:
        fire.Fire(function, command=argv_for_fire, name=f"lab {name}", serialize=lambda _: None)
    except fire.core.FireExit as error:
        raise RuntimeError(f"fire refused checked words: {argv_for_fire}") from error


def check(command: str, function: Callable[..., None], arguments: Sequence[str]) -> dict[str, str]:
    """Match arguments with a command's parameters, and call nothing.

    Returns:
        The text of each parameter that was given.

    Raises:
        InputError: The arguments do not fit.
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
        raise InputError(f"`lab {command}` starts no program", "leave out what follows `--`")
    for name, kind in rests.items():
        texts[name] = json.dumps(_program_arguments(command, kind, given))
    return texts


def _parse(
    command: str,
    known: Sequence[Parameter],
    rest: ProgramArguments | None,
    arguments: Sequence[str],
) -> _ParsedArguments:
    """Separate flags with their values, arguments in their places, and what follows `--`."""
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
        if name in given.flags:
            raise InputError(f"--{name} is given twice", "give it once")
        given.flags[name] = raw
    return given


def _next_value(flag: str, queue: list[str]) -> str:
    """Take the value of a flag from the arguments behind it; `-1`, `-.5` and `-` are values."""
    if not queue or (queue[0].startswith("-") and queue[0][1:2] not in {"", ".", *"0123456789"}):
        raise InputError(f"{flag} needs a value", f"write {flag}=VALUE")
    return queue.pop(0)


def _positional(command: str, known: Sequence[Parameter], places: Sequence[str]) -> dict[str, str]:
    """The texts of the parameters without flags."""
    single = [each.name for each in known if isinstance(each.kind, Argument)]
    texts = dict(zip(single, places, strict=False))
    further = places[len(single) :]
    several = next((each.name for each in known if isinstance(each.kind, Arguments)), None)
    if further and several is not None:
        texts[several] = json.dumps(further)
    elif further:
        stray = further[0]
        near = suggestion(f"--{stray}", [f"--{each.flag}" for each in known if each.is_flag])
        if stray.lower() in {"true", "false"}:
            near = "write the value of a switch after an equals sign, as in --json=false; "
        hint = f"see `lab {command} --help`"
        raise InputError(f"unexpected argument {stray!r} for `lab {command}`", near + hint)
    return texts


def _program_arguments(command: str, rest: ProgramArguments, given: _ParsedArguments) -> list[str]:
    """Check the flags that are the program's; these, and the verbatim arguments."""
    program = given.program
    flags = rest.flags(program)
    handed_on = []
    for name, raw in given.flags.items():
        flag = flags.get(name)
        if flag is None and program is not None and not flags:
            raise _after_dashes_error(command, program, name)
        if flag is None:
            near = suggestion(name, flags)
            raise InputError(
                f"{program!r} has no flag --{name}",
                f"{near}see `lab {command} --help`; {_UNCHECKED_HINT}",
            )
        flag.check(raw)
        if not flag.is_switch:
            handed_on.append(f"--{name}={raw}")
        elif flag.parse(raw):
            handed_on.append(f"--{name}")
    return handed_on + given.verbatim


def _is_program_flag(flag: str, rest: ProgramArguments | None, program: str | None) -> bool:
    """Whether an unknown flag is meant for a program whose flags are not known here."""
    if rest is None or rest.verbatim or program is None:
        return False
    return flag.startswith("--") and not rest.known(program)


def _after_dashes_error(command: str, program: str, name: str) -> InputError:
    """The error of a flag of a program whose flags are not known here."""
    return InputError(
        f"--{name} is no option of `lab {command}`",
        f"put the flags of {program} after `--`: lab {command} {program} -- --{name}",
    )
