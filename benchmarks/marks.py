"""Generated text in a page, between the marks `<!-- name -->` and `<!-- end -->`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping

END = "<!-- end -->"


def put(page: str, name: str, text: str) -> str:
    """Return the page with a new text between the marks of this name.

    Raises:
        ValueError: The page lacks these marks.
    """
    head, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks of {name}")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def printed(commands: Mapping[str, str]) -> str:
    """Return commands of lab, each with a comment, and what they print, as code in Markdown.

    Args:
        commands: Comment to command, which begins with `lab`.
    """
    shown = [f"# {comment}\n{command}" for comment, command in commands.items()]
    outputs = []
    for command in commands.values():
        process = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(process, check=True, capture_output=True, text=True)
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        outputs.append("\n".join([f"$ {command}", *lines, ""]))
    return "\n".join(["```sh", *shown, "```\n", "```", "\n".join(outputs) + "```"])
