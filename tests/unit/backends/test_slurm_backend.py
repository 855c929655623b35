"""The backend `slurm`, with fakes of Slurm's commands; tests/e2e/test_slurm.py has a real one."""

from __future__ import annotations

import errno
import shutil
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.names import AUTO
from lab.backends.selection import choose
from lab.backends.slurm import queue
from lab.backends.slurm.backend import SlurmBackend
from lab.backends.slurm.environment import SlurmEnvironment, StateDir
from lab.base.errors import ConfigError, InputError, LabError
from lab.base.log import shown_by
from lab.cluster.config import parse_cluster
from lab.protocol.runtimes import HERITAGE, INSTALLED_MARKER
from lab.runner.lifecycle import has_stopped
from lab.runner.planning import make_plan, report_warnings
from tests.support.cli import Cli
from tests.support.fakes import REQUEST, os_error, raising
from tests.support.slurm_site import (
    CLUSTER,
    PARTITIONS,
    RUNS,
    WAITS,
    Site,
    announce,
    make_site,
    nothing,
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return make_site(tmp_path, monkeypatch)


def test_the_reason_of_the_wait_is_shown_once(site: Site, notices: list[str]) -> None:
    site.set("first", WAITS)
    environment = site.boot(
        nothing,
        site.queue("7|PENDING|Priority\n8|PENDING|None\n"),
        site.queue(RUNS),
        lambda: announce("ps-0"),
        lambda: announce("worker-0"),
    )
    assert isinstance(environment, SlurmEnvironment)
    assert notices == [
        "job 7 is waiting in the queue: Resources",
        "job 7 is waiting in the queue: Priority",
        "job 7 is starting its tasks",
        "slurm: all tasks of job 7 are running",
    ]
    assert environment.cluster_spec() == {"ps": ["ps-0.host:1"], "worker": ["worker-0.host:1"]}
    assert [(each.gpus, each.alive, each.detail) for each in environment.tasks()] == [
        ((), True, "job 7 running"),
        (("0", "1"), True, "job 7 running"),
    ]
    directory = StateDir.of("x").directory
    parsable, name, *options = site.read("options").split()
    assert (parsable, name.startswith("--job-name=lab-x-")) == ("--parsable", True)
    assert options == [
        *(f"--output={directory}/job.log", f"--chdir={site.root}", f"{directory}/cluster.sbatch")
    ]
    assert f"LAB_JOB_DIR={directory}\n" in site.read("environ")
    assert stat.S_IMODE(StateDir.of("x").runs.stat().st_mode) == 0o700
    assert environment.boot_file()[0] == "cluster.sbatch"
    assert "autorun" not in environment.boot_file()[1]
    assert environment.provenance()["slurm"] == "slurm-wlm 22.05.8"


def test_another_process_finds_it_and_removes_it(site: Site) -> None:
    site.up()
    (found,) = SlurmBackend().all()
    assert (found.project, found.folder, found.runtime) == ("x", str(site.root), "tensorflow")
    with pytest.raises(LabError, match=r"'x' exists as job 7, running; wait for it, or remove"):
        site.up()
    found.down()
    assert site.read("cancelled").startswith("--quiet --me --name=lab-x-")
    assert SlurmBackend().projects() == []
    found.down()  # nothing is left


def test_a_run_volume_is_kept_on_request(site: Site) -> None:
    site.up().down(keeps=lambda: True)
    (left,) = SlurmBackend().list_environments()
    assert left.runs() == []
    assert [task.detail for task in left.tasks()] == ["its job has ended"] * 2
    with pytest.raises(LabError, match=r"'x' has stopped: its job is not running; see .*job\.log"):
        left.submit(REQUEST)


def test_a_read_error_of_the_run_volume_is_not_the_end_of_a_job(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = site.up()
    unreadable = raising(os_error(errno.ESTALE))
    monkeypatch.setattr("lab.backends.recorded.read_regular", unreadable)
    with pytest.raises(LabError, match=r"run volume .* cannot be used: Stale file handle"):
        has_stopped(environment)


def test_a_run_begins_by_the_clock_of_the_shared_file_system(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = lambda _: time.time() + 1000  # noqa: E731
    monkeypatch.setattr("lab.backends.slurm.environment.file_system_time", ahead)
    environment = site.up()
    environment.submit(REQUEST)
    (submitted,) = environment.runs()
    assert submitted.submitted_unix is not None
    assert 900 < submitted.submitted_unix - time.time() <= 1000


def test_a_waiting_job_is_no_environment_that_is_up(site: Site, cli: Cli) -> None:
    site.up()
    site.set("queue", WAITS)
    assert SlurmBackend().find("x") is None
    (waiting,) = SlurmBackend().list_environments()
    assert {(task.alive, task.detail) for task in waiting.tasks()} == {
        (False, "job 7 pending: Resources")
    }
    assert "not running (job 7 pending: Resources)" in cli("ps", "x").out


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("invalid partition \x1b[31m", r"sbatch failed: .*invalid.*; compare the config with `si"),
        (
            "Requested operation not supported on this system",
            "does not support heterogeneous jobs: give all",
        ),
    ],
)
def test_a_refused_script_leaves_nothing(site: Site, said: str, message: str) -> None:
    site.set("refuses", f"sbatch: error: {said}\n")
    with pytest.raises(LabError, match=message):
        site.boot()
    assert SlurmBackend().projects() == []


def test_more_nodes_than_slurm_has_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set("partitions", PARTITIONS.replace("TotalNodes=2", "TotalNodes=1"))
    with pytest.raises(InputError) as caught:
        site.boot()
    assert str(caught.value) == (
        "'x' needs 2 nodes, and Slurm's partition lab has 1; use fewer nodes, or"
        " another partition with SBATCH_PARTITION"
    )
    assert site.read("options") == "", "nothing is submitted"
    assert SlurmBackend().projects() == []
    for partition in ("lab,big", "none"):  # sbatch reports that there is none
        monkeypatch.setenv("SBATCH_PARTITION", partition)
        site.up().down()


@pytest.mark.parametrize("printed", ["", "error: n1 has 0 GPUs\n"])
def test_a_job_that_ends_before_its_tasks_run_is_an_error(site: Site, printed: str) -> None:
    def end() -> None:
        site.set("queue", "")
        StateDir.of("x").log.write_text(printed)

    with pytest.raises(LabError) as error:
        site.boot(end)
    state_dir = StateDir.of("x").directory
    unseen = f"no output; all nodes must see {state_dir} (LAB_STATE)"
    assert str(error.value) == f"the job of 'x' has ended: {printed.strip() or unseen}"


def test_a_task_that_does_not_start_is_an_error(site: Site) -> None:
    with pytest.raises(LabError, match=r"the job of 'x' has no agent of worker-0: no output"):
        site.boot(lambda: announce("ps-0"), *[nothing] * 20)


def test_a_job_that_does_not_end_is_an_error(site: Site) -> None:
    environment = site.up()
    site.set("deaf", "")
    site.pauses += [nothing] * 20
    with pytest.raises(LabError, match=r"job 7 of x has not ended after 1\d\d s; see `scontrol sh"):
        environment.down()
    assert SlurmBackend().projects() == ["x"]


def test_a_job_that_slurm_puts_back_during_the_removal_is_cancelled_again(site: Site) -> None:
    environment = site.up()
    site.set("deaf", "")
    site.set("queue", "7|COMPLETING|None\n")

    def put_back() -> None:
        site.set("queue", WAITS)
        (site.fake / "deaf").unlink()

    site.pauses += [put_back, nothing]
    environment.down()
    assert len(site.read("cancelled").splitlines()) == 2
    assert SlurmBackend().projects() == []


def test_a_job_with_a_failed_node_is_removed_before_slurm_notices_it(site: Site) -> None:
    environment = site.up()
    site.set("deaf", "")
    site.set("queue", "7|COMPLETING|None\n8|RUNNING|None\n")
    site.pauses += [nothing] * 4
    environment.down()
    assert (site.pauses, SlurmBackend().projects()) == ([], [])


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
def test_the_components_of_a_job_are_one_job(site: Site, text: str, job: queue.Job | None) -> None:
    site.set("queue", text)
    assert queue.find("lab-x") == job
    assert job is None or job.runs is (job.state != "PENDING")


def test_what_a_job_cannot_do_is_refused(site: Site) -> None:
    environment = site.up()
    with pytest.raises(
        InputError, match=r"cannot open a shell in a Slurm job; use `srun --jobid=7 "
    ):
        environment.shell("ps-0")
    with pytest.raises(InputError, match="has no task 'ps-9'"):
        environment.shell("ps-9")
    assert environment.probe_gpus() == {}


def test_slurm_is_chosen_only_on_request_and_where_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(name: str) -> Sequence[str]:
        output: list[str] = []
        with shown_by(output.append):
            choose(name, site.plan, site.root, [SlurmBackend()])
        return output

    with pytest.raises(LabError, match="backend slurm: request it with `--backend slurm`"):
        chosen(AUTO)
    assert chosen("slurm") == ["backend slurm: as requested"]
    assert SlurmBackend().unavailable_reason() is None
    (site.fake / "squeue").unlink()
    monkeypatch.setenv("PATH", str(site.fake))
    with pytest.raises(LabError, match=r"squeue does not answer: .*; check that `sinfo` works"):
        queue.find("lab-x")
    shutil.rmtree(site.fake)
    with pytest.raises(LabError, match=r"backend slurm: this host has no `sbatch`; log in to"):
        chosen("slurm")


def test_the_agents_run_on_the_python_of_the_plans_tensorflow(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = site.root / HERITAGE.environment
    site.plan = replace(site.plan, runtime=HERITAGE.name)
    missing = "create .venv-heritage with `make heritage`"
    with monkeypatch.context() as patch:
        patch.setattr("lab.protocol.runtimes.Runtime.python", lambda *_: None)
        assert missing in str(SlurmBackend().missing_image(site.plan, root=site.root))
    own.mkdir()
    (own / INSTALLED_MARKER).touch()
    assert site.up().provenance()["interpreter"] == str(own / "bin/python")
    assert f"LAB_PYTHON={own}/bin/python\n" in site.read("environ")
    monkeypatch.setattr("lab.protocol.runtimes.find_spec", lambda _: None)
    current = replace(site.plan, runtime="tensorflow")
    reason = SlurmBackend().missing_image(current, root=site.root)
    assert str(reason).startswith("TensorFlow 2.21 is not installed for ")


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
def test_a_list_of_gpus_counts_as_its_number(pins: str, notices: list[str]) -> None:
    pinned = parse_cluster(CLUSTER.replace("gpus: 1", f"gpus: {pins}").encode(), "x.yaml")
    planned = make_plan(pinned, AUTO, backend="slurm")
    assert [len(task.gpus) for task in planned.plan.tasks] == [0, 1]
    assert planned.plan.cluster_sha256 == pinned.sha256
    report_warnings(planned, pinned, AUTO, strict=True)
    assert notices == ["nodes.tf2.gpus: Slurm selects the GPUs; the list counts as 1 GPU"]
    assert not make_plan(pinned, "none", backend="slurm").plan.notices
