"""The Chinese pages name their English source, and mark themselves when it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import translations

ROOT = Path(__file__).parents[2]


def test_an_outdated_page_is_marked() -> None:
    pages = [translations.read(page) for page in translations.pages()]
    behind = [each.page.relative_to(ROOT).as_posix() for each in pages if each.is_behind]
    admitted = [each.page.relative_to(ROOT).as_posix() for each in pages if each.says_behind]
    assert behind == admitted, (
        "translate these pages anew and run `python tools/translations.py PAGE`,"
        f" or add the line {translations.BEHIND!r} below the line that names the English page"
    )


def test_required_chinese_pages_exist() -> None:
    english = {
        translations.read(page).english.relative_to(ROOT).as_posix()
        for page in translations.pages()
    }
    lessons = ("async", "sync", "towers", "all-reduce", "staleness")
    assert english == {
        "README.md",
        "docs/index.md",
        "docs/glossary.md",
        *(f"docs/lessons/{lesson}.md" for lesson in lessons),
    }
    for name in english:
        path = ROOT / name
        (page,) = [each for each in translations.pages() if translations.read(each).english == path]
        link = f"({os.path.relpath(page, path.parent)})"
        assert link in path.read_text("utf-8"), f"{name} does not link {page}"


def test_a_changed_text_is_noticed(tmp_path: Path) -> None:
    english, page = tmp_path / "a.md", tmp_path / "zh/a.md"
    page.parent.mkdir()
    english.write_text("one\n")
    source = translations.line("../a.md", "2026-01-31", "0123456", translations.digest(english))
    page.write_text(f"# a\n\n{source}\n")
    assert not translations.read(page).is_behind
    english.write_text("two\n")
    assert translations.read(page).is_behind
    assert not translations.read(page).says_behind
    page.write_text("# a\n")
    with pytest.raises(ValueError, match="no line like"):
        translations.read(page)
