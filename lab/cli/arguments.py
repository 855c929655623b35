"""Fire, tamed: argv is checked against the command's signature before Fire runs.

Left alone, Fire runs a command first and reports a misspelt flag afterwards, lets a stray word
fill a parameter, guesses types (`1.10` becomes 1.1, `--sync=false` a true text), pages its help
and chains into whatever a command returns. Here a command is a function whose parameters are
keyword-only and annotated with what they are on the command line::

    def command(*, task: Annotated[str, Word("…")], tail: Annotated[int, Flag("…", count)] = 10)

The words are matched with these parameters, all faults are refused, and Fire receives exactly one
`--name=text` for each value, with an explicit parse function for each name.
"""

from __future__ import annotations

import inspect
import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from lab.cli.values import boolean, text
from lab.errors import InputError
from lab.task.text import suggestion

if TYPE_CHECKING:
    from lab.task.experiments import ProgramFlag

HELP: Final = frozenset({"--help", "-h"})
_UNCHECKED: Final = "what stands behind `--` is handed on to the program unchecked"


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


@dataclass(frozen=True, slots=True)
class Word:
    """A word in its place, without a flag."""

    help: str
    parse: Callable[[str], object] = text
    shows: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """All further words, without a flag: one at least. It stands behind every `Word`."""

    help: str
    shows: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Flags that are handed on to a program, and all words behind `--`, verbatim.

    Attributes:
        help: What they are.
        known: The program's flags, by the first word of the command line (None: of any program).
        verbatim: Whether only words behind `--` are handed on, and the first word is no program.
    """

    help: str
    known: Callable[[str | None], Mapping[str, ProgramFlag]] = lambda _program: {}
    verbatim: bool = False


Kind = Flag | Switch | Word | Words | Rest


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command, as the command line sees it."""

    name: str
    kind: Kind
    required: bool
    default: object

    @property
    def flag(self) -> str:
        """Its name on the command line: `all` for the parameter `all_`."""
        return self.name.rstrip("_")


@dataclass(slots=True)
class _Given:
    """What the words of one command line say: texts by parameter, and the program's words."""

    texts: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    program: list[tuple[str, str | None]] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """The parameters of a command, in the order in which they stand in its signature."""
    hints = get_type_hints(function, include_extras=True)
    found = []
    for parameter in inspect.signature(function).parameters.values():
        (kind,) = hints[parameter.name].__metadata__
        required = parameter.default is inspect.Parameter.empty
        found.append(Parameter(parameter.name, kind, required, parameter.default))
    return found


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether `--help` stands among a command's own words."""
    own = words[: words.index("--")] if "--" in words else words
    return any(word in HELP for word in own)


def check(name: str, function: Callable[..., None], words: Sequence[str]) -> dict[str, str]:
    """Match words with a command's parameters, and call nothing.

    Returns:
        The text of each parameter that was given.

    Raises:
        InputError: The words do not fit.
    """
    return _texts(name, parameters(function), words)


def call(name: str, function: Callable[..., None], words: Sequence[str]) -> None:
    """Check the words and call the command through Fire.

    Args:
        name: The command's name, for messages.
        function: The command; its parameters are keyword-only and annotated with a `Kind`.
        words: The words behind the command's name.

    Raises:
        InputError: The words do not fit; nothing was executed.
        LabError: What the command itself raises.
    """
    texts = check(name, function, words)
    # Imported here: Fire costs more than many a command, and none of it is needed to refuse.
    import fire  # noqa: PLC0415
    from fire.decorators import SetParseFns  # noqa: PLC0415

    parsers = {parameter.name: _parser(parameter) for parameter in parameters(function)}
    SetParseFns(**parsers)(function)
    words_for_fire = [f"--{key}={value}" for key, value in texts.items()]
    try:
        fire.Fire(function, command=words_for_fire, name=f"lab {name}", serialize=lambda _: None)
    except fire.core.FireExit as error:
        raise RuntimeError(f"fire refused checked words: {words_for_fire}") from error


def _parser(parameter: Parameter) -> Callable[[str], Any]:
    match parameter.kind:
        case Switch():
            return boolean
        case Rest() | Words():
            return lambda raw: tuple(json.loads(raw))
        case _:
            return parameter.kind.parse


def _texts(command: str, known: Sequence[Parameter], words: Sequence[str]) -> dict[str, str]:
    """Match words with parameters; the text of each that was given."""
    given = _read(command, known, words)
    places = [parameter for parameter in known if isinstance(parameter.kind, Word)]
    several = next((each for each in known if isinstance(each.kind, Words)), None)
    hint = f"see `lab {command} --help`"
    if several is not None and len(given.words) > len(places):
        given.texts[several.name] = json.dumps(given.words[len(places) :])
    elif len(given.words) > len(places):
        stray = given.words[len(places)]
        flags = [f"--{parameter.flag}" for parameter in known if _is_flag(parameter)]
        near = suggestion(f"--{stray}", flags)
        if stray.lower() in {"true", "false"}:
            near = "a switch has its value behind a sign of equality, as in --json=false; "
        raise InputError(f"stray word {stray!r} behind `lab {command}`", near + hint)
    for parameter, word in zip(places, given.words, strict=False):
        given.texts[parameter.name] = word
    for parameter in known:
        if parameter.required and parameter.name not in given.texts:
            raise InputError(f"`lab {command}` needs {placeholder(parameter)}", hint)
    for parameter in known:
        if parameter.name in given.texts:
            label = parameter.flag if parameter in places else f"--{parameter.flag}"
            _check(label, _parser(parameter), given.texts[parameter.name])
    _hand_on(command, known, given)
    return given.texts


