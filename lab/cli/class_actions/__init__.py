"""The actions of `lab class`: the function `run` in the module of the action's name."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from lab.console import confirm
from lab.errors import InputError


@dataclass(frozen=True, slots=True)
class ClassOptions:
    """The arguments and flags of all actions; an action uses those that apply to it.

    Attributes:
        file: The class config.
        gpus: The host to plan for: `auto`, `none`, or the number of GPUs of another host.
        json: Whether to print JSON.
        seat: The seat, or "".
        output: The file to write, or None.
        url: The address for browsers, or None.
        yes: Whether to remove without a question.
    """

    file: Path
    gpus: str | int
    json: bool
    seat: str
    output: Path | None
    url: str | None
    yes: bool

    def confirm(self, question: str) -> None:
        """Ask a question, unless `--yes` is given.

        Raises:
            InputError: The user does not agree, or cannot be asked.
        """
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise InputError(f"cannot ask: {question} (stdin is not a terminal)", "add --yes")
        if not confirm(question):
            raise InputError("nothing was removed", "answer y, or add --yes")
