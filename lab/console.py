"""Print lines to stderr and JSON to stdout, and ask questions on the terminal."""

from __future__ import annotations

import contextlib
import sys

from lab.strict_json import dump
from lab.task.text import bounded


def notify(line: str) -> None:
    """Write one line to stderr, with control sequences made visible.

    A closed terminal or pipe is no error, so that it does not stop a clean-up.
    """
    with contextlib.suppress(OSError):
        print(bounded(line), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print indented JSON to stdout; JSON escapes control characters."""
    print(dump(value, indent=2))


def confirm(question: str) -> bool:
    """Ask a question on the terminal; return True only for the answers y and yes."""
    notify(f"{question} [y/N]")
    try:
        return input().strip().lower() in {"y", "yes"}
    except EOFError:
        return False
