"""The table of engines in the documents has the recorded results."""

from __future__ import annotations

from pathlib import Path

from tests.engines.__main__ import outcome
from tests.engines.cells import CELLS
from tests.engines.results import BEGIN, END, PAGE, read, record, with_table


def test_the_page_has_the_recorded_results() -> None:
    page = PAGE.read_text("utf-8")
    assert with_table(page, read()) == page
    assert page.count("<!-- begin") == page.count("<!-- end") == 1
    assert list(read()) == [cell.name for cell in CELLS]


def test_a_result_replaces_that_of_its_cell(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "engines.md"
    file.write_text('{"28": {"Engine": "28.5.1", "tests": "7 passed"}, "gone": {}}')
    page.write_text(f"# Engines\n\n{BEGIN}{END}\nThe end.\n")
    record("28", {"Engine": "28.5.2", "tests": "8 passed"}, file, page)
    table = "| Engine | tests |\n| --- | --- |\n| 28.5.2 | 8 passed |\n"
    assert page.read_text() == f"# Engines\n\n{BEGIN}{table}{END}\nThe end.\n"
    assert list(read(file)) == ["28"]


def test_tests_are_counted() -> None:
    line = "===== 1 failed, 7 passed, 2 skipped, 1 warning, 1 error in 3.21s ====="
    assert outcome(f"FAILED a - 3 passed\n{line}\n") == "1 failed, 7 passed, 2 skipped, 1 error"
    assert outcome("no tests ran in 0.01s\n") == outcome("") == ""
