"""Dumps a compose file by ruamel.yaml: named blocks, comments, and the quotation marks of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ruamel.yaml.anchor import Anchor
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.tag import Tag

from lab.backends.yaml_text import TEXT, Representer, dumped, quotes


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
    return dumped([root], _Representer)


class _Representer(Representer):
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


_Representer.add_representer(Block, _Representer.represent_block)
_Representer.add_representer(str, _Representer.represent_text)
_Representer.add_representer(Variable, _Representer.represent_variable)
