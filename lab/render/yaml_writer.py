"""Writes readable YAML: block style, named anchors, a blank line between services.

It writes text line by line, without a YAML library: ruamel.yaml's emitter needs seconds for a
thousand services.
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
    """A text whose `$` is not escaped: compose replaces it from the caller's environment."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping that merges named blocks, or that other blocks merge.

    Attributes:
        content: The entries that it adds or overrides.
        merges: The named blocks that it merges.
        name: The name of its YAML anchor; "" if no block merges it.
    """

    content: Mapping[str, Value]
    merges: tuple[Block, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class StreamedMapping:
    """A section whose entries are generated while they are written, to save memory.

    Attributes:
        items: Keys with their values; can be iterated once.
    """

    items: Iterator[tuple[str, Value]]


Value = str | int | float | bool | Variable | Block | Sequence["Value"] | Mapping[str, "Value"]
"""A value in a compose file."""

_YAML_1_1: Final = VersionedResolver(version=(1, 1))
_NOT_BARE: Final = re.compile(
    r"""$|[\s,\[\]{}#&*!|>'"%@`]|[-?:](\s|$)|---|\.\.\.|.*(:\s|:$|\s\#|\s$)"""
)
"""Matches a text that needs quotation marks in block style."""

_NOT_BARE_IN_LINE: Final = re.compile(r".*[,?\[\]{}:]")
"""Matches a text that needs quotation marks within square brackets."""


def compose_yaml(
    document: Mapping[str, Value | StreamedMapping], comments: Mapping[str, str]
) -> str:
    """Return the text of a compose file. `$` is escaped, except in a `Variable`.

    Args:
        document: The file's top level. It must contain a named block before blocks that merge it.
        comments: Key of the top level to one line of comment.
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
        indent: The beginning of each line of the mapping.
        put: Receives the lines.
        lead: The beginning of the first line; None: `indent`.
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
    if isinstance(value, str):  # first, because most values are texts
        return _text(value, in_line=in_line)
    if isinstance(value, Variable):
        return value.text if not _NOT_BARE.match(value.text) else _single(value.text)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.12g}"


@lru_cache(maxsize=4096)
def _text(value: str, *, in_line: bool = False) -> str:
    """A text, in quotation marks unless every YAML reader reads it as the same text without."""
    text = value.replace("$", "$$")
    # Checked by the rules of YAML 1.1 and of YAML 1.2.
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