def placeholder(parameter: Parameter) -> str:
    """How a parameter that is needed is shown: `EXPERIMENT`, or `--over QUANTITIES`."""
    if isinstance(parameter.kind, Flag):
        return f"--{parameter.flag} {parameter.kind.shows}"
    shown = parameter.kind.shows if isinstance(parameter.kind, Word | Words) else ""
    return shown or parameter.flag.upper()


def _check(label: str, parse: Callable[[str], object], raw: str) -> None:
    try:
        parse(raw)
    except ValueError as error:
        raise InputError(f"{label}: {raw!r} is not {error}") from error
    except ArgumentTypeError as error:
        raise InputError(f"{label}: {error}") from error


def _hand_on(command: str, known: Sequence[Parameter], given: _Given) -> None:
    """Check the program's flags and write them, with the verbatim words, into one text."""
    rest = next((parameter for parameter in known if isinstance(parameter.kind, Rest)), None)
    if rest is None or not isinstance(rest.kind, Rest):
        if given.verbatim:
            raise InputError(f"`lab {command}` starts no program", "leave out what follows `--`")
        return
    program = given.words[0] if given.words else None
    flags = rest.kind.known(program)
    handed_on: list[str] = []
    for name, raw in given.program:
        flag = flags.get(name)
        if flag is None and program is not None and not flags:
            raise _behind_dashes(command, program, name)
        if flag is None:
            near = suggestion(name, flags)
            raise InputError(
                f"{program!r} has no flag --{name}",
                f"{near}see `lab {command} --help`; {_UNCHECKED}",
            )
        if raw is not None:
            _check(f"--{name}", flag.parse, raw)
        if not flag.is_switch:
            handed_on.append(f"--{name}={raw}")
        elif raw is None or flag.parse(raw) is True:
            handed_on.append(f"--{name}")
    given.texts[rest.name] = json.dumps(handed_on + given.verbatim)


def _read(command: str, known: Sequence[Parameter], words: Sequence[str]) -> _Given:
    """Tell flags, their values and words in their places apart."""
    given = _Given()
    flags = {parameter.flag: parameter for parameter in known if _is_flag(parameter)}
    shorts = {_short(parameter): parameter.flag for parameter in known if _short(parameter)}
    rests = [parameter.kind for parameter in known if isinstance(parameter.kind, Rest)]
    program: Mapping[str, ProgramFlag] = rests[0].known(None) if rests else {}
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            given.verbatim = queue
            break
        if not word.startswith("-") or word == "-":
            given.words.append(word)
            continue
        name, raw = _split(word, shorts)
        negated = name.removeprefix("no_")
        if negated != name and name not in flags and _is_switch(flags.get(negated)):
            if raw is not None:
                raise InputError(f"{word.partition('=')[0]} takes no value")
            name, raw = negated, "false"
        if name in flags:
            raw = _value(word, queue, raw, is_switch=_is_switch(flags[name]), default="true")
            key = flags[name].name
            if key in given.texts:
                raise InputError(f"--{name} is given twice", "give it once")
            given.texts[key] = raw or ""
        elif name in program:
            if name in (other for other, _ in given.program):
                raise InputError(f"--{name} is given twice", "give it once")
            is_switch = program[name].is_switch
            raw = _value(word, queue, raw, is_switch=is_switch, default=None)
            given.program.append((name, raw))
        elif _is_of_a_program(rests, given.words, word):
            raise _behind_dashes(command, given.words[0], name)
        else:
            raise _no_option(command, word, name, (*flags, *program), hands_on=bool(program))
    return given


def _is_of_a_program(rests: Sequence[Rest], words: Sequence[str], word: str) -> bool:
    """Whether a flag is meant for a program whose flags are not known here."""
    if not rests or rests[0].verbatim or not words:
        return False
    return word.startswith("--") and not rests[0].known(words[0])


def _no_option(
    command: str, word: str, name: str, known: Iterable[str], *, hands_on: bool
) -> InputError:
    near = suggestion(f"--{name}", [f"--{each}" for each in known])
    more = f"; {_UNCHECKED}" if hands_on and not near else ""
    what = f"no option {word.partition('=')[0]!r} for `lab {command}`"
    return InputError(what, f"{near}see `lab {command} --help`{more}")


def _behind_dashes(command: str, program: str, name: str) -> InputError:
    """For a program whose flags are not known here."""
    return InputError(
        f"--{name} is no option of `lab {command}`",
        f"the flags of {program} itself stand behind `--`: lab {command} {program} -- --{name}",
    )


def _split(word: str, shorts: Mapping[str, str]) -> tuple[str, str | None]:
    head, equals, raw = word.partition("=")
    name = head.removeprefix("--").replace("-", "_") if head.startswith("--") else head
    return shorts.get(name, name), raw if equals else None


def _value(
    word: str, queue: list[str], raw: str | None, *, is_switch: bool, default: str | None
) -> str | None:
    if raw is not None:
        return raw
    if is_switch:
        return default
    if not queue or (queue[0].startswith("-") and not _may_be_a_value(queue[0])):
        raise InputError(f"{word} needs a value", f"write {word}=VALUE")
    return queue.pop(0)


def _may_be_a_value(word: str) -> bool:
    return word == "-" or word[1:2].isdigit() or word[1:2] == "."


def _is_flag(parameter: Parameter) -> bool:
    return isinstance(parameter.kind, Flag | Switch)


def _is_switch(parameter: Parameter | None) -> bool:
    return parameter is not None and isinstance(parameter.kind, Switch)


def _short(parameter: Parameter) -> str:
    return parameter.kind.short if isinstance(parameter.kind, Flag | Switch) else ""
