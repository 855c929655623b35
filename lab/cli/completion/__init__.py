"""Shell completion: what can stand where on the command line, and as a script for each shell.

What the catalogue and the signatures say is written into the script, so that a shell answers at
once. What depends on the moment, such as the runs at home, the script asks for with
`lab __complete runs`, which imports next to nothing. No shell ever evaluates such an answer: a
script takes it line by line, and leaves out what is more than plain letters, digits, dots and
dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lab.cli.completion import bash, fish, zsh
from lab.cli.completion.grammar import Grammar

SCRIPTS: Final[Mapping[str, Callable[[Grammar], str]]] = {
    "bash": bash.script,
    "zsh": zsh.script,
    "fish": fish.script,
}
"""From the name of a shell to what writes its script."""
