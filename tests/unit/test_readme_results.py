"""The README's section of results says what the kept verdicts say."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
def kept(results: ModuleType) -> dict[str, Any]:
    return {
        name: json.loads((results.KEPT / f"{name}.json").read_text()) for name in results.IN_WORDS
    }


def test_the_readme_shows_what_was_judged(results: ModuleType, kept: dict[str, Any]) -> None:
    text = (ROOT / "README.md").read_text()
    assert results.put(text, results.section(kept)) == text


def test_a_claim_that_fails_is_shown_so(results: ModuleType, kept: dict[str, Any]) -> None:
    worse = copy.deepcopy(kept)
    (claim,) = results.of(worse["book-async"], "last-tests-best")
    claim["verdict"] = "OUTSIDE_BAND"
    shown = results.section(worse)
    assert "46 PASS, 1 OUTSIDE_BAND; 2 checks" in shown
    assert "| the worker that ends last tests best | OUTSIDE_BAND |" in shown
    assert "| the worker that ends last tests best | PASS |" in results.section(kept)


def test_figures_and_commands_are_there(results: ModuleType, kept: dict[str, Any]) -> None:
    shown = results.section(kept)
    figures = [part.partition(")")[0] for part in shown.split("](")[1:]]
    assert len(figures) == 3
    assert all((ROOT / figure).is_file() for figure in figures)
    assert shown.count("`lab report ") == 2
    assert shown.count("\nlab reproduce book-") == 2
    assert not any(run in shown for result in kept.values() for run in result["runs"])


def test_a_readme_without_its_marks_is_left_alone(results: ModuleType) -> None:
    with pytest.raises(SystemExit, match="lacks the marks"):
        results.put("# lab\n", "new")
