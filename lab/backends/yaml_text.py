"""YAML files that other programs read: their form, and the quotation marks of their texts.

A compose file has named blocks and comments, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.anchor import Anchor
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.tag import Tag

from lab.cluster.config.yaml_reader import parse_scalar

TEXT: Final = "tag:yaml.org,2002:str"
_YAML_1_1: Final = VersionedResolver(version=(1, 1))


class Representer(RoundTripRepresenter):
    """Represents plain values, without aliases."""

    def ignore_aliases(self, data: object) -> bool:
        """Repeat equal values instead of writing aliases."""
        del data
        return True

    def represent_text(self, text: str) -> ScalarNode:
        """Represent a text, with quotation marks if a reader needs them."""
        is_block = "\n" in text and text.replace("\n", "").isprintable()
        return self.represent_scalar(TEXT, text, style="|" if is_block else quotes(text))


Representer.add_representer(str, Representer.represent_text)


def dumped(documents: Iterable[object], representer: type[Representer] = Representer) -> str:
    """Return the text of a file with these documents; it wraps no lines."""
    yaml = YAML()
    yaml.Representer = representer
    yaml.width = sys.maxsize
    output = StringIO()
    yaml.dump_all(documents, output)
    return output.getvalue()


@lru_cache(maxsize=4096)
def quotes(text: str) -> str | None:
    """Return the quotation marks that a text needs, so that every YAML reader reads it as text.

    It applies the rules of YAML 1.1 and YAML 1.2. ruamel.yaml adds others where it needs them.
    """
    tag = _YAML_1_1.resolve(ScalarNode, text, (True, False))
    is_text = str(tag) == TEXT and isinstance(parse_scalar(text), str)
    if not (is_text and text.isprintable()):
        return '"'
    return "'" if "'" in text else None


class Variable(str):
    """A text whose `$` is not escaped: compose replaces it from the caller's environment."""

    __slots__ = ()


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


Value = str | int | float | bool | Block | Sequence["Value"] | Mapping[str, "Value"]
"""A value in a compose file."""


def compose_yaml(document: Mapping[str, Value], comments: Mapping[str, str]) -> str:
    """Return the text of a compose file. `$` is escaped, except in a `Variable`.

    Args:
        document: The file's top level. It must contain a named block before blocks that merge it.
            A blank line separates its entries, and those of `services`.
        comments: Key of the top level to one line of comment.
    """
    root = CommentedMap(document)
    for position, key in enumerate(root):
        lines = [""] if position else []
        lines += [comments[key]] if key in comments else []
        if lines:
            root.yaml_set_comment_before_after_key(key, before="\n".join(lines))
    if isinstance(services := document.get("services"), Mapping):
        root["services"] = CommentedMap(services)
        for key in [*services][1:]:
            root["services"].yaml_set_comment_before_after_key(key, before="")
    return dumped([root], _ComposeRepresenter)


class _ComposeRepresenter(Representer):
    """Represents the values of a compose file."""

    def ignore_aliases(self, data: object) -> bool:
        return not isinstance(data, Block)

    def represent_sequence(
        self, tag: str, sequence: Sequence[Value], flow_style: bool | None = None
    ) -> SequenceNode:
        in_line = not any(isinstance(item, Mapping) for item in sequence)
        node: SequenceNode = super().represent_sequence(tag, sequence, flow_style=in_line)
        for item in node.value if in_line else ():
            if not item.style and {":", "?"} & set(item.value):
                item.style = "'"  # some readers refuse these characters in square brackets
        return node

    def represent_block(self, block: Block) -> MappingNode:
        node: MappingNode = self.represent_dict(block.content)
        merged = [self.represent_data(parent) for parent in block.merges]
        if merged:
            several = SequenceNode(Tag(suffix="tag:yaml.org,2002:seq"), merged, flow_style=True)
            key = ScalarNode(Tag(suffix="tag:yaml.org,2002:merge"), "<<")
            node.value.insert(0, (key, several if len(merged) > 1 else merged[0]))
        if block.name:
            node.anchor = Anchor()
            node.anchor.value = block.name
        return node

    def represent_text(self, text: str) -> ScalarNode:
        escaped = text.replace("$", "$$")
        return self.represent_scalar(TEXT, escaped, style=quotes(escaped))

    def represent_variable(self, variable: Variable) -> ScalarNode:
        return self.represent_scalar(TEXT, str(variable), style=quotes(variable))


_ComposeRepresenter.add_representer(Block, _ComposeRepresenter.represent_block)
_ComposeRepresenter.add_representer(str, _ComposeRepresenter.represent_text)
_ComposeRepresenter.add_representer(Variable, _ComposeRepresenter.represent_variable)
