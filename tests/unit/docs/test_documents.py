"""The documents: links lead somewhere, commands are valid, and lessons fit their experiments."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from lab.cluster.config import load_cluster, with_workers
from lab.protocol.experiments.experiment import Experiment
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.runner.collect import RESERVED
from lab.study.sweep import check_over, grid, parse_over
from tests.support.shown import ROOT, commands, dead_links, examples, fenced, wrong_commands
from tests.support.then_and_now import FATES, TEXT, Row, rows, table
from tools import translations
from tools.docs_site import page_of
from tools.reference import plugin_table

GENERATED = {"docs/explanation/results.md"}
WITH_MORE = {"docs/how-to/backend.md", "docs/how-to/experiments.md"}
"""Pages with commands for a plug-in: test_wheel.py and test_experiments_page.py run them."""
PARTS = ("explanation", "how-to", "reference", "start", "tutorials", "zh")
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        *(f"docs/{part}/**/*.md" for part in PARTS),
        "notebooks/*.md",
        "notebooks/zh/*.md",
    )
    for path in ROOT.glob(pattern)
)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_and_commands_of_a_page(page: Path) -> None:
    text = page.read_text("utf-8")
    assert dead_links(text, page.parent) == []
    assert name(page) in {*GENERATED, *WITH_MORE} or wrong_commands(text) == []


DOCS = sorted(ROOT.glob("docs/**/*.md"))
EVERY = sorted({*DOCS, *PAGES})


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_a_page_has_at_most_200_lines(page: Path) -> None:
    assert page.read_text("utf-8").count("\n") <= 200


WRITTEN = {
    "docs/evidence/blog.md",  # test_evidence.py compares it with the run
    "docs/evidence/chapter.md",  # test_evidence.py compares it with the runs
}
"""Pages whose output a tool writes between comments."""

TYPED = re.compile(
    r"\.|cat|chmod|cmp|cp|docker|export|for|git|kubectl|lab|make|mkdir|openssl|pip"
    r"|python(3(\.12)?)?|sbatch|sed|sh|sha256sum|sinfo|source|systemctl|tar|tensorboard|timeout|uvx"
)
"""The first words of the lines of a block of commands."""


def compared() -> set[tuple[str, ...]]:
    """The blocks that tests compare by `assert_shows`: their pages, and how they begin."""
    found = set()
    for path in ROOT.glob("tests/**/test_*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        texts = {
            ast.unparse(node.targets[0]): ast.unparse(node.value)
            for node in nodes
            if isinstance(node, ast.Assign)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "assert_shows":
                given = [ast.unparse(each) for each in node.args[:2]]
                found.add(tuple(ast.literal_eval(texts.get(each, each)) for each in given))
    return found


def test_every_output_that_a_page_shows_is_compared() -> None:
    tests = compared()
    shown = [
        (name(page), each)
        for page in EVERY
        if "zh" not in page.as_posix()
        for each in fenced(name(page))
        if each.is_output and not (each.mark and name(page) in WRITTEN)
    ]
    assert [
        f"{page}:{each.line}: no test calls assert_shows for this output"
        for page, each in shown
        if not any(page == of and each.text.startswith(start) for of, start in tests)
    ] == []


@pytest.mark.parametrize("page", EVERY, ids=name)
def test_a_block_of_commands_has_no_output_and_names_what_exists(page: Path) -> None:
    lines = [
        shlex.split(line, comments=True)
        for each in fenced(name(page))
        if each.language == "sh"
        for line in re.sub(r"\\\n", " ", each.text).splitlines()
        if line and not line.startswith("#")
    ]
    words = [next(word for word in line if not re.match(r"\w+=", word)) for line in lines]
    names = {word.rpartition("venv/bin/")[2] for word in words}
    assert {each for each in names if not TYPED.fullmatch(each)} == set()
    targets = {line[1] for line in lines if line[0] == "make" and "." not in line[1]}
    assert targets <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    paths = {word for line in lines for word in line if re.match(r"(tools|docs|scripts)/", word)}
    assert {path for path in paths if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_what_belongs_to_an_item_of_a_list_is_indented_as_the_site_needs_it(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ {1,3}(?:```|[-*] |\d+\. ).*", text, re.MULTILINE) == []


def test_every_test_of_the_attacks_on_seats_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/evidence/seats.md").read_text("utf-8")))
    tests = "".join(path.read_text("utf-8") for path in ROOT.glob("tests/**/test_class*.py"))
    defined = set(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    assert named
    assert named <= defined


def test_the_page_on_files_names_every_reserved_file_name() -> None:
    text = (ROOT / "docs/reference/endings.md").read_text("utf-8")
    assert [each for each in sorted(RESERVED) if f"`{each}" not in text] == []


LESSONS = ROOT / "docs/tutorials/lessons"
ABOUT_ALL = {"choosing.md", "complaints.md", "then-and-now.md", "three-frameworks.md"}
OF_PLAIN_PROGRAMS = {"first.md"}
TAUGHT = [each for each in EXPERIMENTS.values() if each.lesson]


def test_every_lesson_has_an_experiment() -> None:
    pages = {path.name for path in LESSONS.glob("*.md")}
    assert pages == {each.lesson for each in TAUGHT} | ABOUT_ALL | OF_PLAIN_PROGRAMS


@pytest.mark.parametrize("experiment", TAUGHT, ids=lambda each: each.name)
def test_the_first_command_of_a_lesson_fits(experiment: Experiment) -> None:
    text = (LESSONS / experiment.lesson).read_text("utf-8")
    found = [shlex.split(line) for line in re.findall(r"^lab run (.+)$", text, re.MULTILINE)]
    arguments = next(each for each in found if each[0] == experiment.name)
    config = arguments[arguments.index("--cluster") + 1]
    assert config == (experiment.cluster or config)
    assert set(load_cluster(ROOT / config).jobs) == set(experiment.jobs)
    flags = {word.removeprefix("--") for word in arguments if word.startswith("--")}
    assert flags - {"cluster"} <= set(experiment.flags)
    assert "\n**What must hold.**" in text
    assert "\n## What to try\n" in text


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_expected_results_are_reported_by_the_program(experiment: Experiment) -> None:
    text = (ROOT / "scripts" / experiment.program).read_text("utf-8")
    assert [each for each in experiment.results if f'name="{each}"' not in text] == []
    assert not experiment.results or experiment.expected


def test_the_lesson_on_errors_names_every_program() -> None:
    text = (LESSONS / "complaints.md").read_text("utf-8")
    programs = {path.name for path in (LESSONS / "complaints").glob("*.py")}
    assert programs == set(re.findall(r"complaints/(\w+\.py)\)", text))


SWEEPS = [
    found
    for page in (*sorted(LESSONS.glob("*.md")), ROOT / "README.md")
    for found in re.findall(r"(lab sweep [^`\n]+)", page.read_text("utf-8"))
]


@pytest.mark.parametrize("line", [*SWEEPS, *examples("sweep")])
def test_shown_sweeps_are_possible(line: str) -> None:
    _, _, experiment, *arguments = shlex.split(line)
    over = parse_over(arguments[arguments.index("--over") + 1])
    check_over(over, EXPERIMENTS[experiment], ())
    config = dict(itertools.pairwise(arguments)).get("--cluster", "cluster.yaml")
    cluster = load_cluster(ROOT / config)
    assert set(cluster.jobs) == set(EXPERIMENTS[experiment].jobs)
    workers = [point.workers for point in grid(over, 1) if point.workers is not None]
    assert [len(with_workers(cluster, each).jobs["worker"].on) for each in workers] == workers


MAP = (ROOT / "docs/reference/chapter-map.md").read_text("utf-8")


def test_every_row_of_the_map_has_a_place() -> None:
    places = [line.split(" | ")[1] for line in MAP.splitlines() if line.startswith("| ")]
    vague = {place for place in places if "](" not in place and "`" not in place}
    assert len(places) > 40
    assert vague == {"in the lab |", "--- |"}


@pytest.mark.parametrize("name", ["async", "sync", "async-mlp", "sync-mlp", "towers", "linear"])
def test_every_program_of_the_sources_has_its_experiment(name: str) -> None:
    assert name in EXPERIMENTS
    assert any(line.startswith(f"lab run {name} ") for line in commands(MAP))


# ---- Old and new idioms; tests/e2e/test_then_and_now.py compares them with TensorFlow

IDIOMS = table(TEXT, "then")


def test_the_tables_of_idioms_are_complete() -> None:
    assert len(IDIOMS) > 40
    columns = ["then", "what it was for", "what became of it", "now", "in the lab"]
    assert list(IDIOMS[0].cells) == columns
    assert [row.line for row in rows(TEXT) if not all(row.cells.values())] == []
    count = Counter(each for row in IDIOMS for each in row.names)
    assert [each for each, times in count.items() if times > 1] == []
    assert [row.cells["status"] for row in table(TEXT, "status")] == [f"**{f}**" for f in FATES]


@pytest.mark.parametrize("row", IDIOMS, ids=lambda row: row.cells["then"])
def test_every_idiom_has_its_purpose_its_fate_and_its_successor(row: Row) -> None:
    cells, names, fate = row.cells, row.names, row.fate
    assert cells["what it was for"].endswith(".")
    assert fate
    # Where a name is TensorFlow's, it is checked against TensorFlow; a misspelt `ft.` is not.
    other = [span for span in row.code("then") if span not in names]
    assert all(fate == "outside" or "." not in span for span in other)
    assert names or fate == "outside"
    modern = row.code("now")
    assert modern or cells["now"].startswith(("nothing", "as above", "a loop"))


INSIDE = [
    ROOT / "docs/explanation/architecture.md",
    *sorted(ROOT.glob("docs/explanation/decisions/*.md")),
]
DECISION = ["Trade-off", "Code"]


def layers() -> list[list[str]]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (found,) = (
        each["layers"]
        for each in config["tool"]["importlinter"]["contracts"]
        if each.get("containers") == ["lab"]
    )
    return [re.findall(r"\w+", layer) for layer in found]


@pytest.mark.parametrize("page", INSIDE, ids=name)
def test_what_a_page_about_the_code_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    paths = re.findall(r"`((?:lab|tests|scripts|tools|benchmarks)/[\w./-]+)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    modules = {path.name for path in ROOT.glob("lab/**/*.*")}
    assert set(re.findall(r"`(\w+\.py)`", text)) <= modules


@pytest.mark.parametrize("page", INSIDE[1:], ids=name)
def test_a_decision_has_its_parts_and_is_in_the_index(page: Path) -> None:
    if page.name == "index.md":
        return
    _, *decisions = re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)
    assert decisions
    for decision in decisions:
        title, blank, explanation, *_ = decision.splitlines()
        parts = re.findall(r"^\*\*([A-Z][\w-]+):\*\* \S", decision, re.MULTILINE)
        assert parts == DECISION, title
        assert not blank, title
        assert re.match(r"[A-Z`[]", explanation), f"{title}: it begins with the problem"
        *_, code = decision.split("**Code:**")
        assert re.search(r"`(?:lab|scripts|tools)/|`pyproject\.toml`", code), title
        assert decision.count("\n") <= 40, title
    assert f"]({page.name})" in page.with_name("index.md").read_text("utf-8")


def test_the_page_on_plugins_lists_what_a_backend_may_import() -> None:
    page = (ROOT / "docs/how-to/backend.md").read_text("utf-8")
    (source,) = re.findall(r'```python\n(""".*?)```', page, re.DOTALL)
    table = plugin_table(source)
    assert table in (ROOT / "docs/reference/plugins.md").read_text("utf-8"), table
    assert len(re.findall("`.*?`", table)) - table.count("\n| `") <= 50
    assert source.count("\n") <= 150


