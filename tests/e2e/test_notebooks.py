"""A short notebook that trains, from top to bottom; `make notebooks` executes all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.runner.store.directory import all_runs
from lab.teach.lessons.check import Evidence, check_lesson
from lab.teach.lessons.lesson import load_lesson
from tests.support.agents import processes_with
from tests.support.shown import ROOT
from tools import notebooks

pytestmark = pytest.mark.tensorflow


def test_a_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = notebooks.execute(notebooks.FOLDER / "00_tour.py")
    of_code = [cell for cell in done.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in of_code] == list(range(1, len(of_code) + 1))
    images = [out for cell in of_code for out in cell.outputs if "image/png" in out.get("data", {})]
    assert images  # displayed without a call of the kernel
    assert len(all_runs(tmp_path / "runs")) == 2
    stages = check_lesson("tour", load_lesson("tour"), Evidence.read(tmp_path / "runs"))
    assert [each.hint for each in stages] == ["", ""]
    assert processes_with(str(tmp_path)) == []
