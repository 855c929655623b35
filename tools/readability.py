"""Print the reading ease of the documents.

    python tools/readability.py [FILE …]

Reading ease is Flesch's formula, 206.835 - 1.015 * words / sentences - 84.6 * syllables / words
(R. Flesch, "A new readability yardstick", Journal of Applied Psychology, 1948). A higher figure is
easier to read: 60 to 70 is plain English. Only prose counts: no code, tables, headings and links.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyphen import Pyphen

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("*.md", "docs/*.md", "docs/lessons/*.md", "notebooks/*.md")
NOT_PROSE: Final = {"docs/errors.md", "docs/results.md", "README.zh-CN.md"}
"""Generated pages, and pages in Chinese."""

_REMOVED: Final = re.compile(
    r"^(?:```|~~~).*?^(?:```|~~~)$|^[|#].*?$|<!--.*?-->|!\[.*?\]\(.*?\)|^---$.*?^---$",
    re.MULTILINE | re.DOTALL,
)
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE: Final = re.compile(r"`[^`]*`")
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|\n\s*\n|^\s*[-*\d]+\.? ", re.MULTILINE)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'\u2019]*")
_SYLLABLES: Final = Pyphen(lang="en_US")


def pages() -> list[Path]:
    """The pages that are written by hand, in English."""
    found = (path for pattern in PAGES for path in sorted(ROOT.glob(pattern)))
    return [path for path in found if path.relative_to(ROOT).as_posix() not in NOT_PROSE]


def prose(markdown: str) -> str:
    """The sentences of a page in Markdown. A piece of code counts as one word."""
    return _LINK.sub(r"\1", _CODE.sub("code", _REMOVED.sub("\n\n", markdown)))


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence."""
    found = (_WORD.findall(part) for part in _SENTENCE_END.split(text))
    return [words for words in found if words]


def reading_ease(text: str) -> float:
    """Flesch's reading ease of English prose; 100 of an empty text."""
    found = sentences(text)
    words = [word for sentence in found for word in sentence]
    if not words:
        return 100.0
    syllables = sum(len(_SYLLABLES.positions(word)) + 1 for word in words)
    return 206.835 - 1.015 * len(words) / len(found) - 84.6 * syllables / len(words)


def main(names: Sequence[str]) -> None:
    """Print reading ease and words per sentence of each page."""
    for path in [Path(name) for name in names] or pages():
        found = sentences(text := prose(path.read_text("utf-8")))
        mean = sum(map(len, found)) / max(1, len(found))
        print(f"{reading_ease(text):6.1f} {mean:6.1f} words per sentence  {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