def test_the_table_of_rooms_is_complete() -> None:
    rows = re.findall(r"^\| `lab/(\w+)` \|", INSIDE[0].read_text("utf-8"), re.MULTILINE)
    assert rows == [*itertools.chain(*layers())]


@pytest.mark.parametrize("room", sorted(itertools.chain(*layers())))
def test_a_room_says_what_it_does_and_where_to_begin_reading(room: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / "lab" / room / "__init__.py").read_text("utf-8")))
    assert text is not None
    begin = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert [path for path in begin if not (ROOT / "lab" / room / path).exists()] == []
    assert begin or room == "cli"


def test_the_picture_of_the_rooms_has_their_floors() -> None:
    picture = (ROOT / "docs/images/layers.svg").read_text("utf-8")
    shown = re.findall(r'<text class="mono" x="\S+" y="(\d+)">(\w+)</text>', picture)
    floors = itertools.groupby(shown, lambda room: room[0])
    assert [[name for _, name in floor] for _, floor in floors] == layers()


@pytest.mark.parametrize(
    "page", ["docs/tutorials/lessons/async.md", "docs/zh/tutorials/lessons/async.md"]
)
def test_the_lesson_quotes_the_lines_of_the_program(page: str) -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / page).read_text(), re.MULTILINE)
    program = (ROOT / "scripts/mnist_async.py").read_text()
    assert len(rows) > 5
    assert [row for row in rows if row not in program] == []


