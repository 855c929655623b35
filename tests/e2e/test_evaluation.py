"""A real training, judged by a source's claims and shown as a page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lab.study.reproduce.claims import load
from tests.support.commands import ROOT, lab

pytestmark = pytest.mark.tensorflow

FIVE = """\
version: 1
name: five
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1, tf2, tf1, tf2]}}
"""


def test_a_training_is_judged_from_its_records(tmp_path: Path) -> None:
    """One of the eight runs of a claim."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "cluster.yaml").write_text(FIVE)
    recipe = load("staleness").recipes["several"]
    given = [f"--{name}={value}" for name, value in {**recipe.flags, "seed": 1}.items()]
    lab(tmp_path, "run", recipe.experiment, "--backend", "local", "--gpus", "none", *given)
    out, err = lab(tmp_path, "reproduce", "staleness", "--runs", "last", "--json", code=3)
    assert "error: inconclusive: " in err
    result = json.loads(out)
    assert (len(result["runs"]["several"]), result["excluded"]) == (1, {})
    found = {each["claim"]: each for each in result["claims"]}
    # No other run has the seed of this one; the probe needs no other.
    assert (found["overshoot"]["verdict"], found["overshoot"]["values"]) == ("INCONCLUSIVE", {})
    assert list(found["updates-lost"]["values"].values()) == [0]

    (kept,) = (tmp_path / "runs").glob("reproduce-staleness-*.json")
    page = tmp_path / "page.html"
    lab(tmp_path, "report", "last", "--verdicts", str(kept), "--output", str(page))
    assert "stale gradients raise the loss" in page.read_text()
