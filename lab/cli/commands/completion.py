"""`lab completion SHELL`.

Write the script to the file below:
  bash   ~/.local/share/bash-completion/completions/lab
  zsh    ~/.zfunc/_lab, and in ~/.zshrc:
         fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit
  fish   ~/.config/fish/completions/lab.fish
Without bash-completion, source the file in ~/.bashrc.

Examples:
    # for bash with the package bash-completion
    lab completion bash > ~/.local/share/bash-completion/completions/lab
    # for fish
    lab completion fish > ~/.config/fish/completions/lab.fish
"""

from __future__ import annotations

import sys
from typing import Annotated

from lab.base.converters import one_of
from lab.base.options import Argument
from lab.cli.completion import SCRIPTS


def command(
    *, shell: Annotated[str, Argument("bash, zsh or fish", one_of("bash", "zsh", "fish"))]
) -> None:
    """Print the completion script of a shell."""
    sys.stdout.write(SCRIPTS[shell])
