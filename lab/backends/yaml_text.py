"""YAML files that other programs read: their form, and the quotation marks of their texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from io import StringIO
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.resolver import VersionedResolver

from lab.config.yaml_reader import parse_scalar

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
