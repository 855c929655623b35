"""The check of words in names and texts (`tools/vocabulary.py`) finds what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import vocabulary
from tools.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("def bring_home(): pass", 1, "the name 'bring_home' contains 'home': write store"),
        ("class NurseryError: pass", 1, "the name 'NurseryError' contains 'nursery'"),
        ("def run(*, voice=1): pass", 1, "the name 'voice' contains 'voice'"),
        ("x = 1\nself.told = x", 2, "the name 'told' contains 'told'"),
        ("import a as mends", 1, "the name 'mends' contains 'mends'"),
        ("raise E('an agent hears it')", 1, "the text contains 'hears'"),
        ("raise E(f'{n}: So many {n}')", 1, "the text contains 'So many'"),
    ],
)
def test_a_refused_word_is_found(source: str, line: int, message: str) -> None:
    words = Vocabulary.read()
    found = list(words.faults(source))
    assert any(at == line and text.startswith(message) for at, text in found), found


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring hears so many things."""',
        "x = {'told': 1}",  # a key, not a text
        "def run(*, mend=False): pass",  # a flag of the command line
        "Path.home()",  # a library's name
        "homework = 1",
    ],
)
def test_what_is_allowed(source: str) -> None:
    assert list(Vocabulary.read().faults(source)) == []


def test_a_module_has_its_name_checked() -> None:
    assert list(Vocabulary.read().faults("", "whereabouts"))


def test_files_with_a_refused_word_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.py"
    path.write_text("x = 1\n\ndef told(): pass\n")
    assert vocabulary.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:3: the name 'told'")
    path.write_text("x = 1\n")
    assert vocabulary.main([str(path)]) == 0
