"""The Chinese pages and notebooks, and the English text that each one follows.

    python tools/translations.py            list the pages that have fallen behind, and mark them
    python tools/translations.py PAGE …     mark pages as translated anew

`docs/zh/a.md` follows `docs/a.md`, and ends with a note that names it and the SHA-256 of its text.
`notebooks/zh/a.md` follows the Markdown cells of `notebooks/a.ipynb`; after a change of one of the
two, run `make notebooks-write`.
A page that has fallen behind says so in the next line, until it is translated anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BEHIND: Final = "英文版此后有修改，本页还没有跟上。"
"""The last line of a page that has fallen behind."""

_NOTE: Final = re.compile(
    r"\n本页译自\[英文版\]\([^)]+\)。<!-- sha256: (?P<digest>[0-9a-f]{64}) -->\n"
    rf"(?P<behind>{BEHIND}\n)?\Z"
)


@dataclass(frozen=True)
class Translation:
    """A Chinese page.

    Attributes:
        page: Its path.
        digest: SHA-256 of the English text that it follows.
        says_behind: Whether the page says that it has fallen behind.
    """

    page: Path
    digest: str
    says_behind: bool

    @property
    def is_behind(self) -> bool:
        """Whether the English text has changed since."""
        return digest(english(self.page)) != self.digest


def pages() -> list[Path]:
    """All Chinese pages, and the texts of Chinese notebooks."""
    of_folders = [*(ROOT / "docs/zh").rglob("*.md"), *(ROOT / "notebooks/zh").glob("*.md")]
    return [ROOT / "README.zh-CN.md", *sorted(of_folders)]


def english(page: Path) -> Path:
    """The English page or notebook that a Chinese page follows."""
    if page.parent == ROOT:
        return ROOT / "README.md"
    if page.parent == ROOT / "notebooks/zh":
        return ROOT / f"notebooks/{page.stem}.ipynb"
    return ROOT / "docs" / page.relative_to(ROOT / "docs/zh")


def digest(path: Path) -> str:
    """SHA-256 of a page, or of the Markdown cells of a notebook, in hexadecimal."""
    data = path.read_bytes()
    if path.suffix == ".ipynb":
        cells = json.loads(data)["cells"]
        data = json.dumps([c["source"] for c in cells if c["cell_type"] == "markdown"]).encode()
    return hashlib.sha256(data).hexdigest()


def read(page: Path) -> Translation:
    """Read the note at the end of a page.

    Raises:
        ValueError: It has none.
    """
    found = _NOTE.search(page.read_text("utf-8"))
    if found is None:
        raise ValueError(f"{page}: it has no note; run `python tools/translations.py {page}`")
    return Translation(page, found["digest"], found["behind"] is not None)


def stamp(page: Path) -> None:
    """Mark a page as a translation of its English page as it is now."""
    text = _NOTE.sub("", page.read_text("utf-8")).rstrip("\n")
    source = english(page)
    link = os.path.relpath(source, page.parent)
    note = f"本页译自[英文版]({link})。<!-- sha256: {digest(source)} -->"
    page.write_text(f"{text}\n\n{note}\n", "utf-8")


def main(names: Sequence[str]) -> None:
    """Stamp pages, then list and mark those that have fallen behind."""
    for name in names:
        stamp(Path(name).resolve())
    for page in pages():
        translation = read(page)
        if translation.is_behind:
            print(f"{page.relative_to(ROOT)} has fallen behind {english(page).relative_to(ROOT)}")
            if not translation.says_behind:
                page.write_text(f"{page.read_text('utf-8')}{BEHIND}\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
