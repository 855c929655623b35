"""`docs/results.md`, and the README's three counts, agree with the kept verdicts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lab.reproduce.claims import NAMES, load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", ROOT / "tools/results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kept(results: ModuleType) -> Any:
    return results.kept()


def test_the_page_and_the_readme_show_the_verdicts(results: ModuleType, kept: Any) -> None:
    text = (ROOT / "README.md").read_text()
    assert results.put(text, results.section(kept)) == text
    assert (ROOT / "docs/results.md").read_text() == results.page(kept)


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_is_evaluated_in_its_present_form(name: str, kept: Any) -> None:
    fields = ("words", "group", "source", "where", "note")
    claims = {
        each.id: tuple(getattr(each, field) for field in fields) for each in load(name).claims
    }
    result = kept.get(name, {"verdicts": []})
    judged = {each["claim"]: tuple(each[f] for f in fields) for each in result["verdicts"]}
    judged.pop("runs", None)
    assert judged == (claims if name in kept else {})


def verdict(claim: str, group: str, word: str, **fields: Any) -> dict[str, Any]:
    return {
        "claim": claim, "words": claim, "group": group, "source": "book", "where": "the text",
        "note": "", "source_value": None, "band": None, "verdict": word, "why": "",
        "ours": {"mean": None, "low": None, "high": None, "n": 0}, **fields,
    }  # fmt: skip


def judged(*verdicts: Any) -> dict[str, Any]:
    return {
        "name": "staleness", "source": "a source", "made": "2026-01-01T00:00:00Z",
        "load_average": 0.5, "runs": ["a-run", "b-run"], "verdicts": verdicts,
    }  # fmt: skip


def test_a_failed_claim_is_shown_and_counted(results: ModuleType) -> None:
    found = {
        "book-async": judged(
            verdict("a", "independent", "PASS", why="hidden", band={"low": 1, "high": 1}),
            verdict("b: w0", "fitted", "PASS", note="fitted to it"),
            verdict("b: w1", "fitted", "OUTSIDE_BAND", note="fitted to it", why="2% off"),
            verdict("c", "uncounted", "TOO_GOOD"),
        ),
        "staleness": judged(
            verdict("d", "independent", "OUTSIDE_BAND", why="p 0.4"), verdict("e", "own", "PASS")
        ),
    }
    assert results.section(found).splitlines()[3:6] == [
        "| independent claims | 1 PASS, 1 OUTSIDE_BAND |",
        "| claims that follow from a fitted start | 1 PASS, 1 OUTSIDE_BAND |",
        "| checks of our own | 1 PASS |",
    ]
    assert "`lab reproduce blog-sync` has no verdicts yet." in results.section(found)
    shown = results.page(found)
    assert "| staleness | 1 OUTSIDE_BAND | none | 1 PASS |" in shown
    assert "| all | 1 PASS, 1 OUTSIDE_BAND | 1 PASS, 1 OUTSIDE_BAND | 1 PASS |" in shown
    assert "OUTSIDE_BAND: 2% off |" in shown
    assert shown.count("Fitted to it (b).") == 1
    assert "### Not counted: 1 TOO_GOOD" in shown
    assert "hidden" not in shown
    assert "`lab reproduce blog-sync` has no verdicts yet." in shown
    assert "has no verdicts yet" not in results.page(dict.fromkeys(NAMES, judged()))


def test_figures_and_commands_are_there(results: ModuleType) -> None:
    shown = results.page(dict.fromkeys(NAMES, judged()))
    figures = [part.partition(")")[0] for part in shown.split("](")[1:] if ".png" in part]
    assert len(figures) == 3
    assert all((ROOT / "docs" / figure).is_file() for figure in figures)
    assert shown.count("\nlab reproduce ") == len(NAMES)
    assert "2 runs, made 2026-01-01. The load average before the first training was 0.5" in shown
    assert "a-run" not in shown


def test_a_readme_without_marks_is_unchanged(results: ModuleType) -> None:
    with pytest.raises(SystemExit, match="lacks the marks"):
        results.put("# lab\n", "new")
