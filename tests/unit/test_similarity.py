"""The share of a file that occurs in others: copies, renamed copies, exclusions, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import similarity
from tools.similarity import compare, main, renamed, tokens

PROGRAM = """\
import numpy as np

def mean_of(values, weights):
    total = sum(value * weight for value, weight in zip(values, weights))
    return total / sum(weights)

print(mean_of([1, 2, 3], np.array([0.5, 0.25, 0.25])), 'done')
"""
OTHER = "\n".join(f"first_{i} = second_{i}.third_{i}(fourth_{i})[fifth_{i}]" for i in range(20))


def share(folder: Path, ours: str, theirs: str, name: str = "theirs.py") -> float:
    """Percent of our windows that their file holds."""
    (folder / "ours.py").write_text(ours)
    (folder / name).write_text(theirs)
    (found,) = compare([folder / "ours.py"], [folder / name])
    return found.together


def test_an_exact_copy_has_1_and_another_program_0(tmp_path: Path) -> None:
    assert share(tmp_path, PROGRAM, PROGRAM) == 100
    assert share(tmp_path, PROGRAM, OTHER + "\n" + PROGRAM) == 100
    assert share(tmp_path, PROGRAM, OTHER) == 0


def test_comments_layout_quotes_and_the_last_comma_hide_nothing(tmp_path: Path) -> None:
    changed = '"""A text."""\n# A comment\n' + PROGRAM.replace("'done'", '"done"').replace(
        "values, weights):", "\n    values,  # one\n    weights,  # two\n):"
    )
    assert share(tmp_path, PROGRAM, changed) == 100
    assert share(tmp_path, changed, PROGRAM) == 100


def test_other_names_lower_it_unless_all_names_are_equal(tmp_path: Path) -> None:
    other_names = PROGRAM.replace("value", "x").replace("weight", "w").replace("total", "t")
    assert 0 < share(tmp_path, PROGRAM, other_names) < 60
    assert renamed(tokens(PROGRAM)) == renamed(tokens(other_names))
    assert renamed(tokens("a.b(c, 1, 'd') if e else -2.5"))[:4] == ["name", ".", "b", "("]
    arguments = [str(tmp_path / "ours.py"), "--against", str(tmp_path / "theirs.py")]
    assert main([*arguments, "--limit", "60"]) == 0
    assert main([*arguments, "--limit", "60", "--renamed"]) == 1


def test_a_share_is_windows_among_our_windows(tmp_path: Path) -> None:
    # 12 tokens make 5 windows of 8; the first 9 of them make 2, that both files have.
    ours = "a b c d e f g h i j k l"
    assert share(tmp_path, ours, "a b c d e f g h i") == pytest.approx(40)
    assert share(tmp_path, ours, "a b c d e f g") == 0
    assert share(tmp_path, "a b c d e f g", ours) == 0


def test_the_exit_code_is_1_above_the_limit_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours.py").write_text("a b c d e f g h i j k l")
    (tmp_path / "theirs.txt").write_text("a b c d e f g h i")
    arguments = [str(tmp_path / "ours.py"), "--against", str(tmp_path / "theirs.txt")]
    assert main([*arguments, "--limit", "40"]) == 0
    assert main([*arguments, "--limit", "39"]) == 1
    assert main(arguments) == 1
    shown = capsys.readouterr().out
    assert shown.splitlines()[-4:] == [
        f"{tmp_path / 'ours.py'} (5 windows)",
        f"  !  40.0%  {tmp_path / 'theirs.txt'}",
        "  !  40.0%  all of them together",
        "1 above 20%",
    ]


def test_two_files_count_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ours.py").write_text("a b c d e f g h i j k l")
    others = tmp_path / "others"
    others.mkdir()
    (others / "1.py").write_text("a b c d e f g h")
    (others / "2.py").write_text("b c d e f g h i")
    assert main([str(tmp_path / "ours.py"), "--against", str(others), "--limit", "39"]) == 1
    shares = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert shares == [
        ["20.0%", str(others / "1.py")],
        ["20.0%", str(others / "2.py")],
        ["!", "40.0%"],
    ]


def test_code_in_notebooks_and_pages_is_found(tmp_path: Path) -> None:
    lines = PROGRAM.splitlines(keepends=True)
    cells = [
        {"cell_type": "markdown", "source": ["Some prose"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", *lines[:3]]},
        {"cell_type": "code", "source": "".join(lines[3:])},
    ]
    assert share(tmp_path, PROGRAM, json.dumps({"cells": cells}), "theirs.ipynb") == 100
    page = f"# Title\n\nIt's a page.\n\n```python\n{PROGRAM}```\n\nDon't read on.\n"
    assert share(tmp_path, PROGRAM, page, "theirs.md") == 100
    assert share(tmp_path, PROGRAM, PROGRAM, "without_fences.md") == 100


def test_programs_for_python_2_and_broken_ones_are_read(tmp_path: Path) -> None:
    assert tokens("print 'it', x <> 0777 # no") == ["print", '"it"', ",", "x", "<>", "0777"]
    assert share(tmp_path, PROGRAM, PROGRAM + "\n    def broken(:\n'open") == 100


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("missing.py", None, "does not exist"),
        ("notebook.ipynb", "{", "is not a notebook"),
        ("notebook.ipynb", "[]", "is not a notebook"),
        ("empty", None, "has no file that ends in .ipynb, .md, .py, .txt"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, text: str | None, fault: str
) -> None:
    (tmp_path / "ours.py").write_text(PROGRAM)
    (tmp_path / "empty").mkdir()
    if text is not None:
        (tmp_path / path).write_text(text)
    assert main([str(tmp_path / "ours.py"), "--against", str(tmp_path / path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert fault in line


def test_no_two_of_our_own_programs_are_copies_of_each_other() -> None:
    """It would hide a program that proves nothing new."""
    programs = similarity.files([Path(__file__).parents[1] / "tf1_programs"])
    for program in programs:
        (found,) = compare([program], [other for other in programs if other != program])
        assert found.by_file[0][1] < similarity.LIMIT_PERCENT
