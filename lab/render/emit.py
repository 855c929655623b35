"""YAML that a student can read: block style, named anchors, a blank line between services.

The document is handed to PyYAML's emitter event by event. PyYAML's representer would name the
anchors `id001`, and takes seconds for a thousand services; a generator of events, which passes each
through as many frames as it is deep, took three quarters of what ten thousand tasks cost.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import yaml
from yaml.resolver import Resolver

from lab.config.scalars import plain


@dataclass(frozen=True, slots=True)
class Variable:
    """A text whose `$` is meant: compose puts the caller's environment there."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping that begins with what others say, or that others begin with.

    Attributes:
        content: What it adds, or says differently.
        merges: The named blocks that it begins with.
        name: The name of its YAML anchor, for those that merge it; or "".
    """

    content: Mapping[str, Value]
    merges: tuple[Block, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping whose entries are made as they are written, so that never all are in memory.

    Attributes:
        made: Each key once, with its value; gone through once.
    """

    made: Iterator[tuple[str, Value]]


Value = (
    str
    | int
    | float
    | bool
    | Variable
    | Block
    | Entries
    | Sequence["Value"]
    | Mapping[str, "Value"]
)
"""What a compose file is made of here."""

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT: Final = "tag:yaml.org,2002:str"
_RESOLVER: Final = Resolver()
_WIDE: Final = 2**30  # no text is ever folded
_QUOTED: Final = (False, True)
_BARE: Final = (True, True)
_MERGE: Final = yaml.ScalarEvent(None, None, _BARE, "<<")
_MERGED: Final = yaml.SequenceStartEvent(None, None, implicit=True, flow_style=True)
_MAPPING: Final = yaml.MappingStartEvent(None, None, implicit=True, flow_style=False)
_MAPPING_END: Final = yaml.MappingEndEvent()
_SEQUENCE_END: Final = yaml.SequenceEndEvent()


def compose_yaml(document: Mapping[str, Value], comments: Mapping[str, str]) -> str:
    """Write a compose file; every `$` that is not a `Variable`'s is escaped.

    Args:
        document: The file's top level. A named block stands in it before the first that merges it.
        comments: A line of explanation for keys of the top level.
    """
    text = io.StringIO()
    dumper = _DUMPER(text, width=_WIDE, allow_unicode=True)
    try:
        _put_document(document, dumper.emit)
    finally:
        dumper.dispose()
    return "".join(_laid_out(text.getvalue().splitlines(keepends=True), comments))


def _laid_out(lines: Iterable[str], comments: Mapping[str, str]) -> Iterator[str]:
    """A blank line between sections and between services, and the sections' comments."""
    before = ""
    in_services = False
    for line in lines:
        if not line.startswith(" "):
            in_services = line == "services:\n"
            if before:
                yield "\n"
            comment = comments.get(line.partition(":")[0])
            if comment is not None:
                yield f"# {comment}\n"
        elif in_services and line[2] != " " and before != "services:\n":
            yield "\n"
        yield line
        before = line


_Put = Callable[[yaml.Event], None]


def _put_document(document: Mapping[str, Value], put: _Put) -> None:
    put(yaml.StreamStartEvent())
    put(yaml.DocumentStartEvent(explicit=False))
    _put_mapping(document.items(), (), put)
    put(yaml.DocumentEndEvent(explicit=False))
    put(yaml.StreamEndEvent())


def _put_value(value: Value, put: _Put) -> None:
    if isinstance(value, str):  # first: nearly all of a file is text
        put(_text(value))
    elif isinstance(value, Block):
        _put_mapping(value.content.items(), value.merges, put, value.name)
    elif isinstance(value, Entries):
        _put_mapping(value.made, (), put)
    elif isinstance(value, Mapping):
        _put_mapping(value.items(), (), put)
    elif isinstance(value, Sequence):
        in_line = not any(isinstance(item, (Block, Mapping)) for item in value)
        put(yaml.SequenceStartEvent(None, None, implicit=True, flow_style=in_line))
        for item in value:
            _put_value(item, put)
        put(_SEQUENCE_END)
    else:
        put(_bare(value))


def _put_mapping(
    entries: Iterable[tuple[str, Value]], merges: tuple[Block, ...], put: _Put, name: str = ""
) -> None:
    put(yaml.MappingStartEvent(name, None, True, flow_style=False) if name else _MAPPING)
    if merges:
        put(_MERGE)
        _put_merges(merges, put)
    for key, value in entries:
        put(_text(key))
        _put_value(value, put)
    put(_MAPPING_END)


def _put_merges(blocks: tuple[Block, ...], put: _Put) -> None:
    if len(blocks) == 1:
        put(yaml.AliasEvent(blocks[0].name))
        return
    put(_MERGED)
    for block in blocks:
        put(yaml.AliasEvent(block.name))
    put(_SEQUENCE_END)


def _bare(value: float | bool | Variable) -> yaml.ScalarEvent:
    if isinstance(value, Variable):
        return yaml.ScalarEvent(None, None, _BARE, value.text)
    if isinstance(value, bool):
        return yaml.ScalarEvent(None, None, _BARE, "true" if value else "false")
    return yaml.ScalarEvent(None, None, _BARE, f"{value:.12g}")


@lru_cache(maxsize=4096)
def _text(value: str) -> yaml.ScalarEvent:
    """A text; the emitter only reads events, so one serves wherever the text stands."""
    text = value.replace("$", "$$")
    if _is_bare(text):
        return yaml.ScalarEvent(None, None, _BARE, text)
    return yaml.ScalarEvent(None, None, _QUOTED, text, style='"')


def _is_bare(text: str) -> bool:
    """Whether a text stays a text, and on one line, without the escapes of quotation marks."""
    if not text.isprintable():
        return False
    # By YAML 1.1, and by YAML 1.2.
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, _BARE)  # type: ignore[no-untyped-call]
    return tag == _TEXT and isinstance(plain(text), str)
