"""Reads strict YAML by ruamel.yaml, with the position of each value.

It reads the nodes that ruamel.yaml composes. A loader would construct values from them, but lose
what messages need: the positions of aliases, the tags, and all repeated keys but the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

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

_EXAMPLES: Final = {"cluster": "cluster.yaml", "class": "the example of docs/reference/class.md"}
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
        root = _compose(_decode(data, noun), noun)
        source.value = _Reader(source).value(root, ())
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


def _compose(text: str, noun: str) -> Node:
    """Return the nodes of a text.

    Raises:
        _UnreadableError: It is not YAML, is empty, has two documents, or exceeds the limits.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    try:
        root: Node | None = yaml.compose(text)
    except ComposerError as error:  # its only reason, because aliases are not resolved
        message = f"a second document; write one {noun} per file"
        raise _refusal(message, _place(error.problem_mark)) from None
    except MarkedYAMLError as error:
        why = ", ".join(part for part in (error.context, error.problem) if part)
        place = _place(error.problem_mark or error.context_mark)
        raise _refusal(f"not YAML: {short(why)}", place) from None
    except YAMLError as error:
        raise _refusal(f"not YAML: {short(str(error))}") from None
    if root is None:
        raise _refusal(f"the file is empty; copy {_EXAMPLES[noun]} and change it")
    return root


class _Alias(ScalarNode):
    """An alias; `anchor` has its name."""

    __slots__ = ()


class _Composer(Composer):
    """Composes nodes within the limits, and does not resolve aliases.

    Raises:
        _UnreadableError: The text has too many values, or is nested too deeply.
    """

    def __init__(self, loader: YAML | None = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False
        self._values = 0

    def compose_node(self, parent: Node | None, index: object) -> Node:
        event = self.parser.peek_event()
        is_key = isinstance(parent, MappingNode) and index is None
        self._values += not is_key
        if self._values > MAX_VALUES:
            message = f"more than {MAX_VALUES:,} values; no config needs that"
            raise _refusal(message, _place(event.start_mark))
        if isinstance(event, CollectionStartEvent) and self.depth >= MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep; no config needs that"
            raise _refusal(message, _place(event.start_mark))
        if isinstance(event, AliasEvent):
            self.parser.get_event()
            node: Node = _Alias(None, "", event.start_mark, anchor=event.anchor)
        else:
            node = super().compose_node(parent, index)
        # Only a tag of the file, not the tag that ruamel.yaml finds for its type.
        node.tag = getattr(event, "tag", None)
        return node


class _Reader:
    """Converts nodes to values, by recursion up to `MAX_DEPTH`."""

    def __init__(self, source: ParsedFile) -> None:
        self._source = source

    def value(self, node: Node, loc: Loc) -> object:
        """Return the value of a node; add its problems and positions to the source."""
        self._source.value_locations[loc] = _place(node.start_mark)
        is_refused = self._refuse(node, loc)
        value: object = None
        if isinstance(node, MappingNode):
            value = self._mapping(node, loc)
        elif isinstance(node, SequenceNode):
            value = [self.value(item, (*loc, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, ScalarNode) and not is_refused:
            value = _scalar(node)
            if value is None and loc:
                # On the key: ruamel.yaml puts an empty value at the next token.
                self._source.problems.append(Problem(loc, _empty(loc), on_key=True))
                is_refused = True
        if is_refused:
            self._source.already_reported.add(loc)
        return value

    def _mapping(self, node: MappingNode, loc: Loc) -> dict[str, object]:
        """Return the entries; the value of a refused key is not read."""
        entries: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, loc)
            if key is None:
                continue
            own = (*loc, key)
            if key in entries:
                line = self._source.key_locations[own].line
                message = f"the key is here twice; the first is on line {line}"
                self._problem(own, key_node, message)
                continue
            self._source.key_locations[own] = _place(key_node.start_mark)
            entries[key] = self.value(value_node, own)
        return entries

    def _key(self, node: Node, loc: Loc) -> str | None:
        """Return the key of a node; None if it is refused."""
        if not isinstance(node, ScalarNode):
            self._problem(loc, node, "a list or mapping as a key; write a text")
            return None
        if self._refuse(node, loc):
            return None
        key = _scalar(node)
        if not isinstance(key, str):
            shown = unquoted_if_plain(node.value)
            self._problem(loc, node, f"the key {shown} is not a text; put it in quotation marks")
            return None
        return key

    def _refuse(self, node: Node, loc: Loc) -> bool:
        """Report an alias, an anchor or a tag; return whether the value is refused."""
        is_alias = isinstance(node, _Alias)
        if node.anchor:
            name = clipped(str(node.anchor), 40)
            what = f"an alias, *{name}" if is_alias else f"an anchor, &{name}"
            self._problem(loc, node, f"{what}; write out its value")
        if node.tag is not None:
            self._problem(loc, node, f"a tag, {quoted(node.tag, 40)}; remove it")
        return is_alias or node.tag is not None

    def _problem(self, loc: Loc, node: Node, message: str) -> None:
        self._source.problems.append(Problem(loc, message, location=_place(node.start_mark)))


def _scalar(node: ScalarNode) -> Scalar:
    return node.value if node.style else parse_scalar(node.value)


def _place(mark: StreamMark) -> SourceLocation:
    return SourceLocation(mark.line + 1, mark.column + 1)


def _empty(loc: Loc) -> str:
    # An empty node is useful; every other empty value is a mistake.
    if loc[0] == "nodes" and len(loc) == 2:  # noqa: PLR2004
        return "is empty; write {} for a node without GPUs"
    return "is empty; give it a value, or remove it"
