"""YAML that a student can read: block style, named anchors, a blank line between services.

The text is written line by line, without a YAML library: ruamel.yaml's emitter is pure Python, and
takes seconds for a thousand services.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver

from lab.config.yaml_reader import parse_scalar


@dataclass(frozen=True, slots=True)
class Variable:
    """A text whose `$` is kept: compose replaces it from the caller's environment."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping that merges named blocks, or that others merge.

    Attributes:
        content: The entries that it adds, or overrides.
        merges: The named blocks that it merges.
        name: The name of its YAML anchor, for those that merge it; or "".
    """

    content: Mapping[str, Value]
    merges: tuple[Block, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class StreamedMapping:
    """A section whose entries are made as they are written, so that never all are in memory.

    Attributes:
        made: Each key once, with its value; gone through once.
    """

    items: Iterator[tuple[str, Value]]


Value = str | int | float | bool | Variable | Block | Sequence["Value"] | Mapping[str, "Value"]
"""What a compose file is made of here."""

_YAML_1_1: Final = VersionedResolver(version=(1, 1))
_NOT_BARE: Final = re.compile(
    r"""$|[\s,\[\]{}#&*!|>'"%@`]|[-?:](\s|$)|---|\.\.\.|.*(:\s|:$|\s\#|\s$)"""
)
"""A text that cannot stand without quotation marks in block style."""

_NOT_BARE_IN_LINE: Final = re.compile(r".*[,?\[\]{}:]")
"""The same within square brackets."""


def compose_yaml(
    document: Mapping[str, Value | StreamedMapping], comments: Mapping[str, str]
) -> str:
    """Write a compose file; every `$` that is not a `Variable`'s is escaped.

    Args:
        document: The file's top level. A named block stands in it before the first that merges it.
        comments: A line of explanation for keys of the top level.
    """
    lines: list[str] = []
    put = lines.append
    for key, value in document.items():
        if lines:
            put("\n")
        if key in comments:
            put(f"# {comments[key]}\n")
        if not isinstance(value, StreamedMapping):
            _put(key, value, "", put)
            continue
        put(f"{_text(key)}:\n")
        for position, (name, entry) in enumerate(value.items):
            if position:
                put("\n")
            _put(name, entry, "  ", put)
    return "".join(lines)


_Put = Callable[[str], None]


def _put(key: str, value: Value, indent: str, put: _Put, lead: str | None = None) -> None:
    """Write an entry of a mapping.

    Args:
        key: The key.
        value: Its value.
        indent: What each line of the mapping begins with.
        put: Receives the lines.
        lead: What the first line begins with, if not with the indent.
    """
    head = f"{indent if lead is None else lead}{_text(key)}:"
    if isinstance(value, Block):
        put(f"{head} &{value.name}\n" if value.name else f"{head}\n")
        if value.merges:
            aliases = ", ".join(f"*{block.name}" for block in value.merges)
            put(f"{indent}  <<: {aliases if len(value.merges) == 1 else f'[{aliases}]'}\n")
        _put_all(value.content, f"{indent}  ", put)
    elif isinstance(value, Mapping):
        put(f"{head}\n" if value else f"{head} {{}}\n")
        _put_all(value, f"{indent}  ", put)
    elif isinstance(value, str) or not isinstance(value, Sequence):
        put(f"{head} {_scalar(value)}\n")
    elif mappings := [item for item in value if isinstance(item, Mapping)]:
        put(f"{head}\n")
        for item in mappings:
            _put_all(item, f"{indent}  ", put, f"{indent}- ")
    else:
        put(f"{head} [{', '.join(_scalar(item, in_line=True) for item in value)}]\n")


def _put_all(content: Mapping[str, Value], indent: str, put: _Put, lead: str | None = None) -> None:
    for key, value in content.items():
        _put(key, value, indent, put, lead)
        lead = None


def _scalar(value: Value, *, in_line: bool = False) -> str:
    if isinstance(value, str):  # first: nearly all of a file is text
        return _text(value, in_line=in_line)
    if isinstance(value, Variable):
        return value.text if not _NOT_BARE.match(value.text) else _single(value.text)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.12g}"


@lru_cache(maxsize=4096)
def _text(value: str, *, in_line: bool = False) -> str:
    """A text, in quotation marks unless every reader takes it for the same text without them."""
    text = value.replace("$", "$$")
    # By YAML 1.1, and by YAML 1.2.
    tag = _YAML_1_1.resolve(ScalarNode, text, (True, False))
    is_text = str(tag) == "tag:yaml.org,2002:str" and isinstance(parse_scalar(text), str)
    if not (is_text and text.isprintable()):
        return f'"{"".join(map(_escaped, text))}"'
    if _NOT_BARE.match(text) or (in_line and _NOT_BARE_IN_LINE.match(text)):
        return _single(text)
    return text


def _single(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
