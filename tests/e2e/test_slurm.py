"""The lab on a real Slurm: a controller and three nodes on this host (`make test-slurm`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.tf_versions import TF1
from tests.support.apptainer import install_apptainer, make_image
from tests.support.commands import command, environ, lab, start, until
from tests.support.conditions import lacking
from tests.support.engine import ROOT, NoEngine
from tests.support.slurm import NODES, Slurm, make_project, wait_until

pytestmark = pytest.mark.slurm

SHOW = 'echo "$SLURMD_NODENAME $SLURM_PROCID ${CUDA_VISIBLE_DEVICES:-none}"'
PATIENCE_S = 180.0


def test_a_job_runs_on_all_nodes_with_its_gpus(slurm: Slurm) -> None:
    lines = slurm.run("srun", "--nodes=3", "--gpus-per-node=2", "sh", "-c", SHOW).splitlines()
    assert sorted(lines) == [f"{node} {rank} 0,1" for rank, node in enumerate(NODES)]


def test_a_heterogeneous_job_gives_gpus_only_to_its_second_component(slurm: Slurm) -> None:
    ps = ("--nodes=1", "--het-group=0")
    worker = ("--nodes=2", "--gpus-per-node=1", "--het-group=1")
    printed = slurm.run(
        *("salloc", "--quiet", "--nodes=1", ":", "--nodes=2", "--gpus-per-node=1"),
        *("srun", *ps, "sh", "-c", SHOW, ":", *worker, "sh", "-c", SHOW),
    )
    gpus = {line.split()[1]: line.split()[2] for line in printed.splitlines()}
    assert gpus == {"0": "none", "1": "0", "2": "0"}


@pytest.fixture
def project(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's directory, in which a script is submitted."""
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_PYTHON", sys.executable)
    return tmp_path


def submit(slurm: Slurm, *flags: str) -> str:
    """Render the project's config and submit the script; the job's number."""
    assert main(["render", "--target", "slurm", *flags]) == 0
    return slurm.run("sbatch", "--parsable", "cluster.sbatch").strip()


def state(slurm: Slurm, job: str) -> tuple[str, str]:
    """A job's state and its exit code."""
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job).splitlines()[0]
    found = [re.search(rf"\b{name}=(\S+)", shown) for name in ("JobState", "ExitCode")]
    return found[0][1], found[1][1]  # type: ignore[index]


def job_times(slurm: Slurm, job: str) -> tuple[str, str]:
    """When a job started and ended, as texts that can be compared; it ran on n2."""
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job)
    assert re.search(r"\bNodeList=n2\b", shown)
    found = [re.search(rf"\b{name}=(\S+)", shown) for name in ("StartTime", "EndTime")]
    return found[0][1], found[1][1]  # type: ignore[index]


def wait_for_end(slurm: Slurm, job: str) -> str:
    """Wait until a job has ended; its state and exit code."""
    active = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}
    wait_until(lambda: state(slurm, job)[0] not in active, f"job {job} goes on", PATIENCE_S)
    return " ".join(state(slurm, job))


def first_lines(project: Path, job: str) -> dict[str, str]:
    """The node, the address and the GPUs of each task, as its agent prints them."""
    found = {}
    for file in sorted((project / f"slurm-{job}/output").glob("*.log")):
        line = file.read_text().splitlines()[0]
        found[file.stem] = line.partition("runs on ")[2]
    return found


@pytest.mark.tensorflow
@pytest.mark.parametrize("flag", [(), ("--no-het",)], ids=["het", "no-het"])
def test_the_rendered_script_trains(slurm: Slurm, project: Path, flag: tuple[str, ...]) -> None:
    job = submit(slurm, *flag, "--run", "async", "--", "--epochs=1")
    ended = wait_for_end(slurm, job)
    output = (project / f"slurm-{job}.out").read_text()
    assert ended == "COMPLETED 0:0", output
    assert re.search(r"worker-1  succeeded +550 ", output), output
    first = 10_000 + int(job) * 64
    lines = first_lines(project, job)
    assert lines["ps-0"] == f"tf1, address 127.0.0.1:{first}, GPUs: none"
    for number in (0, 1):
        # Which one, if two jobs share a node, is Slurm's choice.
        expected = f"tf{number + 2}, address 127.0.0.1:{first + 1 + number}, GPUs: [01]"
        assert re.fullmatch(expected, lines[f"worker-{number}"])


ONE_NODE = """\
version: 1
name: small
nodes: {tf1: {cpus: 1, memory: 1GiB}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1]}}
"""


@pytest.mark.tensorflow
def test_two_jobs_share_a_node(slurm: Slurm, project: Path) -> None:
    (project / "cluster.yaml").write_text(ONE_NODE)
    assert main(["render", "--target", "slurm", "--run", "async", "--", "--epochs=1"]) == 0
    # Both are in the queue before one of them can start.
    held = ("sbatch", "--parsable", "--nodelist=n2", "--hold", "cluster.sbatch")
    both = [slurm.run(*held).strip() for _ in range(2)]
    slurm.run("scontrol", "release", ",".join(both))
    assert [wait_for_end(slurm, job) for job in both] == ["COMPLETED 0:0"] * 2
    times = [job_times(slurm, job) for job in both]
    assert max(start for start, _ in times) < min(end for _, end in times), "not at the same time"
    ports = [
        line.partition("address 127.0.0.1:")[2].partition(",")[0]
        for job in both
        for line in first_lines(project, job).values()
    ]
    assert len(set(ports)) == len(ports) == 4
    for job in both:
        output = (project / f"slurm-{job}.out").read_text()
        assert re.search(r"worker-0  succeeded +550 ", output), output


