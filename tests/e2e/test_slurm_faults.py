"""Faults on a real Slurm: jobs that it puts back or ends, nodes that fail, clocks that differ."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir, all_runs
from lab.runner.store.run_info import RunInfo
from tests.support.commands import end, lab, start, until
from tests.support.slurm import Slurm, make_project, wait_until
from tests.torture.clock import make

pytestmark = [pytest.mark.slurm, pytest.mark.tensorflow]

PATIENCE_S = 120.0
TOLERANCE_S = 2.0
"""The clock of a file system is coarse, and figures are rounded."""

TRAIN = ("run", "async", "--backend", "slurm")


@pytest.fixture
def project(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's directory; afterwards no job and no environment is left."""
    make_project(tmp_path)
    monkeypatch.setenv("LAB_PYTHON", sys.executable)
    yield tmp_path
    assert slurm.lab_jobs() == []
    assert list((tmp_path / "state/slurm").glob("*/")) == []


def jobs(slurm: Slurm) -> list[str]:
    (name,) = set(slurm.lab_jobs())
    numbers = slurm.run("squeue", "--noheader", "--format=%A", f"--name={name}")
    return sorted(numbers.split(), key=int)


def wait_for_node(slurm: Slurm) -> None:
    free = {"idle", "planned"}
    wait_until(lambda: slurm.states()["n3"] in free, "n3 does not come back", PATIENCE_S)


def runs(project: Path) -> list[tuple[RunDir, RunInfo]]:
    found = [(run, run.read()) for run in all_runs(project / "runs")]
    assert all(info.collected and not info.left for _, info in found)
    return sorted(found, key=lambda each: each[1].started_unix)


def checkpoints(run: RunDir) -> list[Path]:
    return list(run.checkpoints.glob("*.index"))


def test_a_run_continues_when_slurm_puts_its_job_back(slurm: Slurm, project: Path) -> None:
    process = start(project, *TRAIN, "--epochs=3", "--json")
    until(process, "worker-1: training")
    job = jobs(slurm)[0]
    slurm.run("scontrol", "requeue", job)
    until(process, " is waiting in the queue: ")
    slurm.start_again(job, PATIENCE_S)
    out, err = end(process)
    (old, first), (new, second) = runs(project)
    assert (first.state, second.state) == (State.CANCELLED, State.SUCCEEDED)
    assert checkpoints(old)  # it was saved at the requeue
    assert second.spec.resumed_from == old.run_id
    assert second.git == first.git
    assert f"run {new.run_id} continues run {old.run_id}" in err
    summary = json.loads(out.splitlines()[-1])
    assert summary["run_id"] == new.run_id
    assert (summary["records_lost"], summary["updates_conserved"]) == (0, True)


def test_a_run_continues_without_a_client(slurm: Slurm, project: Path) -> None:
    process = start(project, *TRAIN, "--epochs=3")
    until(process, "worker-1: training")
    process.kill()
    process.communicate()
    (old,) = all_runs(project / "runs")
    job = jobs(slurm)[0]
    slurm.run("scontrol", "requeue", job)
    slurm.start_again(job, PATIENCE_S)
    _, err = lab(project, "attach", old.run_id)
    assert f"run {old.run_id}: cancelled, collected into" in err
    (_, first), (_, second) = runs(project)
    assert (first.state, second.state) == (State.CANCELLED, State.SUCCEEDED)
    assert second.spec.resumed_from == old.run_id
    lab(project, "down")


def test_the_failure_of_a_node_ends_other_runs(slurm: Slurm, project: Path) -> None:
    process = start(project, *TRAIN, "--epochs=100")
    until(process, "worker-1: training")
    slurm.kill_node("n3")
    try:
        end(process, 1)
    finally:
        slurm.start_node("n3")
    ((_, info),) = runs(project)
    lost = "worker-1 lost: its agent has sent no heartbeat for 15 s"
    assert (info.state, info.reason) == (State.LOST, lost)
    wait_for_node(slurm)


def test_a_run_is_resumed_after_the_time_limit(slurm: Slurm, project: Path) -> None:
    began_s = time.monotonic()
    process = start(project, *TRAIN, "--epochs=1000", "--json")
    until(process, "worker-1: training")
    # Slurm warns a minute before the limit, and up to a minute earlier: so not before it trains. At
    # least 15 s are left to save the checkpoints.
    minutes = int(time.monotonic() - began_s + 15) // 60 + 1
    for number in jobs(slurm):
        slurm.run("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}")
    out, err = end(process, 1)
    summary = json.loads(out.splitlines()[-1])
    ((run, info),) = runs(project)
    assert info.state is State.CANCELLED
    assert f"the time limit of the job is near; continue with --resume {run.run_id}" in err
    assert checkpoints(run)
    steps = f"--global_steps={summary['global_step'] + 500}"
    lab(project, *TRAIN, "--resume=last", "--epochs=1000", steps)
    (_, (_, second)) = runs(project)
    assert (second.state, second.spec.resumed_from) == (State.SUCCEEDED, run.run_id)


def test_clocks_that_differ_by_a_minute_change_nothing(project: Path) -> None:
    clock = make(project, "tf3")
    clock.set(60.0)
    began_unix, began_s = time.time(), time.monotonic()
    process = start(project, *TRAIN, "--epochs=1", "--json", **clock.environ)
    until(process, "worker-1: training")
    clock.set(-60.0)
    out, _ = end(process)
    took_s = time.monotonic() - began_s
    summary = json.loads(out.splitlines()[-1])
    assert (summary["records_lost"], summary["updates_conserved"]) == (0, True)
    assert 0 < summary["first_step_s"] < summary["wall_s"] < took_s + TOLERANCE_S
    assert all(0 < task["time_s"] < took_s for task in summary["tasks"])
    ((run, _),) = runs(project)
    for task in ("worker-0", "worker-1"):
        records = [json.loads(line) for line in run.records(task).read_text().splitlines()]
        moments = [began_unix - TOLERANCE_S, *(each["time_unix"] for each in records)]
        assert moments == sorted(moments)
        assert moments[-1] < time.time() + TOLERANCE_S