def test_an_outdated_page_is_marked() -> None:
    pages = [translations.read(page) for page in translations.pages()]
    behind = [name(each.page) for each in pages if each.is_behind]
    assert behind == [name(each.page) for each in pages if each.says_behind], (
        "translate these pages anew and run `python tools/translations.py PAGE`,"
        " or run `python tools/translations.py`, which marks them"
    )


def blocks(page: Path) -> list[str]:
    """The commands and outputs of a page, without comments, which are in its language."""
    text = re.sub(r"[ \t]*# .*", "", page.read_text("utf-8"))
    return re.findall(r"^ *```.*?^ *```", text, re.MULTILINE | re.DOTALL)


def test_a_chinese_page_shows_the_commands_and_outputs_of_the_english_one() -> None:
    pages = [page for page in translations.pages() if not translations.read(page).is_behind]
    pairs = [(page, translations.english(page)) for page in pages if "notebooks" not in page.parts]
    assert [name(page) for page, english in pairs if blocks(page) != blocks(english)] == []


def test_the_chinese_pages_are_linked_from_the_english_ones_and_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in translations.pages():
        english = translations.english(page)
        link = f"({os.path.relpath(page.with_suffix(english.suffix), english.parent)})"
        assert link in english.read_text("utf-8"), f"{name(english)} does not link {page}"
        assert page.parent == ROOT or f": {page_of(name(page))}\n" in navigation


