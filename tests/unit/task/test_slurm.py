"""The tasks of a Slurm job: the cluster spec, the task of each step, a job that starts again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume
from lab.protocol.volume.continuation import continued_spec
from lab.protocol.volume.control import cancel, requests, state_of, submit
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import write_status
from lab.task.agent.slurm import (
    Components,
    begin_again,
    port_of,
    task_environ,
)
from tests.support.agents import Stage

COMPONENTS: Components = [
    [("tf1", {"worker-1": 0, "ps-0": 0})],
    [("tf2", {"worker-0": 2}), ("tf3", {"ps-1": 0, "worker-2": 1, "worker-3": 1})],
]
NODES = json.dumps(COMPONENTS)
CLUSTER = {"ps": ["a:1"], "worker": ["b:1"]}


# A node has a line for each of its partitions.
ADDRESSES = "a 10.0.0.1\nn1 n1.cluster\nn1 n1.cluster\nn2 10.0.0.2"
CLUSTER_OF = ("cluster", "a\nn2\nn1", ADDRESSES, "ps", "worker")


def run(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "PATH": os.environ["PATH"],
        "LAB_SLURM_NODES": NODES,
        "LAB_RUNS": str(folder / "runs"),
        "LAB_OUTPUT": str(folder),
        "SLURM_JOB_ID": "12",
        **environ,
    }
    command = [sys.executable, "-m", "lab.task.agent.slurm", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_the_cluster_spec_has_slurms_addresses_and_the_configs_order(tmp_path: Path) -> None:
    done = run(tmp_path, *CLUSTER_OF)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(json.loads(done.stdout).items()) == [
        ("ps", ["10.0.0.1:10769", "n1.cluster:10771"]),
        ("worker", ["10.0.0.2:10770", "10.0.0.1:10768", "n1.cluster:10772", "n1.cluster:10773"]),
    ]


@pytest.mark.parametrize(
    ("arguments", "environ", "error"),
    [
        (("cluster", "a\nn1", ADDRESSES, "ps"), {}, "nodes of the job: 2; the script needs 3"),
        (
            ("1",),
            {"SLURM_NODEID": "1", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n1"},
            "GPUs of n1: 1; its tasks need 2",
        ),
    ],
)
def test_a_job_with_too_little_is_an_error(
    tmp_path: Path, arguments: tuple[str, ...], environ: dict[str, str], error: str
) -> None:
    done = run(tmp_path, *arguments, CUDA_VISIBLE_DEVICES="0", **environ)
    assert (done.returncode, done.stderr) == (2, f"error: {error}\n")


def test_ports_of_near_jobs_and_of_all_tasks_of_a_job_differ() -> None:
    ports = [port_of(job, task) for job in range(70_000, 70_344) for task in range(64)]
    assert len(set(ports)) == len(ports)
    assert min(ports) >= 10_000
    assert max(ports) < 32_768


@pytest.mark.parametrize(
    ("component", "node", "local", "task"),
    [
        (0, 0, 0, ("tf1", "worker-1", "-1")),
        (0, 0, 1, ("tf1", "ps-0", "-1")),
        (1, 1, 0, ("tf2", "worker-0", "4,7")),
        (1, 2, 0, ("tf3", "ps-1", "-1")),
        (1, 2, 1, ("tf3", "worker-2", "4")),
        (1, 2, 2, ("tf3", "worker-3", "7")),
        (1, 1, 1, None),
    ],
)
def test_each_step_becomes_a_task_with_its_own_gpus(
    component: int, node: int, local: int, task: tuple[str, str, str] | None
) -> None:
    own = task_environ(
        COMPONENTS,
        component,
        {
            "SLURM_NODEID": str(node),
            "SLURM_LOCALID": str(local),
            "CUDA_VISIBLE_DEVICES": "4,7",
        },
    )
    names = ("LAB_NODE", "LAB_TASK", "CUDA_VISIBLE_DEVICES")
    assert (own and tuple(own[name] for name in names)) == task


def test_the_agent_writes_to_the_file_of_its_task(tmp_path: Path) -> None:
    done = run(tmp_path, "0", SLURM_NODEID="0", SLURM_LOCALID="1")
    assert (done.stdout, done.stderr) == ("", "")
    assert "not set" in (tmp_path / "ps-0.log").read_text()  # the agent's: no LAB_PROJECT


STOPPED = TaskStatus("worker-0", State.CANCELLED, cause=Cause.INTERRUPTED)
LOST = TaskStatus("worker-0", State.TRAINING)  # the batch step marks it
FAILED = TaskStatus("worker-0", State.FAILED, cause=Cause.PEER_LOST)
RESTART, CONTINUE = OnFailure.RESTART, OnFailure.CONTINUE


def begin_again_after(
    tmp_path: Path, worker: TaskStatus, spec: RunSpec, *, autorun: str = ""
) -> Volume:
    """Slurm starts a job again after the run `r-1`."""
    volume = Volume(tmp_path / "runs")
    volume.agents.mkdir(parents=True)
    volume.agent("worker-0").touch()
    submit(volume, Request("r-1", spec, CLUSTER, autorun=autorun))
    write_status(volume.status("r-1", "worker-0"), worker)
    ps = TaskStatus("ps-0", State.CANCELLED, cause=Cause.INTERRUPTED)
    write_status(volume.status("r-1", "ps-0"), ps)
    (volume.run("r-1") / "checkpoints").mkdir()
    (volume.run("r-1") / "checkpoints/model-7.index").touch()
    begin_again(volume, {"ps": ["c:1"], "worker": ["d:1"]})
    assert not volume.agent("worker-0").exists()
    return volume


@pytest.mark.parametrize(
    ("worker", "policy", "restarts", "then"),
    [
        (STOPPED, OnFailure.FAIL, 0, (OnFailure.FAIL, 0)),
        (STOPPED, RESTART, 1, (RESTART, 1)),
        (FAILED, OnFailure.FAIL, 0, (OnFailure.FAIL, 0)),
        (LOST, RESTART, 2, (RESTART, 1)),
        (LOST, RESTART, 1, (OnFailure.FAIL, 0)),
        (LOST, CONTINUE, 0, (CONTINUE, 0)),
        (LOST, OnFailure.FAIL, 0, None),
        (TaskStatus("worker-0", State.SUCCEEDED), OnFailure.FAIL, 0, None),
    ],
)
def test_a_job_that_starts_again_continues_its_run_if_the_policy_allows_it(
    tmp_path: Path,
    worker: TaskStatus,
    policy: OnFailure,
    restarts: int,
    then: tuple[OnFailure, int] | None,
) -> None:
    spec = RunSpec("async", args=("--epochs=2",), on_failure=policy, restarts=restarts)
    volume = begin_again_after(tmp_path, worker, spec)
    first, *further = requests(volume)
    assert state_of(volume, first).ended
    assert len(further) == (then is not None)
    for second in further:
        assert second.cluster == {"ps": ["c:1"], "worker": ["d:1"]}
        assert second.spec.resumed_from == "r-1"
        assert second.spec.args == ("--epochs=2", "--global_steps=1100")
        assert (second.spec.on_failure, second.spec.restarts) == then
        assert (volume.run(second.run_id) / "checkpoints/model-7.index").exists()


@pytest.mark.parametrize(
    ("spec", "autorun"),
    [(RunSpec("mine", own=True), ""), (RunSpec("async"), "digest")],
    ids=["own program", "rendered: `autorun` continues it"],
)
def test_a_job_that_starts_again_waits_for_runs(
    tmp_path: Path, spec: RunSpec, autorun: str
) -> None:
    volume = begin_again_after(tmp_path, STOPPED, spec, autorun=autorun)
    assert [request.run_id for request in requests(volume)] == ["r-1"]


def test_a_cancelled_run_is_not_continued(tmp_path: Path) -> None:
    volume = begin_again_after(tmp_path, LOST, RunSpec("async", on_failure=CONTINUE))
    last = requests(volume)[-1]
    cancel(volume, last.run_id, "interrupted")
    begin_again(volume, CLUSTER)
    assert [request.run_id for request in requests(volume)] == ["r-1", last.run_id]


def test_a_fault_is_injected_only_once(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "runs")
    faults = ("kill worker-0 after 5 steps", "stop worker-0 after 9 steps")
    request = Request("r-1", RunSpec("async", faults=faults), CLUSTER)
    submit(volume, request)
    done = volume.faults("r-1") / "worker-0/request-0.json"
    done.parent.mkdir(parents=True)
    done.write_text(json.dumps({"fault": faults[0], "time_unix": 1.0}))
    assert continued_spec(volume, request).faults == faults[1:]


def test_a_minute_before_the_time_limit_the_run_is_cancelled(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    volume, stage.cluster = stage.volume, {"ps": ["a:1"], "worker": ["a:2"]}
    submit(volume, Request("r-first", RunSpec("async"), stage.cluster))
    for task in ("ps-0", "worker-0"):
        write_status(volume.status("r-first", task), TaskStatus(task, State.SUCCEEDED))
    submit(volume, Request("r-second", RunSpec("async"), stage.cluster, autorun="any"))
    assert run(tmp_path, "end").returncode == 0
    assert not volume.cancel("r-first").exists()
    with closing(stage):
        stage.agent("worker-0")
        status = stage.wait_state("worker-0", State.CANCELLED, "r-second")
    assert status.reason == "the time limit of the job is near"
