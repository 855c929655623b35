"""A run that an earlier version of lab recorded: it stays readable, and its program resumes.

`tests/stored_runs` holds a run of format 1 with a user's program. It was interrupted.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.commands import ROOT, lab

RUN = "20261124-0532-regression-2adf"
STEPS = {"worker-0": 700, "worker-1": 770}
"""The last step that each worker recorded; its checkpoint is a few steps newer."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "tests/stored_runs", tmp_path / "runs")
    (tmp_path / "cluster.yaml").write_bytes((ROOT / "clusters/laptop.yaml").read_bytes())
    (tmp_path / "scripts").mkdir()
    return tmp_path


def test_a_stored_run_is_listed_and_reported(project: Path) -> None:
    (listed,) = json.loads(lab(project, "runs", "--json")[0])
    assert (listed["run_id"], listed["state"]) == (RUN, "cancelled")
    out, _ = lab(project, "show", RUN, "--json")
    steps = {task["task"]: task["global_step"] for task in json.loads(out)["tasks"]}
    assert steps == {"ps-0": None, **STEPS}
    lab(project, "report", RUN)
    assert RUN in (project / "runs" / RUN / "report.html").read_text()


def test_the_program_of_a_stored_run_resumes(project: Path) -> None:
    old = project / "runs" / RUN
    assert "from lab.task.recorder import Recorder" in (old / "program/regression.py").read_text()
    saved = {
        task: int(np.load(old / f"files/saved/{task}/model.npz")["global_step"]) for task in STEPS
    }
    out, _ = lab(
        project,
        *("run", str(old / "program/regression.py"), "--backend", "local", "--json", "--"),
        *("--global_steps", "800", "--record_every", "10"),
        *("--checkpoint_dir", str(old / "files/saved")),
    )
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "succeeded"
    new = project / "runs" / summary["run_id"]
    for task, recorded in STEPS.items():
        assert recorded <= saved[task] < recorded + 10
        assert f"goes on from step {saved[task]}" in (new / f"tasks/{task}.jsonl").read_text()
    assert summary["global_step"] == 800
    assert min(each["accuracy"] for each in summary["tasks"] if each["accuracy"]) > 0.85
    out, _ = lab(project, "compare", RUN, summary["run_id"], "--json")
    assert [each["run_id"] for each in json.loads(out)["runs"]] == [RUN, summary["run_id"]]
