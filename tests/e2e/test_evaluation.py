"""A real training, judged by a source's claims and shown as a page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lab.reproduce.claims import load
from tests.support.commands import ROOT, lab

pytestmark = pytest.mark.tensorflow

WHERE = ("--cluster", "clusters/book.yaml", "--backend", "local", "--gpus", "none")


def test_a_training_with_a_fault_is_judged_from_its_records(tmp_path: Path) -> None:
    """One of the eight runs of a claim, and one that is too short."""
    for name in ("scripts", "clusters"):
        shutil.copytree(ROOT / name, tmp_path / name)
    recipe = load("book-sync").recipes["slowed-sync"]
    flags = [f"--{name}={value}" for name, value in {**recipe.flags, "seed": 1}.items()]
    lab(tmp_path, "run", recipe.experiment, *WHERE, *flags, "--fault", "; ".join(recipe.faults))
    lab(tmp_path, "run", "sync-fast", *WHERE, "--epochs", "1", "--seed", "1")
    out, err = lab(tmp_path, "reproduce", "book-sync", "--runs", "last~1,last", "--json", code=3)
    assert "error: inconclusive: 3 of 3 counted claims, such as in-step; " in err
    result = json.loads(out)
    (run,) = result["runs"]["slowed-sync"].values()
    (short,) = result["excluded"]
    assert run != short
    assert result["excluded"][short] == "its epochs is 1, not 50"
    assert f"left out: run {short}: its epochs is 1, not 50" in err
    found = {each["claim"]: each for each in result["claims"]}
    slowed = found["slowest-sets-pace"]
    assert (slowed["verdict"], slowed["why"]) == ("INCONCLUSIVE", "1 of 8 runs")
    (value,) = slowed["values"].values()
    assert value > 0  # the fault was found in the records, and all workers trained on after it
    assert found["in-step"]["why"] == "0 of 8 runs"

    (kept,) = (tmp_path / "runs").glob("reproduce-book-sync-*.json")
    page = tmp_path / "page.html"
    lab(tmp_path, "report", "last~1", "--verdicts", str(kept), "--output", str(page))
    assert "a slowed worker slows the others" in page.read_text()
