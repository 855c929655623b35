"""The notebooks: made from their sources, with existing calls and folded answers.

`tests/e2e/test_notebooks.py` checks that they run from top to bottom.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lab
from lab.base.errors import InputError
from lab.base.options import parameters
from lab.cluster.config import load_cluster
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.teach.lessons.answers import FILE, read_answers
from lab.teach.lessons.lesson import load_lesson
from lab.verbs.inputs import program_args
from tests.support.commands import python
from tests.support.shown import ROOT, dead_links, wrong_commands
from tools import notebooks

SOURCES = notebooks.sources()
CHINESE = notebooks.translations()

each_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


def cells(source: Path, kind: str) -> list[str]:
    return [cell.source for cell in notebooks.read(source).cells if cell.cell_type == kind]


def code(source: Path) -> ast.Module:
    return ast.parse("\n".join(cells(source, "code")), filename=source.name)


def calls(source: Path, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(code(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
            yield node


@pytest.mark.parametrize("source", [*SOURCES, *CHINESE], ids=lambda path: path.name)
def test_the_ipynb_is_what_its_source_makes_without_outputs(source: Path) -> None:
    path = source.with_suffix(".ipynb")
    assert path.read_text("utf-8") == notebooks.text_of(source), "run `make notebooks-write`"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    of_code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert of_code
    assert [cell.outputs for cell in of_code] == [[]] * len(of_code)
    assert {cell.execution_count for cell in of_code} == {None}


def english_of(path: Path) -> Path:
    return notebooks.FOLDER / f"{path.stem}.py"


MARKS = re.compile(r"^#+ |^\*\*(?=.+?\*\*)|^- |^\d\. |^\||^```|^</?details>", re.MULTILINE)
"""The beginnings of headings, goals and questions, items, rows, blocks and answers."""


@pytest.mark.parametrize("path", CHINESE, ids=lambda path: path.stem)
def test_a_chinese_notebook_has_the_code_and_the_parts_of_the_english_one(path: Path) -> None:
    assert cells(path, "code") == cells(english_of(path), "code")
    ours, theirs = (cells(each, "markdown") for each in (path, english_of(path)))
    assert all(ours)
    assert [MARKS.findall(cell) for cell in ours] == [MARKS.findall(cell) for cell in theirs]


def test_a_chinese_text_needs_each_cell(tmp_path: Path) -> None:
    path = tmp_path / "00_tour.md"
    path.write_text("# 一\n\n<!-- cell -->\n\n二\n", "utf-8")
    with pytest.raises(ValueError, match=r"00_tour\.md: 2 cells, not the \d+ of 00_tour\.py"):
        notebooks.read(path)


def test_a_chinese_notebook_finds_the_shared_code() -> None:
    code = "from common import SAMPLES, at_root, sample; at_root(); print(SAMPLES)"
    done = python("-c", code, cwd=notebooks.CHINESE, check=True)
    assert done.stdout == f"{notebooks.FOLDER / 'samples'}\n"


@each_notebook
def test_every_run_would_be_accepted(source: Path) -> None:
    for call in calls(source, "lab.load"):
        if isinstance(call.args[0], ast.Constant):
            load_cluster(ROOT / str(call.args[0].value))
    own = set(inspect.signature(lab.run).parameters)
    for call in calls(source, "lab.run"):
        (experiment,) = map(ast.literal_eval, call.args)
        given = {
            each.arg: ast.literal_eval(each.value)
            for each in call.keywords
            if each.arg and isinstance(each.value, (ast.Constant, ast.List))
        }
        assert set(load_cluster(ROOT / given["cluster"]).jobs) == set(EXPERIMENTS[experiment].jobs)
        for option in parameters(lab.run):
            option.value_of(given.get(option.name, option.default))
        flags = {name: value for name, value in given.items() if name not in own}
        assert len(program_args(experiment, flags)) == len(flags)
        others = {each.arg for each in call.keywords} - given.keys()
        assert others <= EXPERIMENTS[experiment].flags.keys()


@each_notebook
def test_a_notebook_imports_nothing_of_lab_but_lab_itself(source: Path) -> None:
    nodes = [*ast.walk(code(source))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.partition(".")[0] == "lab"} == {"lab"}


SECTIONS = ["Predict", "Run", "What you should see", "Questions", "Next"]


@each_notebook
def test_a_notebook_has_its_sections_and_checks_its_lesson(source: Path) -> None:
    text = "\n\n".join(cells(source, "markdown"))
    assert re.findall("^## (.*)", text, re.MULTILINE) == SECTIONS
    assert "\n**Goal.** " in text
    assert "\n**You need** " in text
    (call,) = calls(source, "check")
    stages = load_lesson(ast.literal_eval(call.args[0])).stages
    asked = [question.name for stage in stages for question in stage.questions]
    assert [str(each.arg).replace("_", "-") for each in call.keywords] == asked
    assert {ast.literal_eval(each.value) for each in call.keywords} == {...}
    run = {ast.literal_eval(each.args[0]) for each in calls(source, "lab.run")}
    assert {experiment for stage in stages for experiment in stage.runs.values()} <= run


_PARTS = re.compile(
    r"(\*\*Question (\d+)\.\*\*)|(<details><summary>Answer</summary>\n\n)|(</details>)"
)


def parts(source: Path) -> list[str]:
    """Questions (`1`, `2`), openings (`(`) and ends (`)`) of answers, in their order."""
    text = "\n\n".join(cells(source, "markdown"))
    return [found[2] or ("(" if found[3] else ")") for found in _PARTS.finditer(text)]


@each_notebook
def test_every_question_has_one_folded_answer(source: Path) -> None:
    found = parts(source)
    count = len(found) // 3
    assert count >= 5
    assert found == [part for number in range(1, count + 1) for part in (str(number), "(", ")")]


@each_notebook
def test_texts_have_links_and_commands_that_are_right_and_no_open_answer(source: Path) -> None:
    text = "\n\n".join(cells(source, "markdown"))
    assert dead_links(text, source.parent) == []
    assert wrong_commands(text) == []
    answer = r"<details><summary>Answer</summary>\n\n.+?\n\n</details>"
    folded = re.sub(answer, "", text, flags=re.DOTALL)
    assert not re.search(r"\bAnswer\b|\bsolution\b|details", folded)
    assert not re.search(r"\banswer\b|\bsolution\b", "".join(cells(source, "code")), re.IGNORECASE)


@pytest.mark.parametrize(
    "path", sorted(notebooks.FOLDER.glob("clusters/*.yaml")), ids=lambda p: p.stem
)
def test_the_configs_of_notebooks_are_valid(path: Path) -> None:
    cluster = load_cluster(path)
    assert cluster.name == path.stem
    assert set(cluster.links) == set(cluster.nodes)


def test_a_check_keeps_what_was_found_and_shows_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(notebooks.FOLDER))
    monkeypatch.setenv("LAB_RUNS_DIR", str(tmp_path))
    monkeypatch.setattr("lab.verbs.check._check_order", lambda *_: None)
    common = importlib.import_module("common")
    common.check("async", updates=1650, late_updates="1,650", last=...)
    assert "→ no run of async has ended yet" in capsys.readouterr().out
    texts = {each.question: each.text for each in read_answers(tmp_path / FILE)}
    assert texts == {"updates": "1650", "late-updates": "1,650"}
    with pytest.raises(InputError, match="no question 'upd'"):
        common.check("async", upd=1)


def test_the_shared_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(notebooks.FOLDER))
    common = importlib.import_module("common")
    with pytest.raises(KeyError, match=r"no sample 'asinc': there are async, .*sync"):
        common.sample("asinc")
    steps = common.steps_of(common.sample("sync"))  # on one clock, in order
    assert steps["seconds"].iloc[0] == 0
    assert steps["seconds"].is_monotonic_increasing
    axes: Axes = Figure().subplots()
    steps = steps.sample(frac=1, random_state=1)
    common.curve(axes, steps["global_step"], steps["loss"], "loss")
    points, line = axes.lines
    assert list(points.get_xdata()) == sorted(steps["global_step"])
    assert line.get_label() == "loss"
    assert line.get_ydata().std() < points.get_ydata().std()  # smoother
