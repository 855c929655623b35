"""The completion script of each shell, from its template."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined

from lab.cli.completion.spec import specs

_QUOTED: Final[Mapping[str, Callable[[str], str]]] = {
    "bash": lambda text: "'" + text.replace("'", r"'\''") + "'",
    "zsh": lambda text: "'" + text.replace("'", r"'\''") + "'",
    "fish": lambda text: "'" + re.sub(r"([\\'])", r"\\\1", text) + "'",
}
"""Shell to a filter that quotes a text as one argument of the shell."""


def script(shell: str) -> str:
    """Return the script for `bash`, `zsh` or `fish`."""
    environment = Environment(  # noqa: S701  (the output is not HTML)
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["quoted"] = _QUOTED[shell]
    # In zsh these characters separate the parts of a specification.
    environment.filters["escaped"] = lambda text: re.sub(r"([\\\[\]:])", r"\\\1", text)
    template = environment.from_string(Path(__file__).with_name(f"{shell}.j2").read_text("utf-8"))
    return template.render(commands=specs())
