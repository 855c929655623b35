"""The quotation marks of texts in YAML files that other programs read."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver

from lab.config.yaml_reader import parse_scalar

TEXT: Final = "tag:yaml.org,2002:str"
_YAML_1_1: Final = VersionedResolver(version=(1, 1))


@lru_cache(maxsize=4096)
def quotes(text: str) -> str | None:
    """Quotation marks, unless every YAML reader reads it as the same text without; else None.

    Checked by the rules of YAML 1.1 and of YAML 1.2. If None, ruamel.yaml adds them if necessary.
    """
    tag = _YAML_1_1.resolve(ScalarNode, text, (True, False))
    is_text = str(tag) == TEXT and isinstance(parse_scalar(text), str)
    if not (is_text and text.isprintable()):
        return '"'
    return "'" if "'" in text else None
