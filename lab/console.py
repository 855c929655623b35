"""Lines on stderr, JSON on stdout, and questions on the terminal."""

from __future__ import annotations

import contextlib
import sys

from lab.strict_json import dump
from lab.task.text import bounded


def notify(line: str) -> None:
    """Write one line to stderr, with control sequences made visible.

    A closed terminal or pipe is no error: a clean-up that is under way must go on.
    """
    with contextlib.suppress(OSError):
        print(bounded(line), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print indented JSON to stdout; control characters are escaped by JSON itself."""
    print(dump(value, indent=2))


def confirm(question: str) -> bool:
    """Ask on the terminal; anything but y or yes is no, and so is the end of the input."""
    notify(f"{question} [y/N]")
    try:
        return input().strip().lower() in {"y", "yes"}
    except EOFError:
        return False
