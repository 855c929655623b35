"""What is known of the idioms of TensorFlow 1: names, their fates, and code.

The table is on one page, and the lesson is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    ROOT / "docs/reference/idioms.md",
    ROOT / "docs/tutorials/lessons/then-and-now.md",
)
TEXT: Final = "\n".join(page.read_text("utf-8") for page in PAGES)
"""Both pages, in the order in which their Python runs."""

FATES: Final = ("same", "changed", "v1", "deprecated", "gone", "outside")
"""The fates of a name; the page's first table explains each term."""

_SPAN = re.compile(r"`([^`]+)`")
_RULE = re.compile(r"[|\s:-]+")
_NAME = re.compile(r"tf(\.\w+)+")
_FENCE: Final = "```"


@dataclass(frozen=True)
class Row:
    """A row of a table: its line in the page, and its cells by their columns' headers."""

    line: int
    cells: Mapping[str, str]

    def code(self, column: str) -> list[str]:
        """The text between backticks in a cell."""
        return spans(self.cells[column])

    @property
    def names(self) -> list[str]:
        """TensorFlow's names in the column "then"."""
        return [span for span in self.code("then") if _NAME.fullmatch(span)]

    @property
    def fate(self) -> str:
        """The term for the fate of the names, or "" where the cell does not begin with one."""
        found = re.match(r"\*\*(\w+)\*\*", self.cells["what became of it"])
        return found[1] if found and found[1] in FATES else ""


def spans(text: str) -> list[str]:
    """The texts between backticks."""
    return _SPAN.findall(text)


def names(text: str) -> list[str]:
    """TensorFlow's names between the backticks of a text, whatever follows them there."""
    found = [_NAME.match(span) for span in spans(text)]
    return [name[0] for name in found if name]


def rows(text: str) -> Iterator[Row]:
    """The rows of all tables of a page, in its order."""
    headers: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            headers = []
        elif not headers:
            headers = _cells(line)
        elif not _RULE.fullmatch(line):
            yield Row(number, dict(zip(headers, _cells(line), strict=True)))


def table(text: str, header: str) -> list[Row]:
    """The rows of the tables that have a column of this name."""
    return [row for row in rows(text) if header in row.cells]


def pieces(text: str) -> list[tuple[int, str]]:
    """The page's Python in its order, each piece with its line: blocks, and the cells of "now"."""
    found = [(row.line, code) for row in table(text, "now") for code in row.code("now")]
    return sorted([*found, *_blocks(text)], key=lambda piece: piece[0])


def prose(text: str) -> str:
    parts = re.split(rf"^{_FENCE}.*$", text, flags=re.MULTILINE)
    return "\n".join(parts[::2])


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    for block in re.finditer(rf"^{_FENCE}python\n(.*?)^{_FENCE}$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, block.start()) + 2, block[1]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
