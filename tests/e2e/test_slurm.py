"""The lab on a real Slurm: a controller and three nodes on this host (`make test-slurm`)."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from lab.cli import main
from tests.engine import ROOT
from tests.slurm import NODES, Slurm, wait_until

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
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "data").mkdir()
    (tmp_path / "cluster.yaml").write_bytes((ROOT / "clusters/slurm.yaml").read_bytes())
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
    assert "worker-1  succeeded          550" in output
    first = 10_000 + int(job) * 64
    lines = first_lines(project, job)
    assert lines["ps-0"] == f"tf1, address 127.0.0.1:{first}, GPUs: none"
    for number in (0, 1):
        # Which one, if two jobs share a node, is Slurm's choice.
        expected = f"tf{number + 2}, address 127.0.0.1:{first + 1 + number}, GPUs: [01]"
        assert re.fullmatch(expected, lines[f"worker-{number}"])


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
    wait_until(lambda: state(slurm, job)[0] == "PENDING", "it is not requeued", PATIENCE_S)
    time.sleep(1.0)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    ended = wait_for_end(slurm, job)
    output = (project / f"slurm-{job}.out").read_text()
    assert ended == "COMPLETED 0:0", output
    assert "resumes from its checkpoint" in output
