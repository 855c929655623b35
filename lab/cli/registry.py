"""What `lab` and `lab --help` print. It imports almost nothing, so that `lab --help` is fast."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import Final

from lab.base.console import with_command_name
from lab.base.text import wrapped
from lab.verbs import COMMANDS, EVERYDAY, GROUPS

__all__ = ["COMMANDS", "EVERYDAY", "GROUPS", "columns", "full_help", "line_width", "overview"]

_MARGIN: Final = 5  # blanks before and between two columns
_LEAST: Final = 20  # the least width of the right column

_TITLE: Final = "lab: one host as a pseudo-cluster for distributed training"

_GENERAL: Final = {
    "COMMAND --help": "print the usage and examples of one command",
    "--debug": "print the traceback of an error",
    "--version": "print the version, and where lab is installed",
}


def overview() -> str:
    """Return what `lab` without arguments prints: the everyday commands."""
    return "\n".join(
        [
            f"{_TITLE}\n",
            *columns(GROUPS[EVERYDAY].items()),
            with_command_name(
                "\nStart with `lab run async --epochs 2`. All commands: `lab --help`."
            ),
        ]
    )


def full_help() -> str:
    """Return what `lab --help` prints: every command."""
    lines = [_TITLE, "", "usage: lab COMMAND [FLAGS]"]
    width = max(map(len, _GENERAL))
    for heading, rows in (*GROUPS.items(), ("General", _GENERAL)):
        lines += ["", f"{heading}:", *columns(rows.items(), width)]
    return "\n".join(lines)


def line_width() -> int:
    """Return the maximum length of a line on stdout; a pipe has no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def columns(rows: Iterable[tuple[str, str]], width: int = 0) -> list[str]:
    """Return indented lines of two columns; the left one has at least `width` characters.

    On a terminal, the right column continues on further lines. A pipe gets one line for each row.
    """
    rows = list(rows)
    width = max([width, *(len(left) for left, _ in rows)])
    room = line_width()
    blank = " " * (width + _MARGIN)
    lines = []
    for left, right in rows:
        first, *more = wrapped(right, max(_LEAST, room - len(blank)))
        lines.append(f"  {left.ljust(width)}   {first}".rstrip())
        lines += [blank + line for line in more]
    return lines
