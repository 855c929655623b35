"""A real training, judged by the chapter's claims and shown as a page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import ROOT, lab

pytestmark = pytest.mark.tensorflow

EPOCHS = 10
WHERE = ("--cluster", "clusters/book.yaml", "--backend", "local", "--gpus", "none")


def test_a_training_is_evaluated_from_its_records(tmp_path: Path) -> None:
    """A fifth of the chapter's training: the claims that still hold pass, and no others."""
    for name in ("scripts", "clusters"):
        shutil.copytree(ROOT / name, tmp_path / name)
    arguments = ("--epochs", str(EPOCHS), "--start", "worker-2: after 5,000 steps", "--seed", "1")
    lab(tmp_path, "run", "async-fast", *WHERE, *arguments)
    out, err = lab(tmp_path, "reproduce", "book-async", "--runs", "last", "--json", code=1)
    assert "claims are not reproduced, such as global-steps" in err
    result = json.loads(out)
    found = {each["claim"]: each for each in result["verdicts"]}
    word = {name: each["verdict"] for name, each in found.items()}
    for name in ("runs", "learning-rate", "batch-size", "updates-lost", "accuracies-differ"):
        assert word[name] == "PASS", found[name]
    assert word["epochs"] == word["global-steps"] == word["local-steps.worker-0"] == "OUTSIDE_BAND"
    assert found["learning-rate"]["ours"]["mean"] == 0.01
    assert found["global-steps"]["ours"]["mean"] == 3 * 550 * EPOCHS
    # The first column of the table was reached, by one run; the others are beyond its end.
    assert word["global-step.worker-0.epoch-9"] == "INSUFFICIENT_RUNS"
    assert word["global-step.worker-0.epoch-19"] == "NOT_COMPARABLE"
    joined = found["global-step.worker-2.epoch-9"]["ours"]["mean"]
    assert joined == 3 * 550 * EPOCHS  # it finishes last, and makes the last step

    (kept,) = (tmp_path / "runs").glob("reproduce-book-async-*.json")
    page = tmp_path / "page.html"
    lab(tmp_path, "report", "last", "--verdicts", str(kept), "--output", str(page))
    shown = page.read_text()
    assert "global steps in all" in shown
    assert "16,500" in shown
