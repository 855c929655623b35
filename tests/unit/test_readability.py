"""The documents are readable for readers whose first language is not English."""

from __future__ import annotations

from pathlib import Path

from tools import readability

ROOT = Path(__file__).parents[2]
LEAST = 55
"""Flesch's "fairly difficult" ends at 60."""


def test_every_page_is_easy_to_read() -> None:
    pages = readability.pages()
    assert len(pages) > 30
    eases = {
        path.relative_to(ROOT).as_posix(): readability.reading_ease(readability.prose(text))
        for path in pages
        if (text := path.read_text("utf-8"))
    }
    assert {page: ease for page, ease in eases.items() if ease < LEAST} == {}


def test_only_sentences_count() -> None:
    page = (
        "# Title\n\nThe [agent](a.md) runs `lab --help`.\n\n| a | b |\n\n```sh\nmake\n```\n- One.\n"
    )
    found = readability.sentences(readability.prose(page))
    assert found == [["The", "agent", "runs", "code"], ["One"]]


def test_short_words_in_short_sentences_are_easier() -> None:
    easy = "The cat sat. The dog ran."
    hard = "Notwithstanding considerable organizational complexity, administrators investigate."
    assert readability.reading_ease(easy) > 100
    assert readability.reading_ease(hard) < 0