def test_a_page_says_that_it_has_fallen_behind_until_it_is_translated_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    english, page = tmp_path / "docs/a/b.md", tmp_path / "docs/zh/a/b.md"
    for path, text in ((english, "one"), (page, "一\n"), (tmp_path / "README.md", "lab")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (tmp_path / "README.zh-CN.md").write_text("lab")
    with pytest.raises(ValueError, match=r"b\.md: it has no note"):
        translations.read(page)
    translations.main([str(page), str(tmp_path / "README.zh-CN.md")])
    current = page.read_text("utf-8")
    assert re.fullmatch(r"一\n\n本页译自\[英文版\]\(\.\./\.\./a/b\.md\)。<!-- .* -->\n", current)
    english.write_text("two", "utf-8")
    for _ in range(2):
        translations.main([])
        assert page.read_text("utf-8") == f"{current}{translations.BEHIND}\n"
    translations.main([str(page)])
    assert translations.read(page) == translations.Translation(
        page, translations.digest(english), says_behind=False
    )
    assert page.read_text("utf-8").startswith("一\n\n本页译自")


def test_a_chinese_notebook_follows_the_texts_and_not_the_code_of_the_english_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    english, page = tmp_path / "notebooks/00_a.ipynb", tmp_path / "notebooks/zh/00_a.md"
    page.parent.mkdir(parents=True)
    page.write_text("一\n", "utf-8")

    def write(text: str, code: str) -> None:
        kinds = {"markdown": text, "code": code}
        english.write_text(
            json.dumps({"cells": [{"cell_type": k, "source": [v]} for k, v in kinds.items()]})
        )

    write("one", "x = 1")
    translations.stamp(page)
    assert "](../00_a.ipynb)" in page.read_text("utf-8")
    write("one", "x = 2")
    assert not translations.read(page).is_behind
    write("two", "x = 2")
    assert translations.read(page).is_behind


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("scripts/*.py"), *ROOT.glob("notebooks/*.py")]),
    ids=lambda path: path.stem,
)
def test_what_a_program_imports_of_lab_exists(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lab"):
            for each in node.names:
                exec(f"from {node.module} import {each.name}")  # noqa: S102


@pytest.mark.parametrize(
    ("program", "lines", "needs"),
    [
        ("first_async", 60, {"argparse", "time", "numpy", "tensorflow"}),
        ("first_ddp", 50, {"argparse", "torch"}),
    ],
)
def test_a_first_program_is_short_and_needs_nothing_of_lab(
    program: str, lines: int, needs: set[str]
) -> None:
    text = (ROOT / f"scripts/{program}.py").read_text("utf-8")
    assert len(text.splitlines()) <= lines
    imported = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or ".").partition(".")[0])
    assert imported == needs
