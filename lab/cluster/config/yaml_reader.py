"""Reads strict YAML by ruamel.yaml, with the position of each value.

It reads the nodes that ruamel.yaml composes. A loader would construct values from them, but lose
what messages need: the positions of keys and values, and all repeated keys but the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.composer import ComposerError
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.reader import ReaderError

from lab.base.text import clipped, short
from lab.cluster.config.diagnostics import (
    Loc,
    Problem,
    ProblemError,
    SourceLocation,
    quoted,
    unquoted_if_plain,
)

MAX_BYTES: Final = 1024**2
MAX_DEPTH: Final = 16

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


@dataclass(slots=True)
class ParsedFile:
    """A parsed file.

    Attributes:
        value: The content: dict, list, str, int, float, bool and None only.
        value_locations: The position of each value.
        key_locations: The position of each key.
        problems: YAML features that a config must not use, and empty values.
    """

    value: Any = None
    value_locations: dict[Loc, SourceLocation] = field(default_factory=dict)
    key_locations: dict[Loc, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def read(self, node: Node, loc: Loc) -> object:
        """Return the value of a node, by recursion up to `MAX_DEPTH`; add what is found."""
        self.value_locations[loc] = _place(node.start_mark)
        if isinstance(node, MappingNode):
            return self._mapping(node, loc)
        if not isinstance(node, ScalarNode):
            return [self.read(item, (*loc, index)) for index, item in enumerate(node.value)]
        value = _scalar(node)
        if value is None:
            # On the key: ruamel.yaml puts an empty value at the next token.
            self.problems.append(Problem(loc, _empty(loc), on_key=True))
        return value

    def _mapping(self, node: MappingNode, loc: Loc) -> dict[str, object]:
        """Return the entries; the value of a refused key is not read."""
        entries: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._problem(loc, key_node, "a list or mapping as a key; write a string")
                continue
            key = _scalar(key_node)
            if not isinstance(key, str):
                shown = unquoted_if_plain(key_node.value)
                message = f"the key {shown} is not a string; put it in quotation marks"
                self._problem(loc, key_node, message)
                continue
            own = (*loc, key)
            if key in entries:
                line = self.key_locations[own].line
                self._problem(own, key_node, f"duplicate key; the first is on line {line}")
                continue
            self.key_locations[own] = _place(key_node.start_mark)
            entries[key] = self.read(value_node, own)
        return entries

    def _problem(self, loc: Loc, node: Node, message: str) -> None:
        self.problems.append(Problem(loc, message, location=_place(node.start_mark)))


def read_source(data: bytes) -> ParsedFile:
    """Parse the bytes of a file, at most one byte more than `MAX_BYTES`."""
    source = ParsedFile()
    try:
        source.value = source.read(_compose(_decode(data)), ())
    except ProblemError as error:
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


def _refusal(message: str, place: SourceLocation | None = None) -> ProblemError:
    return ProblemError(Problem((), message, location=place))


def _decode(data: bytes) -> str:
    """Return the text of a file.

    Raises:
        ProblemError: It is too large, or is not UTF-8.
    """
    if len(data) > MAX_BYTES:
        raise _refusal("the file is larger than 1 MiB; is it a config?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _refusal(message, _end_of(before)) from None


def _end_of(text: str) -> SourceLocation:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return SourceLocation(len(lines), len(lines[-1]) + 1)


def _compose(text: str) -> Node:
    """Return the nodes of a text.

    Raises:
        ProblemError: It is not YAML, is empty, or has what no config needs.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        if unwanted := list(_unwanted(yaml, text)):
            raise ProblemError(*unwanted)
        root: Node | None = yaml.compose(text)
    except ReaderError as error:
        message = f"a control character, U+{error.character:04X}; remove it"
        raise _refusal(message, _end_of(text[: error.position])) from None
    except ComposerError as error:  # its only reason, because aliases are refused
        message = "a second document; write one config per file"
        raise _refusal(message, _place(error.problem_mark)) from None
    except MarkedYAMLError as error:
        why = ", ".join(part for part in (error.context, error.problem) if part)
        message = f"not YAML: {short(why)}"
        if "'\\t'" in why:
            message = "a tab; YAML needs spaces for indentation"
        raise _refusal(message, _place(error.problem_mark or error.context_mark)) from None
    except YAMLError as error:
        raise _refusal(f"not YAML: {short(str(error))}") from None
    if root is None:
        raise _refusal("the file is empty; begin with an example from docs/reference")
    return root


def _unwanted(yaml: YAML, text: str) -> Iterator[Problem]:
    """Yield a problem for each alias, anchor and tag, and for the first value too deep inside."""
    depth = 0
    for event in yaml.parse(text):
        message = ""
        if anchor := getattr(event, "anchor", None):
            kind = "an alias, *" if isinstance(event, AliasEvent) else "an anchor, &"
            message = f"{kind}{clipped(str(anchor), 40)}; write out its value"
        elif (tag := getattr(event, "tag", None)) is not None:
            message = f"a tag, {quoted(str(tag), 40)}; remove it"
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep; reduce the nesting"
        if message:
            yield Problem((), message, location=_place(event.start_mark))
        if depth > MAX_DEPTH:
            return


def _scalar(node: ScalarNode) -> Scalar:
    return node.value if node.style else parse_scalar(node.value)


def _place(mark: StreamMark) -> SourceLocation:
    return SourceLocation(mark.line + 1, mark.column + 1)


def _empty(loc: Loc) -> str:
    # An empty node is useful; every other empty value is a mistake.
    if loc[:1] == ("nodes",) and len(loc) == 2:  # noqa: PLR2004
        return "is empty; write {} for a node without GPUs"
    return "is empty; give it a value, or remove it"
