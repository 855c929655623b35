"""Training in a job of Slurm whose hosts have different clocks."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from lab.run.store import all_runs
from tests.commands import ROOT, start
from tests.slurm import Slurm
from tests.torture.clock import make

pytestmark = [pytest.mark.slurm, pytest.mark.tensorflow]

PATIENCE_S = 120.0
TOLERANCE_S = 2.0
"""The time of a file system is coarse, and figures are rounded."""

LOGIN = "login"
"""A name for the host of the client; the batch step has its clock, too."""


@pytest.mark.parametrize(("node", "ahead_s"), [("tf2", 60.0), ("tf2", -60.0), (LOGIN, 60.0)])
def test_a_wrong_clock_changes_nothing(
    slurm: Slurm, tmp_path: Path, node: str, ahead_s: float
) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "data").mkdir()
    (tmp_path / "cluster.yaml").write_bytes((ROOT / "clusters/slurm.yaml").read_bytes())
    clock = make(tmp_path, node, "CLOCK_NODE")
    clock.set(ahead_s)
    began_unix, began_s = time.time(), time.monotonic()
    variables = {**clock.environ, "LAB_NODE": LOGIN, "LAB_PYTHON": sys.executable}
    process = start(
        tmp_path, "run", "async", "--backend", "slurm", "--epochs=1", "--json", **variables
    )
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "lost" not in err
    took_s = time.monotonic() - began_s
    summary = json.loads(out.splitlines()[-1])
    assert (summary["records_lost"], summary["updates_conserved"]) == (0, True)
    assert 0 < summary["first_step_s"] < summary["wall_s"] < took_s + TOLERANCE_S
    assert all(0 < task["time_s"] < took_s for task in summary["tasks"])
    (run,) = all_runs(tmp_path / "runs")
    moments = [
        json.loads(line)["time_unix"]
        for file in (run.path / "tasks").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert began_unix - TOLERANCE_S < min(moments)
    assert max(moments) < time.time() + TOLERANCE_S
