"""The documents: every link leads somewhere, and the parser accepts every command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.shown import ROOT, dead_links, wrong_commands

GENERATED = {"docs/results.md"}
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/lessons/*.md", "docs/zh/**/*.md", "notebooks/*.md")
    for path in ROOT.glob(pattern)
)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    assert dead_links(page.read_text("utf-8"), page.parent) == []


@pytest.mark.parametrize("page", [each for each in PAGES if name(each) not in GENERATED], ids=name)
def test_the_parser_accepts_every_command_of_a_page(page: Path) -> None:
    assert wrong_commands(page.read_text("utf-8")) == []


def test_every_test_of_the_attacks_on_seats_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/evidence/seats.md").read_text("utf-8")))
    tests = "".join(path.read_text("utf-8") for path in ROOT.glob("tests/*/test_class*.py"))
    defined = set(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    assert named
    assert named <= defined
