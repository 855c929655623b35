"""What is wrong with a description, where, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lab.task.text import clipped, nearest, short

Loc = tuple[str | int, ...]
"""The way from the top of a description to a value: keys and positions in lists."""

MAX_SHOWN: Final = 100
"""So many problems are shown; who has more of them has one mistake, made often."""

_CANDIDATES: Final = 1000  # comparing a word with more of them takes seconds
_BARE = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """A place in a file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        loc: What it is about.
        message: What is wrong, and how to mend it; nothing foreign stands in it unescaped.
        on_key: Whether the key is wrong, not its value.
        place: Where it is, if it cannot be looked up by `loc`.
        argument: A word that may be misspelt.
        candidates: What may have been meant by it.
    """

    path: Loc
    message: str
    on_key: bool = False
    location: SourceLocation | None = None
    misspelt: str = ""
    candidates: Sequence[str] = ()

    def text(self) -> str:
        """The message behind the place: `nodes.tf2.gpus: …; did you mean …?`."""
        path = f"{path_text(self.path)}: " if self.path else ""
        return f"{path}{self.message}{self._suggestion()}"

    def _suggestion(self) -> str:
        if not self.misspelt or not self.candidates:
            return ""
        known = list(self.candidates[:_CANDIDATES])
        if near := nearest(self.misspelt[:60].lower(), known):
            return f"; did you mean {quoted(near)}?"
        listed = ", ".join(unquoted_if_plain(name) for name in known[:8])
        return f"; known: {listed}{', …' if len(known) > 8 else ''}"  # noqa: PLR2004


def report(
    file: str,
    problems: Iterable[Problem],
    values: Mapping[Loc, SourceLocation],
    keys: Mapping[Loc, SourceLocation],
) -> list[str]:
    """Write problems as lines, in the order in which they stand in the file.

    Args:
        file: The file's name, as the user gave it.
        problems: What is wrong.
        values: Where each value stands.
        keys: Where each key stands.

    Returns:
        One line each, `cluster.yaml:12:5: nodes.tf2.gpus: …`.
    """
    placed = sorted(
        ((_place(problem, values, keys), problem) for problem in problems),
        key=lambda pair: pair[0],
    )
    name = short(file)
    lines = [
        f"{name}:{at.line}:{at.column}: {problem.text()}" for at, problem in placed[:MAX_SHOWN]
    ]
    if len(placed) > MAX_SHOWN:
        lines.append(f"{name}: … and {len(placed) - MAX_SHOWN} more problems like these")
    return lines


def path_text(loc: Loc) -> str:
    """A location in words of the file: `jobs.worker.on[2]`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{unquoted_if_plain(part)}" if text else unquoted_if_plain(part)
    return text


def quoted(text: str, limit: int = 60) -> str:
    """Foreign text in one line, in quotation marks."""
    return f'"{clipped(text, limit)}"'


def unquoted_if_plain(text: str) -> str:
    """A key as it is, or in quotation marks where that could be misread."""
    return text if _BARE.fullmatch(text) else quoted(text)


def describe(value: object) -> str:
    """A value of the file in a few words: `the text "two"`, `the number 2.5`, `a list`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    return "a list" if isinstance(value, list) else "a mapping"


def _place(
    problem: Problem, values: Mapping[Loc, SourceLocation], keys: Mapping[Loc, SourceLocation]
) -> SourceLocation:
    if problem.location is not None:
        return problem.location
    loc = problem.path
    if problem.on_key and loc in keys:
        return keys[loc]
    while loc:
        if loc in values:
            return values[loc]
        # What is missing is reported at the key that lacks it.
        loc = loc[:-1]
        if loc in keys:
            return keys[loc]
    return SourceLocation(1, 1)
