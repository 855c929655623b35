"""What commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

from lab.cli.failures import say
from lab.strict_json import dump

__all__ = ["confirm", "print_json", "say"]


def print_json(value: object) -> None:
    """Print indented JSON to stdout; control characters are escaped by JSON itself."""
    print(dump(value, indent=2))


def confirm(question: str) -> bool:
    """Ask on the terminal; anything but y or yes is no, and so is the end of the input."""
    say(f"{question} [y/N]")
    try:
        return input().strip().lower() in {"y", "yes"}
    except EOFError:
        return False
