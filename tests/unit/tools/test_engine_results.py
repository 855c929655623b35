"""The table of engines in the documents has the recorded results."""

from __future__ import annotations

from tests.engines.cells import CELLS
from tests.engines.results import PAGE, read, with_table


def test_the_page_has_the_recorded_results() -> None:
    page = PAGE.read_text("utf-8")
    assert with_table(page, read()) == page
    assert page.count("<!-- begin") == page.count("<!-- end") == 1
    assert list(read()) == [cell.name for cell in CELLS]
