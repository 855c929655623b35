"""docs/errors.md tells of every error in the code, and a test has brought each of them about."""

from __future__ import annotations

import pytest

from tools.errors import page
from tools.errors.plugin import LAST, PART, SEEN
from tools.errors.scan import Place, scan


def listed(places: list[Place]) -> str:
    return "".join(
        f"\n  {each.module}:{each.lines[0]}: {each.function}: {each.what}"
        for each in sorted(places)
    )


def test_the_page_lists_what_the_code_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-errors"):
        pytest.skip("the page is being written")
    wanted, shown = page.entries(scan()), page.read(page.PATH.read_text("utf-8"))
    new, old = wanted.keys() - shown.keys(), shown.keys() - wanted.keys()
    assert not new, f"docs/errors.md lacks {sorted(new)}; write it with `make errors`"
    assert not old, f"docs/errors.md is ahead of the code: {sorted(old)}; `make errors`"
    strange = [entry.title for entry, text in shown.items() if not page.fits(text, wanted[entry])]
    assert not strange, f"examples that the code cannot say: {strange}; `make errors`"


def test_every_error_was_brought_about(request: pytest.FixtureRequest) -> None:
    assert request.node.name == LAST
    part = request.config.stash[PART]
    updating = request.config.getoption("--update-errors")
    if part:
        assert not updating, f"docs/errors.md needs the whole of tests/unit, and {part}"
        pytest.skip(f"whether every error has a test: needs the whole of tests/unit, and {part}")
    seen = request.config.stash[SEEN]
    if updating:
        examples = {each: seen.example(each) for each in seen.examples}
        page.PATH.write_text(page.write(scan(), examples), "utf-8")
    missing = seen.missing()
    assert not missing, (
        f"{len(missing)} errors that no unit test brings about; write one in tests/unit "
        f"for each (real, in this process):{listed(missing)}"
    )
