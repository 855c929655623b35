"""YAML that a student can read: block style, named anchors, a blank line between services.

The document is turned into events and written by PyYAML's emitter. Its representer would name the
anchors `id001`, and takes seconds for a thousand services.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import yaml
from yaml.resolver import Resolver

from lab.cluster.scalars import plain


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


Value = str | int | float | bool | Variable | Block | Sequence["Value"] | Mapping[str, "Value"]
"""What a compose file is made of here."""

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT: Final = "tag:yaml.org,2002:str"
_WIDE: Final = 2**30  # no text is ever folded
_QUOTED: Final = (False, True)
_BARE: Final = (True, True)


def compose_yaml(document: Mapping[str, Value], comments: Mapping[str, str]) -> str:
    """Write a compose file; every `$` that is not a `Variable`'s is escaped.

    Args:
        document: The file's top level. A named block stands in it before the first that merges it.
        comments: A line of explanation for keys of the top level.
    """
    text = yaml.emit(_document(document), Dumper=_DUMPER, width=_WIDE, allow_unicode=True)
    return "".join(_laid_out(str(text).splitlines(keepends=True), comments))


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


def _document(document: Mapping[str, Value]) -> Iterator[yaml.Event]:
    yield yaml.StreamStartEvent()
    yield yaml.DocumentStartEvent(explicit=False)
    yield from _block(Block(document))
    yield yaml.DocumentEndEvent(explicit=False)
    yield yaml.StreamEndEvent()


def _events(value: Value) -> Iterator[yaml.Event]:
    if isinstance(value, Block):
        yield from _block(value)
    elif isinstance(value, Mapping):
        yield from _block(Block(value))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        in_line = not any(isinstance(item, (Block, Mapping)) for item in value)
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=in_line)
        for item in value:
            yield from _events(item)
        yield yaml.SequenceEndEvent()
    else:
        yield _scalar(value)


def _block(block: Block) -> Iterator[yaml.Event]:
    yield yaml.MappingStartEvent(block.name or None, None, implicit=True, flow_style=False)
    if block.merges:
        yield yaml.ScalarEvent(None, None, _BARE, "<<")
        yield from _merges(block.merges)
    for key, value in block.content.items():
        yield _scalar(key)
        yield from _events(value)
    yield yaml.MappingEndEvent()


def _merges(blocks: tuple[Block, ...]) -> Iterator[yaml.Event]:
    if len(blocks) == 1:
        yield yaml.AliasEvent(blocks[0].name)
        return
    yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=True)
    for block in blocks:
        yield yaml.AliasEvent(block.name)
    yield yaml.SequenceEndEvent()


def _scalar(value: str | float | bool | Variable) -> yaml.ScalarEvent:
    if isinstance(value, Variable):
        return yaml.ScalarEvent(None, None, _BARE, value.text)
    if isinstance(value, bool):
        return yaml.ScalarEvent(None, None, _BARE, "true" if value else "false")
    if isinstance(value, (int, float)):
        return yaml.ScalarEvent(None, None, _BARE, f"{value:.12g}")
    text = value.replace("$", "$$")
    if _is_bare(text):
        return yaml.ScalarEvent(None, None, _BARE, text)
    return yaml.ScalarEvent(None, None, _QUOTED, text, style='"')


@lru_cache(maxsize=4096)
def _is_bare(text: str) -> bool:
    """Whether a text stays a text, and on one line, without the escapes of quotation marks."""
    if not text.isprintable():
        return False
    # By YAML 1.1, and by YAML 1.2.
    tag = Resolver().resolve(yaml.ScalarNode, text, _BARE)  # type: ignore[no-untyped-call]
    return tag == _TEXT and isinstance(plain(text), str)
