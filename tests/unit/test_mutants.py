"""`make mutants`: the kept results are good enough, and the tool can see a gap in tests."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tools.mutants import page
from tools.mutants.run import ROOT, Module, Mutant, Outcome, copy_tree, run_module, sample

SIZES = "def smaller(a, b):\n    return a < b\n\n\ndef larger(a, b):\n    return a > b\n"
TESTS = """
from lab.units import larger, smaller

def test_smaller():
    assert smaller(1, 2)
    assert not smaller(1, 1)

def test_larger():
    assert larger(2, 1)
"""


def test_a_gap_in_the_tests_leaves_a_survivor(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/__init__.py").touch()
    (tmp_path / "lab/units.py").write_text(SIZES)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_units.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").touch()
    sizes = Module("sizes", ["lab/units.py"], ["tests/test_units.py"])
    outcome = run_module(sizes, tmp_path, 1)
    found, gap = "lab.units.x_smaller__mutmut_1", "lab.units.x_larger__mutmut_1"
    assert (outcome.mutants, outcome.seed) == (2, 1)
    assert outcome.status == {found: "killed", gap: "survived"}
    assert outcome.survivors == {gap: Mutant("lab.units.larger", "return a > b", "return a >= b")}
    assert (tmp_path / "lab/units.py").read_text() == SIZES


def test_a_sample_depends_on_its_seed_alone() -> None:
    names = [f"mutant {number}" for number in range(301)]
    first = sample(names, 1)
    assert len(set(first)) == 300
    assert first == sample(names, 1) != sample(names, 2)
    assert sample(names[:300], 1) == names[:300]


def test_a_copy_holds_the_working_tree_without_ignored_files(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    for name in ("lab/placement/plan.py", "tests/conftest.py", "cluster.yaml"):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
    assert not {".git", ".venv"} & {path.name for path in tmp_path.iterdir()}


PLACE = Mutant("lab.placement.plan.place", "a < b", "a <= b")


def result(**counts: int) -> dict[str, Any]:
    """A kept result with this number of mutants for each status; one survivor is `PLACE`."""
    each = [status for status, count in counts.items() for _ in range(count)]
    return {
        "mutants": 100,
        "seed": 1,
        "commit": "abc",
        "date": "2026-11-23",
        "sources_sha256": "0",
        "status": {f"m{number}": status for number, status in enumerate(each)},
        "survivors": {"m0": asdict(PLACE)},
    }


def test_a_low_score_and_a_survivor_without_explanation_are_faults() -> None:
    reasons = {PLACE: "they are never equal"}
    assert page.faults({"plan": result(survived=10, killed=90)}, reasons) == []
    (low,) = page.faults({"plan": result(survived=11, killed=89)}, reasons)
    assert low == "plan: score 89.0% is below 90%"
    (late,) = page.faults({"plan": result(timeout=11, killed=89)}, reasons)  # it kills no mutant
    assert late == low
    (unexplained,) = page.faults({"plan": result(survived=10, killed=90)}, {})
    assert 'function = "lab.placement.plan.place"\nwas = "a < b"\nnow = "a <= b"\n' in unexplained


def test_the_page_shows_counts_and_explanations() -> None:
    kept = {"plan": result(survived=7, timeout=2, suspicious=1, killed=90)}
    text = page.text(kept, {PLACE: "never equal"})
    assert "| `plan` | 100 | 100 | 90 | 8 | 2 | 90.0% | 1 | `abc` | 2026-11-23 |" in text
    assert "`lab.placement.plan.place`: never equal\n\n```diff\n- a < b\n+ a <= b\n```" in text
    assert "NOT EXPLAINED" in page.text(kept, {})


def test_survivors_that_are_tested_again_keep_the_other_results() -> None:
    kept = result(survived=2, killed=1)
    again = Outcome(100, 9, "0", {"m0": "killed", "m1": "survived"}, {"m1": PLACE})
    merged = page.merged(kept, again)
    assert merged.status == {"m0": "killed", "m1": "survived", "m2": "killed"}
    assert (merged.seed, merged.survivors) == (1, {"m1": PLACE})


def test_an_outcome_replaces_only_its_own_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path / "mutants.json")
    outcome = Outcome(1, 2, "0", {"m0": "survived"}, {"m0": PLACE})
    page.record("plan", outcome, "abc", datetime.date(2026, 11, 23))
    page.record("render", outcome, "def", datetime.date(2026, 11, 24))
    kept = page.kept_results()
    assert [(name, each["commit"]) for name, each in kept.items()] == [
        ("plan", "abc"),
        ("render", "def"),
    ]
    assert kept["plan"]["survivors"] == {"m0": asdict(PLACE)}


def test_the_kept_results_are_good_enough_and_on_the_page() -> None:
    results, reasons = page.kept_results(), page.explanations()
    assert page.PAGE.read_text() == page.text(results, reasons)
    assert page.faults(results, reasons) == []
    for name, each in results.items():
        assert len(each["status"]) == min(each["mutants"], 300), name
