"""A reader of strict YAML, with the position of each value.

It builds values from the parser's events, without ruamel.yaml's constructors. So it refuses deep
nesting, aliases and tags before they take memory or run code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from lab.config.diagnostics import (
    MAX_SHOWN,
    Loc,
    Problem,
    SourceLocation,
    quoted,
    unquoted_if_plain,
)
from lab.text import clipped, short

MAX_BYTES: Final = 1024**2
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 100_000  # twice what ten thousand nodes and tasks need

_EXAMPLES: Final = {"cluster": "cluster.yaml", "class": "the example of docs/teach.md"}
"""What a file describes, and a file to begin with."""

Scalar = str | int | float | bool | None

_KEYWORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS: Final[tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...]] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (
        re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        lambda text: float(text.replace(".", "")),
    ),
)
# Python refuses to convert a text of thousands of digits.
_LONGEST_NUMBER: Final = 40

# Tab indentation, apart from lines that are blank or a comment.
_TAB = re.compile(r"^ *(\t)[ \t]*[^\s#]", re.MULTILINE)
# A tag, or a directive that tags can use. ruamel.yaml needs quadratic time for a long one.
_TAG = re.compile(r"^%TAG.*|!<?[-;/?:@&=+$,_.!~*'()\[\]%#0-9A-Za-z]*", re.MULTILINE)
_LONGEST_TAG: Final = 1000
# All characters that are not printable in YAML, and three that are line ends in YAML 1.1 only
# (U+0085, U+2028, U+2029): behind them, an editor would count lines differently. A pattern of the
# allowed characters would take ten times as long to compile.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


@dataclass(slots=True)
class ParsedFile:
    """A parsed file.

    Attributes:
        value: The content: dict, list, str, int, float, bool and None only.
        value_locations: The position of each value.
        key_locations: The position of each key.
        problems: YAML features that a config must not use, and empty values.
        already_reported: Paths of values with a reported problem; these values are None.
        readable: Whether the reader could read the whole file.
    """

    value: Any = None
    value_locations: dict[Loc, SourceLocation] = field(default_factory=dict)
    key_locations: dict[Loc, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    already_reported: set[Loc] = field(default_factory=set)
    readable: bool = True


def read_source(data: bytes, noun: str = "cluster") -> ParsedFile:
    """Parse the bytes of a file.

    Args:
        data: The content, at most one byte more than `MAX_BYTES`.
        noun: What the file describes, for messages.
    """
    source = ParsedFile()
    try:
        source.problems = _Reader(source, noun).read(_decode(data, noun))
    except _UnreadableError as error:
        source.readable = False
        source.problems += error.problems
    return source


def parse_scalar(text: str) -> Scalar:
    """Return the value of a plain scalar by the core schema of YAML 1.2 (YAML 1.2.2, 10.3.2).

    `1_000`, `0b11` and dates are texts here; ruamel.yaml converts them.
    A number of more than 40 characters is a text, too: no config needs it.
    """
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if len(text) <= _LONGEST_NUMBER:
        for pattern, convert in _NUMBERS:
            if pattern.fullmatch(text):
                return convert(text)
    return text


class _UnreadableError(Exception):
    """The rest of the file cannot be read."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems = problems


def _refusal(message: str, place: SourceLocation | None = None) -> _UnreadableError:
    return _UnreadableError(Problem((), message, location=place))


