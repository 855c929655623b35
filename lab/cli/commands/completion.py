"""`lab completion SHELL`."""

from __future__ import annotations

import sys
from typing import Annotated

from lab.cli.arguments import Word
from lab.cli.completion import SCRIPTS
from lab.cli.completion.grammar import grammar
from lab.cli.values import one_of


def command(
    *,
    shell: Annotated[
        str,
        Word("bash, zsh or fish; the script's first lines say where to put it", one_of(*SCRIPTS)),
    ],
) -> None:
    """Print the completion script of a shell."""
    sys.stdout.write(SCRIPTS[shell](grammar()))
