"""The table of engines in the documents has the recorded results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines import results
from tests.engines.cells import CELLS
from tests.engines.results import BEGIN, END, PAGE, Result, read, with_table


def test_the_page_has_the_recorded_results() -> None:
    page = PAGE.read_text("utf-8")
    assert with_table(page) == page
    assert page.count("<!-- begin") == page.count("<!-- end") == 1


def test_every_recorded_result_is_of_a_cell() -> None:
    assert set(read()) <= {cell.name for cell in CELLS}
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def test_failed_tests_are_counted_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = Result("28.5.2", "2.40.3", "none", "2026-11-24", 20, ("test_a",), 1)
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "engines.md")
    results.PAGE.write_text(f"# Engines\n\n{BEGIN}{END}\nThe end.\n")
    results.record("28", result)
    results.record("28", result)
    page = results.PAGE.read_text()
    assert "| yes | yes | 2026-11-24 | 20 passed, 1 failed, 1 skipped |\n" in page
    assert "- Engine 28.5.2 with Compose 2.40.3 and the store overlay2: `test_a` failed.\n" in page
    assert page.endswith(f"{END}\nThe end.\n")
    assert read() == {"28": result}