def _decode(data: bytes, noun: str) -> str:
    """Return the text of a file.

    Raises:
        _UnreadableError: It is too large, is not UTF-8, or has control characters, tabs, or a long
            tag.
    """
    if len(data) > MAX_BYTES:
        raise _refusal(f"the file is larger than 1 MiB; is it a {noun} config?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _refusal(message, _place_in(before, len(before))) from None
    if control := _CONTROL.search(text):
        message = f"a control character, U+{ord(control.group()):04X}; remove it"
        raise _refusal(message, _place_in(text, control.start()))
    if tabs := list(islice(_TAB.finditer(text), MAX_SHOWN)):
        message = "a tab; YAML needs spaces for indentation"
        places = [_place_in(text, tab.start(1)) for tab in tabs]
        raise _UnreadableError(*(Problem((), message, location=place) for place in places))
    for tag in _TAG.finditer(text):
        if len(tag.group()) > _LONGEST_TAG:
            message = f"a tag of more than {_LONGEST_TAG:,} characters; remove it"
            raise _refusal(message, _place_in(text, tag.start()))
    return text


def _place_in(text: str, index: int) -> SourceLocation:
    before = text[:index].replace("\r\n", "\n").replace("\r", "\n")
    return SourceLocation(before.count("\n") + 1, len(before) - before.rfind("\n"))


class _Reader:
    """Builds values from events, by recursion up to `MAX_DEPTH`.

    A location of None belongs to a value whose key is refused: the reader skips the value and
    reports none of its problems.
    """

    def __init__(self, source: ParsedFile, noun: str = "cluster") -> None:
        self._source = source
        self._noun = noun
        self._count = 0
        self._events: Iterator[Event] = iter(())

    def read(self, text: str) -> list[Problem]:
        """Parse the text into the source.

        Raises:
            _UnreadableError: It is not YAML, is empty, or exceeds the limits.
        """
        self._events = YAML(typ="safe", pure=True).parse(text)
        documents = 0
        try:
            for event in self._events:
                documents += isinstance(event, DocumentStartEvent)
                if documents > 1:
                    message = f"a second document; write one {self._noun} per file"
                    self._problem((), event, message)
                    break
                if isinstance(event, NodeEvent):
                    self._source.value = self._value(event, (), 0)
        except YAMLError as error:
            raise _not_yaml(error) from None
        if not documents:
            raise _refusal(f"the file is empty; copy {_EXAMPLES[self._noun]} and change it")
        return self._source.problems

    def _value(self, event: Event, loc: Loc | None, depth: int) -> object:
        """Return the value that begins with an event."""
        self._count += 1
        if self._count > MAX_VALUES:
            message = f"more than {MAX_VALUES:,} values; no config needs that"
            raise _refusal(message, _place(event))
        if loc is not None:
            self._source.value_locations[loc] = _place(event)
        refused = self._refuse(event, loc)
        value: object = None
        if isinstance(event, ScalarEvent):
            if not refused:
                value = parse_scalar(event.value) if event.implicit[0] else event.value
                if value is None and loc:
                    # On the key: ruamel.yaml puts an empty value at the next token.
                    self._source.problems.append(Problem(loc, _empty(loc), on_key=True))
                    refused = True
        elif isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            value = self._collection(event, loc, depth)
        if refused and loc is not None:
            self._source.already_reported.add(loc)
        return value

    def _collection(self, event: Event, loc: Loc | None, depth: int) -> object:
        if depth >= MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep; no config needs that"
            raise _refusal(message, _place(event))
        items: list[object] = []
        entries: dict[str, object] = {}
        for inner in self._events:
            if isinstance(inner, CollectionEndEvent):
                break
            if isinstance(event, SequenceStartEvent):
                place = None if loc is None else (*loc, len(items))
                items.append(self._value(inner, place, depth + 1))
                continue
            key = self._key(inner, loc, depth, entries)
            place = None if key is None or loc is None else (*loc, key)
            value = self._value(next(self._events), place, depth + 1)
            if key is not None:
                entries[key] = value
        return items if isinstance(event, SequenceStartEvent) else entries

    def _key(
        self, event: Event, loc: Loc | None, depth: int, entries: dict[str, object]
    ) -> str | None:
        """Return the key of an event; None if it is refused."""
        if isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            self._problem(loc, event, "a list or mapping as a key; write a text")
            self._collection(event, None, depth + 1)
            return None
        if self._refuse(event, loc) or not isinstance(event, ScalarEvent):
            return None
        key = parse_scalar(event.value) if event.implicit[0] else event.value
        if not isinstance(key, str):
            message = (
                f"the key {unquoted_if_plain(event.value)} is not a text; put it in quotation marks"
            )
            self._problem(loc, event, message)
            return None
        if loc is None:
            return key
        own = (*loc, key)
        if key in entries:
            line = self._source.key_locations[own].line
            self._problem(own, event, f"the key is here twice; the first is on line {line}")
            return None
        self._source.key_locations[own] = _place(event)
        return key

    def _refuse(self, event: Event, loc: Loc | None) -> bool:
        """Report an alias, an anchor or a tag; return whether the value is refused."""
        is_alias = isinstance(event, AliasEvent)
        if anchor := getattr(event, "anchor", None):
            name = clipped(str(anchor), 40)
            if is_alias:
                self._problem(loc, event, f"an alias, *{name}; write out its value")
            else:
                self._problem(loc, event, f"an anchor, &{name}; write out its value")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._problem(loc, event, f"a tag, {quoted(tag, 40)}; remove it")
        return is_alias or tag is not None

    def _problem(self, loc: Loc | None, event: Event, message: str) -> None:
        if loc is not None:
            self._source.problems.append(Problem(loc, message, location=_place(event)))


def _place(event: Event) -> SourceLocation:
    return SourceLocation(event.start_mark.line + 1, event.start_mark.column + 1)


def _not_yaml(error: YAMLError) -> _UnreadableError:
    if not isinstance(error, MarkedYAMLError):
        return _refusal(f"not YAML: {short(str(error))}")
    mark = error.problem_mark or error.context_mark
    why = ", ".join(part for part in (error.context, error.problem) if part)
    return _refusal(f"not YAML: {short(why)}", SourceLocation(mark.line + 1, mark.column + 1))


def _empty(loc: Loc) -> str:
    # An empty node is useful; every other empty value is a mistake.
    if loc[0] == "nodes" and len(loc) == 2:  # noqa: PLR2004
        return "is empty; write {} for a node without GPUs"
    return "is empty; give it a value, or remove it"
