"""The program of a run that an earlier version of lab recorded resumes; `lab compare` reads both.

`tests/stored_runs` holds a run of format 1 with a user's program. It was interrupted.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from tests.support.commands import ROOT, lab

RUN = "20261124-0532-regression-2adf"
STEPS = {"worker-0": 700, "worker-1": 770}
"""The last step that each worker recorded; its checkpoint is a few steps newer."""


def test_the_program_of_a_stored_run_resumes(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests/stored_runs", tmp_path / "runs")
    (tmp_path / "cluster.yaml").write_bytes((ROOT / "clusters/laptop.yaml").read_bytes())
    (tmp_path / "scripts").mkdir()
    old = tmp_path / "runs" / RUN
    assert "from lab.task.recorder import Recorder" in (old / "program/regression.py").read_text()
    saved = {
        task: int(np.load(old / f"files/saved/{task}/model.npz")["global_step"]) for task in STEPS
    }
    out, _ = lab(
        tmp_path,
        *("run", str(old / "program/regression.py"), "--backend", "local", "--json", "--"),
        *("--global_steps", "800", "--record_every", "10"),
        *("--checkpoint_dir", str(old / "files/saved")),
    )
    summary = json.loads(out.splitlines()[-1])
    assert (summary["state"], summary["global_step"]) == ("succeeded", 800)
    for task, recorded in STEPS.items():
        assert recorded <= saved[task] < recorded + 10
        records = tmp_path / "runs" / summary["run_id"] / f"tasks/{task}.jsonl"
        assert f"goes on from step {saved[task]}" in records.read_text()
    assert min(each["accuracy"] for each in summary["tasks"] if each["accuracy"]) > 0.85
    out, _ = lab(tmp_path, "compare", RUN, summary["run_id"], "--json")
    assert [each["run_id"] for each in json.loads(out)["runs"]] == [RUN, summary["run_id"]]
