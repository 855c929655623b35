"""docs/errors.md lists every error in the code, and a test has brought each of them about.

The latter is judged at the end of the tests, by tools/errors/plugin.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.errors import page
from tools.errors.scan import scan
from tools.errors.seen import Seen


def test_the_page_lists_the_codes_errors(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-errors", default=False):
        pytest.skip("the page is being written")
    wanted, shown = page.entries(scan()), page.read(page.PATH.read_text("utf-8"))
    new, old = wanted.keys() - shown.keys(), shown.keys() - wanted.keys()
    assert not new, f"docs/errors.md lacks {sorted(new)}; write it with `make errors`"
    assert not old, f"docs/errors.md is ahead of the code: {sorted(old)}; `make errors`"
    strange = [entry.title for entry, text in shown.items() if not page.fits(text, wanted[entry])]
    assert not strange, f"examples that the code cannot say: {strange}; `make errors`"


def test_reports_of_worker_processes_are_merged() -> None:
    some = scan()[0]
    first, second, third = (replace(some, what=what) for what in "abc")
    places = [first, second, third]
    one, other, whole = Seen(places), Seen(places), Seen(places)
    one.examples = {first: "error: a long text"}
    other.examples = {first: "error: a text", second: "error: b"}
    for each in (one, other):
        whole.merge(each.report())
    assert whole.examples == {first: "error: a text", second: "error: b"}
    assert whole.missing() == [third]
