"""The page on old and new idioms: its tables are complete, and its links have targets.

`tests/e2e/test_then_and_now.py` compares it with TensorFlow.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections import Counter

import pytest

from lab.cli.commands import run
from lab.config import load_cluster
from tests.support.then_and_now import FATES, PAGE, ROOT, Row, pieces, prose, rows, spans, table

TEXT = PAGE.read_text("utf-8")
IDIOMS = table(TEXT, "then")

_LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_RUN = re.compile(r"lab run [^`\n]+")


def anchors(text: str) -> set[str]:
    """How the headings of a page are linked to: in lower case, with dashes, without punctuation."""
    return {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(text)
    }


def test_the_page_has_a_table_of_idioms() -> None:
    assert len(IDIOMS) > 40
    assert list(IDIOMS[0].cells) == [
        "then",
        "what it was for",
        "what became of it",
        "now",
        "in the lab",
    ]


def test_no_cell_is_empty() -> None:
    empty = [
        (row.line, column) for row in rows(TEXT) for column, cell in row.cells.items() if not cell
    ]
    assert empty == []


@pytest.mark.parametrize("row", IDIOMS, ids=lambda row: row.cells["then"])
def test_every_idiom_has_its_purpose_and_its_fate(row: Row) -> None:
    assert row.cells["what it was for"].endswith(".")
    assert row.fate
    # Where a name is TensorFlow's, it is checked against TensorFlow; a misspelt `ft.` is not.
    other = [span for span in row.code("then") if span not in row.names]
    assert all(row.fate == "outside" or "." not in span for span in other)
    assert row.names or row.fate == "outside"


@pytest.mark.parametrize("row", IDIOMS, ids=lambda row: row.cells["then"])
def test_every_modern_idiom_is_code_or_marked_missing(row: Row) -> None:
    assert row.code("now") or row.cells["now"].startswith(("nothing", "as above", "a loop"))


def test_names_are_unique() -> None:
    count = Counter(name for row in IDIOMS for name in row.names)
    assert [name for name, times in count.items() if times > 1] == []


def test_the_page_explains_its_terms() -> None:
    assert [row.cells["status"] for row in table(TEXT, "status")] == [
        f"**{fate}**" for fate in FATES
    ]


def test_links_have_a_target() -> None:
    assert [target for target in _LINK.findall(TEXT) if not leads_somewhere(target)] == []


def leads_somewhere(target: str) -> bool:
    """Whether a link's file is there, and in it the heading."""
    file, _, anchor = target.partition("#")
    linked = PAGE.parent / file if file else PAGE
    return linked.is_file() and (not anchor or anchor in anchors(linked.read_text("utf-8")))


def test_python_blocks_parse() -> None:
    assert [line for line, code in pieces(TEXT) if not is_python(code)] == []


def is_python(code: str) -> bool:
    """Whether it has no syntax error."""
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def test_every_flag_of_lab_run_exists() -> None:
    shown = {span for span in spans(prose(TEXT)) if span.startswith(("--", "lab run"))}
    words = {word for span in [*shown, *_RUN.findall(TEXT)] for word in span.split()}
    flags = {word for word in words if word.startswith("--")}
    outside = {span for row in IDIOMS if row.fate == "outside" for span in row.code("then")}
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(run.command).parameters}
    assert {"--listing", "--faithful", "--mend", "--tensorflow"} <= flags
    assert flags - known - outside - {"--ps_strategy"} == set()


def test_the_first_command_names_an_existing_config() -> None:
    (first,) = re.findall(r"^(lab run .+)$", TEXT, re.MULTILINE)
    words = shlex.split(first)
    cluster = load_cluster(ROOT / words[words.index("--cluster") + 1])
    assert set(cluster.jobs) == {"ps", "worker"}
