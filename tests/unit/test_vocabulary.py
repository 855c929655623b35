"""The check of terms in names and texts (`tools/vocabulary.py`) finds refused terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import vocabulary
from tools.vocabulary import Vocabulary, prose, texts


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("def bring_home(): pass", 1, "the name 'bring_home' contains 'home': write store"),
        ("class NurseryError: pass", 1, "the name 'NurseryError' contains 'nursery'"),
        ("def run(*, voice=1): pass", 1, "the name 'voice' contains 'voice'"),
        ("x = 1\nself.told = x", 2, "the name 'told' contains 'told'"),
        ("import a as mends", 1, "the name 'mends' contains 'mends'"),
    ],
)
def test_a_refused_name_is_found(source: str, line: int, message: str) -> None:
    found = list(Vocabulary.read().names_in(source))
    assert any(at == line and text.startswith(message) for at, text in found), found


@pytest.mark.parametrize(
    "source",
    [
        "x = {'told': 1}",  # a key
        "def run(*, mend=False): pass",  # a flag of the command line
        "Path.home()",  # a library's name
        "homework = 1",
    ],
)
def test_names_that_are_allowed(source: str) -> None:
    assert list(Vocabulary.read().names_in(source)) == []


def test_a_module_has_its_name_checked() -> None:
    assert list(Vocabulary.read().names_in("", "whereabouts"))


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("raise E('an agent hears it')", 1, "the text contains 'hears'"),
        ("raise E(f'{n}: So many {n}')", 1, "the text contains 'So many'"),
        ('"""One line.\n\nIt brings it home.\n"""', 3, "the text contains 'brings it home'"),
        ("x = 1\ny = 2  # nobody reads it", 2, "the text contains 'nobody'"),
    ],
)
def test_a_refused_term_in_code_is_found(source: str, line: int, message: str) -> None:
    found = list(Vocabulary.read().refused(texts(source)))
    assert any(at == line and text.startswith(message) for at, text in found), found


def test_a_refused_term_in_a_page_is_found_outside_of_code() -> None:
    page = "# A card\n\n```\na card\n```\n\nSee `--card` of [it](card.md).\n\nIt is told.\n"
    found = list(Vocabulary.read().refused(prose(page)))
    assert [line for line, _ in found] == [1, 9]


def test_generated_pages_are_not_checked() -> None:
    names = {path.relative_to(vocabulary.ROOT).as_posix() for path in Vocabulary.read().files()}
    assert {"lab/api/training.py", "docs/gpus.md", "README.md", "scripts/towers.py"} <= names
    assert not names & {"docs/errors.md", "docs/evidence/chapter.md"}


def test_files_with_a_refused_term_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab/some.py"
    path.parent.mkdir()
    path.write_text("x = 1\n\ndef told(): pass\n")
    assert vocabulary.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:3: the name 'told'")
    path.write_text("x = 1\n")
    assert vocabulary.main([str(path)]) == 0