@pytest.mark.tensorflow
def test_the_rendered_script_trains_with_horovod(
    slurm: Slurm, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if TF1.python(ROOT) is None:
        lacking(f"no {TF1.environment} here; `make {TF1.target}` makes it")
    monkeypatch.delenv("LAB_PYTHON")
    for name in ("lab", TF1.environment):
        (project / name).symlink_to(ROOT / name)
    (project / "cluster.yaml").write_bytes((ROOT / "clusters/workers.yaml").read_bytes())
    job = submit(slurm, "--run", "horovod", "--", "--global_steps=20")
    ended = wait_for_end(slurm, job)
    output = (project / f"slurm-{job}.out").read_text()
    assert ended == "COMPLETED 0:0", output
    assert re.search(r"worker-1  succeeded +20 ", output)


@pytest.mark.tensorflow
def test_a_failed_run_fails_the_job_and_leaves_no_process(slurm: Slurm, project: Path) -> None:
    text = (project / "cluster.yaml").read_text() + "faults: [kill worker-1 after 20 steps]\n"
    (project / "cluster.yaml").write_text(text)
    job = submit(slurm, "--run", "async", "--", "--epochs=1")
    assert wait_for_end(slurm, job) == "FAILED 1:0"
    assert "worker-1: " in (project / f"slurm-{job}.out").read_text()


def test_the_job_ends_when_its_agents_cannot_start(slurm: Slurm, project: Path) -> None:
    assert main(["render", "--target", "slurm"]) == 0
    script = project / "cluster.sbatch"
    script.write_text(script.read_text().replace("agent.slurm 0", "agent.there_is_none"))
    text = script.read_text().replace("agent.slurm 1", "agent.there_is_none")
    script.write_text(text)
    job = slurm.run("sbatch", "--parsable", "cluster.sbatch").strip()
    assert wait_for_end(slurm, job) == "FAILED 1:0"
    assert "lab: the agents ended before the run" in (project / f"slurm-{job}.out").read_text()


@pytest.mark.tensorflow
def test_a_job_that_slurm_requeues_trains_again(slurm: Slurm, project: Path) -> None:
    flags = ("--epochs=2", "--checkpoint_every=2")
    job = submit(slurm, "--run", "async", "--", *flags)
    runs = project / f"slurm-{job}/runs"
    wait_until(lambda: any(runs.glob("*/checkpoints/*.index")), "no checkpoint", PATIENCE_S)
    slurm.run("scontrol", "requeue", job)
    slurm.start_again(job, PATIENCE_S)
    ended = wait_for_end(slurm, job)
    output = (project / f"slurm-{job}.out").read_text()
    assert ended == "COMPLETED 0:0", output
    assert "resumes from its checkpoint" in output


WAITS = """\
import os, signal, time

signal.signal(signal.SIGTERM, lambda *_: exit(0))
print("worker=%d,epoch=0,global_step=1, local_step=1, loss = 0.5" % 0, flush=True)
signal.pause()
"""


@pytest.fixture
def waits(project: Path, slurm: Slurm) -> Iterator[str]:
    """A program that runs until it is stopped; afterwards no job of lab is left."""
    (project / "waits.py").write_text(WAITS)
    yield "waits.py"
    assert slurm.lab_jobs() == []
    assert list((project / "state/slurm").glob("*/")) == []


def only_run(project: Path) -> dict[str, object]:
    """The recorded facts of the only run."""
    (path,) = (project / "runs").glob("*/run.json")
    return dict(json.loads(path.read_text()))


@pytest.mark.tensorflow
def test_lab_run_trains_in_a_job_and_leaves_nothing(slurm: Slurm, project: Path) -> None:
    out, err = lab(project, "run", "async", "--backend", "slurm", "--epochs=1", "--json")
    summary = json.loads(out.splitlines()[-1])
    assert (summary["state"], summary["backend"]) == ("succeeded", "slurm")
    assert summary["updates_conserved"] is True
    assert summary["records_lost"] == 0
    assert {task["task"]: task["local_step"] for task in summary["tasks"]} == {
        "ps-0": None,
        "worker-0": 550,
        "worker-1": 550,
    }
    assert "other users of the cluster's network can reach TensorFlow's servers" in err
    assert slurm.lab_jobs() == []
    assert list((project / "state/slurm").glob("*/")) == []


@pytest.mark.tensorflow
def test_processes_in_a_job_of_one_node_have_networks_of_their_own(project: Path) -> None:
    train = command("run", "async", "--backend", "local", "--gpus", "none", "--epochs=1")
    done = subprocess.run(
        ["srun", "--nodes=1", "--exclusive", *train],
        env=environ(project),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "local: booted 3 tasks on 3 pseudo-nodes (namespaces)" in done.stderr


def test_a_full_queue_is_reported_and_ctrl_c_gives_the_place_back(
    slurm: Slurm, project: Path, waits: str
) -> None:
    command = ["sbatch", "--parsable", "--nodes=3", "--exclusive", "--wrap=sleep 300"]
    full = slurm.run(*command).strip()
    process = start(project, "run", waits, "--backend", "slurm")
    try:
        until(process, "waits in the queue: Resources")
        assert len(set(slurm.lab_jobs())) == 1
        _, err = lab(project, "up", "--backend", "slurm", code=1)
        assert "another command uses the slurm environment 'slurm' now" in err
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert "did not start; its directory is removed" in err
        assert list((project / "runs").iterdir()) == []
    finally:
        process.kill()
        slurm.run("scancel", full)


def test_ctrl_c_ends_the_run_and_its_job(project: Path, waits: str) -> None:
    process = start(project, "run", waits, "--backend", "slurm")
    until(process, "worker-1: training")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert only_run(project)["state"] == "cancelled"


def test_a_job_that_cannot_start_its_agents_is_an_error(
    slurm: Slurm, project: Path, waits: str
) -> None:
    text = (project / "cluster.yaml").read_text()
    (project / "cluster.yaml").write_text(text.replace("gpus: 1", "gpus: 9"))
    _, err = lab(project, "run", waits, "--backend", "slurm", code=1)
    assert "sbatch failed: sbatch: error: " in err
    assert "compare the config with `sinfo`" in err


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("experiment", "config"), [("sync", "slurm.yaml"), ("multiworker", "workers.yaml")]
)
def test_other_experiments_train_in_a_job(
    slurm: Slurm, project: Path, experiment: str, config: str
) -> None:
    (project / "cluster.yaml").write_bytes((ROOT / "clusters" / config).read_bytes())
    out, _ = lab(project, "run", experiment, "--backend", "slurm", "--epochs=1", "--json")
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "succeeded"
    assert summary["records_lost"] == 0
    assert slurm.lab_jobs() == []


@pytest.fixture(scope="module")
def apptainer(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An image that Apptainer runs. It has Python, but neither Slurm nor lab."""
    home = tmp_path_factory.mktemp("apptainer")
    try:
        commands = install_apptainer(home)
    except NoEngine as reason:
        # Debian's unstable release does not install on every day; that says nothing of lab.
        pytest.skip(f"no Apptainer: {reason}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        for name, value in make_image(commands, home / "image").items():
            patch.setenv(name, value)
        yield home / "image"
    shutil.rmtree(home)


@pytest.fixture
def contained(project: Path, apptainer: Path) -> Path:
    """A project's directory with lab and its programs, which needs no other directory."""
    (project / "scripts").unlink()
    for name in ("lab", "scripts"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, project / name, ignore=ignored)
    return project


@pytest.mark.tensorflow
def test_the_rendered_script_trains_in_an_image(
    slurm: Slurm, contained: Path, apptainer: Path
) -> None:
    flags = ("--container", str(apptainer), "--run", "async", "--", "--epochs=1")
    job = submit(slurm, *flags)
    ended = wait_for_end(slurm, job)
    output = (contained / f"slurm-{job}.out").read_text()
    assert ended == "COMPLETED 0:0", output
    assert re.search(r"worker-1  succeeded +550 ", output), output
    assert "error" not in output
    assert re.search(", GPUs: [01]$", first_lines(contained, job)["worker-0"])


IN_IMAGE = """\
import importlib.util, pathlib, shutil, signal, sys, time


def save(*_):
    time.sleep(0.5)  # the time of a checkpoint
    print("saved")
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
print(pathlib.Path("/image").read_text(), shutil.which("sinfo"))
print(importlib.util.find_spec("lab").origin)
print("worker=%d,epoch=0,global_step=1, local_step=1, loss = 0.5" % 0, flush=True)
signal.pause()
"""


def test_programs_in_an_image_have_time_to_end_after_scancel(
    slurm: Slurm, contained: Path, apptainer: Path
) -> None:
    own = contained / "own/program.py"
    own.parent.mkdir()
    own.write_text(IN_IMAGE)
    flags = ("run", str(own), "--backend", "slurm")
    process = start(contained, *flags, LAB_CONTAINER=str(apptainer))
    until(process, "worker-1: training")
    slurm.run("scancel", f"--name={slurm.lab_jobs()[0]}")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    run = only_run(contained)
    assert run["state"] == "cancelled"
    assert run["provenance"]["container"] == str(apptainer)  # type: ignore[index]
    for task in ("worker-0", "worker-1"):
        (log,) = (contained / "runs").glob(f"*/logs/{task}*")
        lines = log.read_text().splitlines()
        assert lines[0] == "of the tests None"
        assert lines[1] == f"{contained}/lab/__init__.py"
        assert lines[-1] == "saved"
    assert slurm.lab_jobs() == []
