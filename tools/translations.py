"""The Chinese pages, and the English text that each one follows.

    python tools/translations.py            list the pages that have fallen behind
    python tools/translations.py PAGE …     mark pages as translated anew, from the last commit

A Chinese page names its English page, with date, commit and SHA-256 of that text, below its title.
A page that has fallen behind says so in the next line, until it is translated anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BEHIND: Final = "英文版此后有修改，本页还没有跟上。"
"""The line of a page that has fallen behind."""

_SOURCE: Final = re.compile(
    r"译自\[英文版\]\((?P<english>[^)]+)\)，\d{4}-\d\d-\d\d，提交 `[0-9a-f]{7,40}`。"
    r"<!-- sha256: (?P<digest>[0-9a-f]{64}) -->"
)


@dataclass(frozen=True)
class Translation:
    """A Chinese page.

    Attributes:
        page: Its path.
        english: The page that it follows.
        digest: SHA-256 of the text that it follows.
        says_behind: Whether the page says that it has fallen behind.
    """

    page: Path
    english: Path
    digest: str
    says_behind: bool

    @property
    def is_behind(self) -> bool:
        """Whether the English text has changed since."""
        return digest(self.english) != self.digest


def pages() -> list[Path]:
    """All Chinese pages."""
    return [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs/zh").rglob("*.md"))]


def read(page: Path) -> Translation:
    """Read what a page says of its English text.

    Raises:
        ValueError: It names none.
    """
    text = page.read_text("utf-8")
    found = _SOURCE.search(text)
    if found is None:
        raise ValueError(f"{page}: no line like {line('a.md', '2026-01-31', '0123456', '0' * 64)}")
    english = (page.parent / found["english"]).resolve()
    return Translation(page, english, found["digest"], BEHIND in text)


def line(english: str, date: str, commit: str, sha256: str) -> str:
    """The line that names the English text."""
    return f"译自[英文版]({english})，{date}，提交 `{commit}`。<!-- sha256: {sha256} -->"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stamp(page: Path) -> None:
    """Mark a page as a translation of its English page as it is now.

    Raises:
        ValueError: The page names no English page.
        SystemExit: The English page has changes that are not committed.
    """
    text = page.read_text("utf-8")
    translation = read(page)
    command = ["git", "log", "-1", "--format=%cs %h", "--", str(translation.english)]
    date, commit = _output(*command).split()
    if _output("git", "status", "--porcelain", "--", str(translation.english)):
        sys.exit(f"{translation.english} has changes; commit them first")
    name = os.path.relpath(translation.english, page.parent)
    new = line(name, date, commit, digest(translation.english))
    page.write_text(_SOURCE.sub(new, text).replace(BEHIND + "\n", ""), "utf-8")


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main(names: Sequence[str]) -> None:
    """List the pages that have fallen behind, or stamp pages."""
    for name in names:
        stamp(Path(name).resolve())
    for page in pages():
        translation = read(page)
        if translation.is_behind:
            english = translation.english.relative_to(ROOT)
            print(f"{page.relative_to(ROOT)} has fallen behind {english}")


if __name__ == "__main__":
    main(sys.argv[1:])
