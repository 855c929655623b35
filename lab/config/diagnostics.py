"""Problems of a config: message, location and suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lab.text import clipped, nearest, short

Loc = tuple[str | int, ...]
"""The path from the top of a config to a value: keys and positions in lists."""

MAX_SHOWN: Final = 100
"""The maximum number of problems shown; more are usually one mistake, repeated."""

_CANDIDATES: Final = 1000  # a comparison with more names takes seconds
_BARE = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """A position in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a config.

    Attributes:
        path: The path to the key or value.
        message: What is wrong, and the hint; user text in it is escaped.
        on_key: Whether the key is wrong, not its value.
        location: The position in the file; None: it is looked up by `path`.
        misspelt: A name that may be misspelt, or "".
        candidates: The known names, for a suggestion.
    """

    path: Loc
    message: str
    on_key: bool = False
    location: SourceLocation | None = None
    misspelt: str = ""
    candidates: Sequence[str] = ()

    def text(self) -> str:
        """Return path, message and suggestion: `nodes.tf2.gpus: …; did you mean …?`."""
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
    """Return problems as lines, in their order in the file.

    Args:
        file: The file's name, as the user gave it.
        problems: The problems.
        values: The position of each value.
        keys: The position of each key.

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


def texts(problems: Iterable[Problem]) -> list[str]:
    """Return problems without a position in a file, as lines."""
    return [problem.text() for problem in problems]


def path_text(loc: Loc) -> str:
    """Return a path as text: `jobs.worker.on[2]`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{unquoted_if_plain(part)}" if text else unquoted_if_plain(part)
    return text


def quoted(text: str, limit: int = 60) -> str:
    """Return user text in one line, in quotation marks."""
    return f'"{clipped(text, limit)}"'


def unquoted_if_plain(text: str) -> str:
    """Return a key; in quotation marks if it is not a plain name."""
    return text if _BARE.fullmatch(text) else quoted(text)


def describe(value: object) -> str:
    """Return a short description of a value: `the text "two"`, `the number 2.5`, `a list`."""
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
        # A missing key is reported at the key above it.
        loc = loc[:-1]
        if loc in keys:
            return keys[loc]
    return SourceLocation(1, 1)
