"""The backend `slurm`, with fakes of Slurm's commands; tests/e2e/test_slurm.py has a real one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.backends import Environment
from lab.backends.selection import AUTO, choose
from lab.backends.slurm import SlurmBackend, queue, state
from lab.backends.slurm import environment as environments
from lab.backends.slurm.environment import SlurmEnvironment
from lab.cli import main
from lab.config import parse_cluster
from lab.errors import ConfigError, InputError, LabError
from lab.placement.plan import Plan
from lab.run.lifecycle import has_stopped
from lab.service.planning import make_plan
from lab.task.protocol import Request, RunSpec, TaskStatus, Volume, control
from lab.task.protocol.policy import OnFailure
from lab.task.protocol.states import Cause, State
from lab.task.protocol.statuses import read_status, write_status
from lab.tf_versions import INSTALLED_MARKER, TF1
from tests.support.commands import ROOT

CLUSTER = """\
version: 1
name: x
nodes: {tf1: {}, tf2: {gpus: 1}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""
WAITS = "7|PENDING|Resources\n8|RUNNING|None\n"
RUNS = "7|RUNNING|None\n8|RUNNING|None\n"

SBATCH = """#!/bin/sh
test -f "$FAKE/refuses" && cat "$FAKE/refuses" >&2 && exit 1
echo "$@" > "$FAKE/options"
env > "$FAKE/environ"
cp "$FAKE/first" "$FAKE/queue"
echo 7
"""
SCANCEL = """#!/bin/sh
echo "$@" >> "$FAKE/cancelled"
test -f "$FAKE/deaf" || : > "$FAKE/queue"
"""
SCONTROL = """#!/bin/sh
test "$*" = "--all --oneliner show partition" && cat "$FAKE/partitions" && exit
echo "$@" > "$FAKE/requeued"
cp "$FAKE/waits" "$FAKE/queue"
"""
PARTITIONS = """\
PartitionName=lab AllowGroups=ALL Default=YES MaxNodes=UNLIMITED TotalCPUs=8 TotalNodes=2
PartitionName=big AllowGroups=ALL Default=NO MaxNodes=UNLIMITED TotalCPUs=32 TotalNodes=8
"""
COMMANDS = {
    "sbatch": SBATCH,
    "squeue": '#!/bin/sh\ncat "$FAKE/queue"\n',
    "scancel": SCANCEL,
    "sinfo": "#!/bin/sh\necho slurm-wlm 22.05.8\n",
    "scontrol": SCONTROL,
}


@dataclass
class Fake:
    """Slurm's commands, which read and write files."""

    folder: Path

    def set(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    folder = tmp_path / "fake"
    folder.mkdir()
    for name, text in COMMANDS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    fake = Fake(folder)
    fake.set("queue", "")
    fake.set("first", RUNS)
    fake.set("partitions", PARTITIONS)
    return fake


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse_cluster(CLUSTER.encode(), "x.yaml"), AUTO, backend="slurm").plan


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens in each pause of the backend, of which each lasts for some seconds."""
    steps: list[Callable[[], None]] = []
    now_s = float(int(time.monotonic()))  # sums of whole seconds are exact

    def sleep(seconds: float) -> None:
        nonlocal now_s
        assert seconds > 0
        now_s += 15.0
        steps.pop(0)()

    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=sleep)
    monkeypatch.setattr(environments, "time", clock)
    return steps


def announce(*tasks: str) -> None:
    """The agents of these tasks start."""
    agents = state.state_dir("x").runs / "agents"
    agents.mkdir(exist_ok=True)
    for task in tasks:
        about = {"address": f"{task}.host:1", "gpus": "none" if task == "ps-0" else "0,1"}
        (agents / f"{task}.json").write_text(json.dumps(about))


def up(plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]) -> SlurmEnvironment:
    pauses.append(lambda: announce("ps-0", "worker-0"))
    return SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None)


def test_the_reason_of_the_wait_is_shown_once(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    slurm.set("first", WAITS)
    output: list[str] = []
    pauses += [
        lambda: None,
        lambda: slurm.set("queue", "7|PENDING|Priority\n8|PENDING|None\n"),
        lambda: slurm.set("queue", RUNS),
        lambda: announce("ps-0"),
        lambda: announce("worker-0"),
    ]
    environment = SlurmBackend().up(plan, root=tmp_path, notify=output.append)
    assert output == [
        "job 7 waits in the queue: Resources",
        "job 7 waits in the queue: Priority",
        "job 7 starts its tasks",
        "slurm: job 7 runs 2 tasks",
    ]
    assert environment.cluster_spec() == {"ps": ["ps-0.host:1"], "worker": ["worker-0.host:1"]}
    assert [(each.gpus, each.alive, each.detail) for each in environment.tasks()] == [
        ((), True, "job 7 running"),
        (("0", "1"), True, "job 7 running"),
    ]
    name = environment._record.job
    directory = state.state_dir("x").directory
    assert slurm.read("options").split() == [
        *("--parsable", f"--job-name={name}", f"--output={directory}/job.log"),
        *(f"--chdir={tmp_path}", f"{directory}/cluster.sbatch"),
    ]
    assert f"LAB_JOB_DIR={directory}\n" in slurm.read("environ")
    assert stat.S_IMODE(state.state_dir("x").runs.stat().st_mode) == 0o700
    assert environment.boot_file()[0] == "cluster.sbatch"
    assert "autorun" not in environment.boot_file()[1]
    assert environment.provenance()["slurm"] == "slurm-wlm 22.05.8"


def test_another_process_finds_it_and_removes_it(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    job = up(plan, tmp_path, pauses)._record.job
    (found,) = SlurmBackend().all()
    assert (found.project, found.folder, found.tensorflow) == ("x", str(tmp_path), "2.21")
    with pytest.raises(LabError, match=r"'x' is job 7 already, running; wait for it, or remove"):
        up(plan, tmp_path, pauses)
    found.down(lambda _: None)
    assert slurm.read("cancelled") == f"--quiet --me --name={job}\n"
    assert SlurmBackend().projects() == []
    found.down(lambda _: None)  # nothing is left


def test_a_run_volume_is_kept_on_request(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    up(plan, tmp_path, pauses).down(lambda _: None, keeps=lambda: True)
    (left,) = SlurmBackend().find_orphans()
    assert left.runs() == []
    assert [task.detail for task in left.tasks()] == ["its job has ended"] * 2
    with pytest.raises(LabError, match=r"'x' has stopped: its job does not run; see .*job\.log"):
        left.submit(None)  # type: ignore[arg-type]


def test_a_read_error_of_the_run_volume_is_not_the_end_of_a_job(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = up(plan, tmp_path, pauses)

    def fail(_path: Path) -> str:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr("lab.backends.slurm.environment.read_regular", fail)
    with pytest.raises(LabError, match=r"run volume .* cannot be used: Stale file handle"):
        has_stopped(environment)


def test_a_waiting_job_is_no_environment_that_is_up(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    up(plan, tmp_path, pauses)
    slurm.set("queue", WAITS)
    assert SlurmBackend().find("x") is None
    (waiting,) = SlurmBackend().find_orphans()
    assert [(task.alive, task.detail) for task in waiting.tasks()] == [
        (False, "job 7 pending: Resources")
    ] * 2
    assert main(["ps", "x"]) == 0
    assert "not running (job 7 pending: Resources)" in capsys.readouterr().out


def test_an_interrupt_in_the_queue_cancels_the_job(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    slurm.set("first", WAITS)
    pauses.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None)
    assert "--name=lab-x-" in slurm.read("cancelled")
    assert SlurmBackend().projects() == []


def test_a_check_that_fails_cancels_the_job(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    def check(environment: Environment) -> None:
        raise LabError(f"no good: {environment.project}")

    pauses.append(lambda: announce("ps-0", "worker-0"))
    with pytest.raises(LabError, match="no good: x"):
        SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None, check=check)
    assert slurm.read("queue") == ""
    assert SlurmBackend().projects() == []


def test_a_refused_script_leaves_nothing(slurm: Fake, plan: Plan, tmp_path: Path) -> None:
    slurm.set("refuses", "sbatch: error: invalid partition \x1b[31m\n")
    with pytest.raises(
        LabError, match=r"sbatch failed: .*invalid.*; compare the config with `sinfo`"
    ):
        SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None)
    assert SlurmBackend().projects() == []


def test_more_nodes_than_slurm_has_are_refused(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limit(nodes: int) -> None:
        slurm.set("partitions", PARTITIONS.replace("TotalNodes=2", f"TotalNodes={nodes}"))

    limit(1)
    with pytest.raises(InputError) as caught:
        SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None)
    assert str(caught.value) == (
        "'x' has 2 nodes with tasks, and Slurm's partition lab has 1 node; use fewer nodes, or"
        " another partition with SBATCH_PARTITION"
    )
    assert slurm.read("options") == "", "nothing is submitted"
    assert SlurmBackend().projects() == []
    monkeypatch.setenv("SBATCH_PARTITION", "lab,big")
    up(plan, tmp_path, pauses).down(lambda _: None)
    monkeypatch.setenv("SBATCH_PARTITION", "none")  # sbatch reports that there is none
    up(plan, tmp_path, pauses).down(lambda _: None)


def test_without_heterogeneous_jobs_the_nodes_are_one_component(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slurm.set("refuses", "sbatch: error: Requested operation not supported on this system\n")
    with pytest.raises(LabError, match="on this system; set LAB_SLURM_HET=no if this cluster has"):
        SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None)
    (slurm.folder / "refuses").unlink()
    monkeypatch.setenv("LAB_SLURM_HET", "no")
    script = up(plan, tmp_path, pauses).boot_file()[1]
    assert "#SBATCH --nodes=2 " in script
    assert "hetjob" not in script


def test_the_tasks_run_in_an_image(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = tmp_path / "lab.sif"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_CONTAINER", "lab.sif")
    missing = SlurmBackend().missing_image(plan, root=ROOT)
    assert missing is not None
    assert missing.startswith(f"there is no image {image}; make it with")
    image.write_bytes(b"abc")
    assert SlurmBackend().missing_image(plan, root=ROOT) is None
    elsewhere = SlurmBackend().missing_image(plan, root=tmp_path)
    assert elsewhere == (
        f"an image needs lab in the project's directory, but it is in {ROOT}; run it there"
    )
    assert SlurmBackend().notices(plan)[-1] == f"slurm: the tasks run in {image}"
    environment = up(plan, tmp_path, pauses)
    assert f"\nimage={image}\n" in environment.boot_file()[1]
    assert environment.provenance() == {
        "container": str(image),
        "container_sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "slurm": "slurm-wlm 22.05.8",
        "job": "7",
    }


def test_an_image_may_be_a_directory(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAB_CONTAINER", str(tmp_path))
    assert up(plan, tmp_path, pauses).provenance()["container_sha256"] == ""


@pytest.mark.parametrize("printed", ["", "error: n1 has 0 GPUs\n"])
def test_a_job_that_ends_before_its_tasks_run_is_an_error(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]], printed: str
) -> None:
    def end() -> None:
        slurm.set("queue", "")
        state.state_dir("x").log.write_text(printed)

    pauses.append(end)
    with pytest.raises(LabError) as error:
        SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None)
    state_dir = state.state_dir("x").directory
    unseen = f"no output; all nodes must see {state_dir} (LAB_STATE)"
    assert str(error.value) == f"the job of 'x' has ended: {printed.strip() or unseen}"


def test_a_task_that_does_not_start_is_an_error(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environments, "_START_S", 0.0)
    pauses.append(lambda: announce("ps-0"))
    with pytest.raises(LabError, match=r"the job of 'x' has no agent of worker-0: no output"):
        SlurmBackend().up(plan, root=tmp_path, notify=lambda _: None)


def test_a_job_that_does_not_end_is_an_error(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = up(plan, tmp_path, pauses)
    slurm.set("deaf", "")
    monkeypatch.setattr(environments, "_END_S", 0.0)
    with pytest.raises(LabError, match="job 7 of x has not ended after 0 s; see `scontrol show"):
        environment.down(lambda _: None)
    assert SlurmBackend().projects() == ["x"]


def test_a_job_that_slurm_puts_back_during_the_removal_is_cancelled_again(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    environment = up(plan, tmp_path, pauses)
    slurm.set("deaf", "")
    slurm.set("queue", "7|COMPLETING|None\n")

    def put_back() -> None:
        slurm.set("queue", WAITS)
        (slurm.folder / "deaf").unlink()

    pauses += [put_back, lambda: None]
    environment.down(lambda _: None)
    assert len(slurm.read("cancelled").splitlines()) == 2
    assert SlurmBackend().projects() == []


def test_a_job_with_a_failed_node_is_removed_before_slurm_notices_it(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    environment = up(plan, tmp_path, pauses)
    slurm.set("deaf", "")
    slurm.set("queue", "7|COMPLETING|None\n8|RUNNING|None\n")
    pauses += [lambda: None] * 4
    environment.down(lambda _: None)
    assert pauses == []
    assert SlurmBackend().projects() == []


def test_slurm_is_asked_only_now_and_then(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    environment = up(plan, tmp_path, pauses)
    slurm.set("queue", "")
    assert environment.is_up
    assert environment.job(fresh=True) is None
    assert not environment.is_up


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("", None),
        ("12|RUNNING|None\n", queue.Job(12, "RUNNING", "")),
        ("13|RUNNING|None\n12|PENDING|(Priority)|x\n", queue.Job(12, "PENDING", "(Priority)|x")),
        ("12|COMPLETING|None\n", queue.Job(12, "COMPLETING", "")),
        ("12|PENDING|None\n13|COMPLETING|None\n", queue.Job(12, "COMPLETING", "")),
    ],
)
def test_the_components_of_a_job_are_one_job(slurm: Fake, text: str, job: queue.Job | None) -> None:
    slurm.set("queue", text)
    assert queue.find("lab-x") == job
    assert job is None or job.runs is (job.state != "PENDING")


def an_ended_run(status: TaskStatus, policy: OnFailure = OnFailure.FAIL) -> Volume:
    """A run on the volume, with the worker's status; the parameter server was stopped."""
    volume = Volume(state.state_dir("x").runs)
    spec = RunSpec("async", on_failure=policy, restarts=2 * (policy is OnFailure.RESTART))
    control.submit(volume, Request("r-1", spec, {"ps": ["a:1"], "worker": ["b:1"]}, 1.0))
    for each in (TaskStatus("ps-0", State.CANCELLED, cause=Cause.INTERRUPTED), status):
        write_status(volume.status("r-1", each.task), each)
    return volume


STOPPED = TaskStatus("worker-0", State.CANCELLED, cause=Cause.INTERRUPTED)
LOST = TaskStatus("worker-0", State.LOST, cause=Cause.NODE_LOST)


def continues(volume: Volume) -> None:
    """The batch step submits the next run, and the agents start."""
    control.submit(volume, Request("r-2", RunSpec("async"), {"ps": ["c:1"], "worker": ["d:1"]}))
    announce("ps-0", "worker-0")


def test_a_job_that_slurm_puts_back_continues_its_run(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    environment = up(plan, tmp_path, pauses)
    volume = an_ended_run(STOPPED)
    slurm.set("queue", "7|PENDING|None\n8|COMPLETING|None\n")
    output: list[str] = []
    shutil.rmtree(volume.agents)
    pauses += [
        lambda: slurm.set("queue", WAITS),
        lambda: slurm.set("queue", RUNS),
        lambda: continues(volume),
    ]
    request = environment.continuation("r-1", output.append)
    assert request is not None
    assert request.run_id == "r-2"
    assert output == [
        "Slurm has put job 7 back into the queue; run r-1 continues with it",
        "job 7 waits in the queue: Resources",
        "job 7 starts its tasks",
        "slurm: job 7 runs 2 tasks",
    ]
    assert pauses == []
    assert environment.continuation("r-1", output.append) == request  # for another client


@pytest.mark.parametrize(
    ("after_s", "then", "requeued"),
    [(60.0, WAITS, ""), (0.0, WAITS, "requeue 7\n")],
    ids=["Slurm notices it", "Slurm does not"],
)
def test_a_run_with_a_lost_agent_continues_by_its_policy(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    after_s: float,
    then: str,
    requeued: str,
) -> None:
    environment = up(plan, tmp_path, pauses)
    volume = an_ended_run(LOST, OnFailure.RESTART)
    slurm.set("waits", WAITS)

    def start() -> None:
        slurm.set("queue", RUNS)
        continues(volume)

    monkeypatch.setattr(environments, "_FAILED_NODE_S", after_s)
    pauses += [lambda: slurm.set("queue", then), start]
    output: list[str] = []
    request = environment.continuation("r-1", output.append)
    assert request is not None
    assert request.run_id == "r-2"
    assert output[0] == "job 7 runs; waiting until Slurm notices the failed node"
    assert slurm.read("requeued") == requeued


@pytest.mark.parametrize(
    ("status", "then"),
    [(LOST, RUNS), (LOST, WAITS), (STOPPED, ""), (STOPPED, RUNS)],
    ids=["policy fail", "policy fail in the queue", "scancel", "an agent was stopped"],
)
def test_other_runs_end(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    status: TaskStatus,
    then: str,
) -> None:
    environment = up(plan, tmp_path, pauses)
    an_ended_run(status)
    slurm.set("queue", then)
    assert environment.continuation("r-1", pytest.fail) is None
    assert slurm.read("requeued") == ""


def test_a_client_may_come_while_the_job_starts_again(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    environment = up(plan, tmp_path, pauses)
    volume = an_ended_run(STOPPED)
    shutil.rmtree(volume.agents)
    pauses.append(lambda: continues(volume))
    output: list[str] = []
    request = environment.continuation("r-1", output.append)
    assert request is not None
    assert request.run_id == "r-2"
    assert output == ["job 7 starts its tasks", "slurm: job 7 runs 2 tasks"]


def test_a_job_that_is_cancelled_in_the_queue_ends_the_wait(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    environment = up(plan, tmp_path, pauses)
    an_ended_run(STOPPED)
    slurm.set("queue", WAITS)
    pauses.append(lambda: slurm.set("queue", ""))
    output: list[str] = []
    assert environment.continuation("r-1", output.append) is None
    assert output[-1].startswith("the job of 'x' has ended: no output; all nodes must see ")


@pytest.mark.parametrize(
    ("then", "reason"),
    [("", "Slurm ended the job"), (WAITS, "Slurm put the job back into the queue")],
)
def test_tasks_without_an_end_are_lost_with_their_job(
    slurm: Fake,
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    then: str,
    reason: str,
) -> None:
    environment = up(plan, tmp_path, pauses)
    volume = an_ended_run(TaskStatus("worker-0", State.TRAINING))
    slurm.set("queue", then)
    environment.job(fresh=True)
    assert list(environment.stream("r-1", {}, follow=True))
    status = read_status(volume.status("r-1", "worker-0"), "worker-0")
    assert (status.state, status.reason) == (State.LOST, reason)
    assert read_status(volume.status("r-1", "ps-0"), "ps-0").state is State.CANCELLED


def test_what_a_job_cannot_do_is_refused(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    environment = up(plan, tmp_path, pauses)
    with pytest.raises(LabError, match="cannot change the network of node tf1; use other faults"):
        environment.inject_network_fault("tf1", [])
    with pytest.raises(InputError, match=r"no shell in a job of Slurm; use `srun --jobid=7 "):
        environment.shell("ps-0")
    with pytest.raises(InputError, match="has no task 'ps-9'"):
        environment.shell("ps-9")
    assert environment.probe_gpus(tensorflow=True) == {}


def test_a_damaged_record_is_an_error(slurm: Fake) -> None:
    directory = state.state_dir("x").directory
    directory.mkdir(parents=True)
    (directory / "environment.json").write_text("{")
    with pytest.raises(LabError, match=r"environment\.json cannot be read: .*; cancel its job"):
        SlurmBackend().find_any("x")


def test_a_host_without_slurm(
    slurm: Fake, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SlurmBackend().unavailable_reason() is None
    (slurm.folder / "squeue").unlink()
    monkeypatch.setenv("PATH", str(slurm.folder))
    with pytest.raises(LabError, match=r"squeue does not answer: .*; see if `sinfo` answers"):
        queue.find("lab-x")
    shutil.rmtree(slurm.folder)
    with pytest.raises(LabError, match=r"backend slurm: this host has no `sbatch`; log in to"):
        choose("slurm", plan, tmp_path, [SlurmBackend()], lambda _: None)


def test_auto_does_not_choose_a_queue(slurm: Fake, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="backend slurm: request it with `--backend slurm`"):
        choose(AUTO, plan, tmp_path, [SlurmBackend()], lambda _: None)
    output: list[str] = []
    choose("slurm", plan, tmp_path, [SlurmBackend()], output.append)
    assert output == ["backend slurm: as requested"]


def test_the_agents_run_on_the_python_of_the_plans_tensorflow(
    slurm: Fake, plan: Plan, tmp_path: Path, pauses: list[Callable[[], None]]
) -> None:
    own = tmp_path / TF1.environment
    own.mkdir()
    (own / INSTALLED_MARKER).touch()
    environment = up(replace(plan, tensorflow=TF1.tensorflow), tmp_path, pauses)
    assert environment.provenance()["interpreter"] == str(own / "bin/python")
    assert f"LAB_PYTHON={own}/bin/python\n" in slurm.read("environ")


def test_the_python_of_another_tensorflow_must_be_installed(
    slurm: Fake, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    reason = SlurmBackend().missing_image(plan, root=tmp_path)
    assert reason is not None
    assert reason.startswith("TensorFlow is not installed for ")
    other = make_plan(
        parse_cluster(CLUSTER.encode(), "x.yaml"),
        "none",
        backend="slurm",
        tensorflow=TF1.tensorflow,
    ).plan
    monkeypatch.setattr("lab.tf_versions.TensorFlowVersion.python", lambda *_: None)
    assert "create it with `make heritage`" in str(
        SlurmBackend().missing_image(other, root=tmp_path)
    )


def test_a_plan_for_slurm_knows_only_numbers_of_gpus() -> None:
    cluster = parse_cluster(CLUSTER.encode(), "x.yaml")
    plan = make_plan(cluster, "none", backend="slurm").plan
    assert [task.gpus for task in plan.tasks] == [(), ()]
    with pytest.raises(InputError, match="--gpus uuid: Slurm selects the GPUs; leave it out"):
        make_plan(cluster, "uuid", backend="slurm")
    shared = parse_cluster(CLUSTER.replace("[tf2]", "[tf2], share: true").encode(), "x.yaml")
    with pytest.raises(ConfigError, match=r"jobs\.worker\.share: a Slurm job gets whole GPUs"):
        make_plan(shared, AUTO, backend="slurm")


@pytest.mark.parametrize("pins", ["[3]", "[GPU-6d1f7b9a-0000-4000-8000-000000000001]"])
def test_a_list_of_gpus_counts_as_its_number(pins: str) -> None:
    pinned = parse_cluster(CLUSTER.replace("gpus: 1", f"gpus: {pins}").encode(), "x.yaml")
    planned = make_plan(pinned, AUTO, backend="slurm")
    assert [len(task.gpus) for task in planned.plan.tasks] == [0, 1]
    assert planned.plan.cluster_sha256 == pinned.sha256
    lines: list[str] = []
    planned.report_warnings(lines.append, strict=True)
    assert lines == ["nodes.tf2.gpus: Slurm selects the GPUs; the list counts as 1 GPU"]
    assert not make_plan(pinned, "none", backend="slurm").plan.notices


def test_what_slurm_cannot_express_is_refused_with_its_line(
    slurm: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "cluster.yaml").write_text(CLUSTER + "links: {tf1: {delay: 5ms}}\n")
    monkeypatch.chdir(tmp_path)
    for command in ("up", "run async"):
        assert main([*command.split(), "--backend", "slurm"]) == 2
        expected = (
            "cluster.yaml:5:14: links.tf1: a Slurm job cannot change the network; leave it out"
        )
        assert capsys.readouterr().err.splitlines() == [expected]


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("ahead_s", [60.0, -60.0])
def test_the_clock_of_this_host_may_differ_from_that_of_the_tasks(
    plan: Plan,
    tmp_path: Path,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    ahead_s: float,
) -> None:
    environment = up(plan, tmp_path, pauses)
    monkeypatch.setattr(environments, "time", time)
    assert environment.clock_offset_s() == 0
    wrong = SimpleNamespace(time=lambda: time.time() + ahead_s)
    monkeypatch.setattr(environments, "time", wrong)
    assert environment.clock_offset_s() == pytest.approx(-ahead_s, abs=0.1)
