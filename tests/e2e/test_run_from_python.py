"""A training started from Python: its records agree with its summary."""

from __future__ import annotations

from pathlib import Path

import pytest

import lab
from tests.support.cluster import ROOT

pytestmark = pytest.mark.tensorflow

STEPS = 550  # of each of three workers


def test_a_run_its_records_and_its_summary_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    done = lab.run(
        "async",
        cluster=ROOT / "cluster.yaml",
        gpus="none",
        runs_dir=tmp_path / "runs",
        quiet=True,
        epochs=1,
        seed=3,
        learning_rate=0.1,
    )
    summary, steps = done.summary, done.steps()
    assert (summary.state, summary.updates_conserved) == ("succeeded", True)
    assert summary.records_lost == 0
    assert 0 < (summary.first_step_s or 0) < (summary.wall_s or 0)
    assert list((done.path / "model").iterdir())
    assert summary.global_step == steps["global_step"].max() == 3 * STEPS
    by_task = steps.groupby("task", observed=True)
    last = by_task["local_step"].last()
    assert dict(last) == {f"worker-{index}": STEPS for index in range(3)}
    losses = {task.task: task.loss for task in summary.tasks if task.loss is not None}
    final = by_task["loss"].apply(lambda each: each.tail(min(10, -(-len(each) // 4))).mean())
    assert dict(final) == pytest.approx(losses)
    records = done.records()
    assert records.attrs["damaged"] == ()
    assert not records.duplicated(["task", "attempt", "seq"]).any()
    (accuracy,) = records.loc[records["probe"].notna(), "accuracy"]
    assert accuracy == summary.accuracy > 0.7
    assert (done.info.hyperparameters["learning_rate"], done.info.seed) == (0.1, 3)
    assert lab.find("last", tmp_path / "runs") == done
    assert not list((tmp_path / "state").glob("local/*/environment.json"))
