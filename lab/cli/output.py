"""What commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import json

from lab.cli.failures import say

__all__ = ["confirm", "print_json", "say"]


def print_json(value: object) -> None:
    """Print indented JSON to stdout; control characters are escaped by JSON itself."""
    print(json.dumps(value, indent=2))


def confirm(question: str) -> bool:
    """Ask on the terminal; anything but y or yes is no, and so is the end of the input."""
    say(f"{question} [y/N]")
    try:
        return input().strip().lower() in {"y", "yes"}
    except EOFError:
        return False
