"""The lab on a real Slurm: a controller and three nodes on this host (`make test-slurm`)."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.protocol.runtimes import HERITAGE, RUNTIMES
from tests.support.commands import call, command, end, lab, only_run, start, until
from tests.support.conditions import lacking
from tests.support.engine import ROOT
from tests.support.rank_programs import add_program
from tests.support.shown import assert_shows
from tests.support.slurm import Slurm, make_project, wait_until

pytestmark = pytest.mark.slurm

PATIENCE_S = 180.0
PAGE = "docs/how-to/slurm.md"


@pytest.fixture
def project(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_PYTHON", sys.executable)
    return tmp_path


def submit(slurm: Slurm, *flags: str) -> str:
    """Render the project's config and submit the script; the job's number."""
    assert main(["render", "--target", "slurm", *flags]) == 0
    return slurm.run("sbatch", "--parsable", "cluster.sbatch").strip()


def state(slurm: Slurm, job: str) -> tuple[str, str]:
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job).splitlines()[0]
    found = [re.search(rf"\b{name}=(\S+)", shown) for name in ("JobState", "ExitCode")]
    return found[0][1], found[1][1]


def wait_for_end(slurm: Slurm, job: str) -> str:
    active = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}
    wait_until(lambda: state(slurm, job)[0] not in active, f"job {job} goes on", PATIENCE_S)
    return " ".join(state(slurm, job))


def trained(slurm: Slurm, project: Path, job: str, last: str) -> str:
    """The output of a job that must succeed, and whose last worker makes these steps."""
    ended = wait_for_end(slurm, job)
    output = (project / f"slurm-{job}.out").read_text()
    assert ended == "COMPLETED 0:0", output
    assert re.search(last, output), output
    return output


def first_lines(project: Path, job: str) -> dict[str, str]:
    """The node, the address and the GPUs of each task, as its agent prints them."""
    found = {}
    for file in sorted((project / f"slurm-{job}/output").glob("*.log")):
        line = file.read_text().splitlines()[0]
        found[file.stem] = line.partition("runs on ")[2]
    return found


@pytest.mark.tensorflow
def test_the_rendered_script_trains(slurm: Slurm, project: Path) -> None:
    job = submit(slurm, "--run", "async", "--", "--epochs=1")
    printed = trained(slurm, project, job, r"worker-1: succeeded, local step 550,")
    printed = printed.replace(str(project), "/shared/lab")
    assert_shows(PAGE, "$ cat slurm-6.out", printed, figures=False)
    first = 10_000 + int(job) * 64
    lines = first_lines(project, job)
    assert lines["ps-0"] == f"tf1, address 127.0.0.1:{first}, GPUs: none"
    for number in (0, 1):
        # Which one, if two jobs share a node, is Slurm's choice.
        expected = f"tf{number + 2}, address 127.0.0.1:{first + 1 + number}, GPUs: [01]"
        assert re.fullmatch(expected, lines[f"worker-{number}"])


@pytest.mark.tensorflow
def test_the_rendered_script_trains_with_horovod(
    slurm: Slurm, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if HERITAGE.python(ROOT) is None:
        lacking(f"no {HERITAGE.environment} here; `make {HERITAGE.target}` makes it")
    monkeypatch.delenv("LAB_PYTHON")
    for name in ("lab", HERITAGE.environment):
        (project / name).symlink_to(ROOT / name)
    (project / "cluster.yaml").write_bytes((ROOT / "clusters/workers.yaml").read_bytes())
    job = submit(slurm, "--run", "horovod", "--", "--global_steps=20")
    trained(slurm, project, job, r"worker-1: succeeded, local step 20,")


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
    script.write_text(re.sub(r"agent\.slurm [01]", "agent.there_is_none", script.read_text()))
    job = slurm.run("sbatch", "--parsable", "cluster.sbatch").strip()
    assert wait_for_end(slurm, job) == "FAILED 1:0"
    assert "lab: the agents ended before the run" in (project / f"slurm-{job}.out").read_text()


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


@pytest.mark.tensorflow
def test_lab_run_trains_in_a_job_and_leaves_nothing(slurm: Slurm, project: Path) -> None:
    out, err = lab(project, "run", "sync", "--backend", "slurm", "--epochs=1", "--json")
    summary = json.loads(out.splitlines()[-1])
    assert (summary["state"], summary["backend"]) == ("succeeded", "slurm")
    assert (summary["global_step"], summary["records_lost"]) == (550, 0)
    assert "other users of the cluster's network can reach TensorFlow's servers" in err
    assert slurm.lab_jobs() == []
    assert list((project / "state/slurm").glob("*/")) == []


def test_processes_in_a_job_of_one_node_have_networks_of_their_own(project: Path) -> None:
    (project / "quick.py").write_text("")
    run = command("run", "quick.py", "--backend", "local", "--gpus", "none")
    err = call(project, "sh", "-c", '"$@" 2>&1', "-", "srun", "--nodes=1", "--exclusive", *run)
    assert "local: booted 3 tasks on 3 pseudo-nodes (namespaces)" in err
    printed = err.replace("quick", "async")
    assert_shows("docs/reference/slurm.md", "$ srun --nodes=1", printed, figures=False)


def test_the_page_shows_what_a_larger_cluster_gets(slurm: Slurm, project: Path) -> None:
    (project / "cluster.yaml").write_bytes((ROOT / "cluster.yaml").read_bytes())
    command = ("run", "async", "--backend", "slurm", "--epochs", "1")
    _, err = lab(project, *command, code=2)
    assert_shows(PAGE, "error: 'mnist' needs 4 nodes", err)
    smaller(project)
    _, err = lab(project, *command, code=1, SBATCH_PARTITION="gpu")
    assert_shows(PAGE, "$ SBATCH_PARTITION=gpu", err)
    assert slurm.lab_jobs() == []


def smaller(project: Path) -> None:
    """Write `cluster.yaml` without its last node and worker, which fits this Slurm."""
    text = re.sub(r"\n  tf4: .*", "", (ROOT / "cluster.yaml").read_text())
    text = text.replace(", tf4]", "]").replace("memory: 8GiB", "memory: 1GiB")
    (project / "cluster.yaml").write_text(text)


@pytest.mark.tensorflow
def test_the_page_shows_a_run_and_a_job_of_several_commands(slurm: Slurm, project: Path) -> None:
    smaller(project)
    out, err = lab(project, "run", "async", "--backend", "slurm", "--epochs", "1")
    assert_shows(PAGE, "backend slurm", err + out, figures=False)
    out, err = lab(project, "run", "async", "--backend", "slurm", "--epochs", "50", "--detach")
    printed = err + out
    for line in ("ps mnist", "cancel", "attach", "ps", "down"):
        out, err = lab(project, *line.split(), code=int(line == "attach"))
        printed += err + out
    # Where TensorFlow starts faster than the client, `lab ps` finds the tasks further on.
    printed = re.sub(r"(job \d+ running +)(ready|training)", r"\1starting", printed)
    assert_shows(PAGE, "$ lab run async --backend slurm --epochs 50", printed, figures=False)
    assert slurm.lab_jobs() == []


def test_a_full_queue_is_reported_and_ctrl_c_gives_the_place_back(
    slurm: Slurm, project: Path, waits: str
) -> None:
    command = ["sbatch", "--parsable", "--nodes=3", "--exclusive", "--wrap=sleep 300"]
    full = slurm.run(*command).strip()
    process = start(project, "run", waits, "--backend", "slurm")
    try:
        until(process, "is waiting in the queue: Resources")
        assert len(set(slurm.lab_jobs())) == 1
        _, err = lab(project, "up", "--backend", "slurm", code=1)
        assert "another command is using the slurm environment 'slurm'" in err
        process.send_signal(signal.SIGINT)
        _, err = end(process, 130)
        assert "did not start; its directory was removed" in err
        assert list((project / "runs").iterdir()) == []
    finally:
        process.kill()
        slurm.run("scancel", full)


def test_ctrl_c_ends_the_run_and_its_job(project: Path, waits: str) -> None:
    process = start(project, "run", waits, "--backend", "slurm")
    until(process, "worker-1: training")
    process.send_signal(signal.SIGINT)
    end(process, 130)
    assert only_run(project)["state"] == "cancelled"


SAVES = """\
import signal, sys, time


def save(*_):
    time.sleep(0.5)  # the time of a checkpoint
    print("saved")
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
print("worker=%d,epoch=0,global_step=1, local_step=1, loss = 0.5" % 0, flush=True)
signal.pause()
"""


def test_programs_have_time_to_end_after_scancel(slurm: Slurm, project: Path) -> None:
    own = project / "own/program.py"
    own.parent.mkdir()
    own.write_text(SAVES)
    process = start(project, "run", str(own), "--backend", "slurm")
    until(process, "worker-1: training")
    slurm.run("scancel", f"--name={slurm.lab_jobs()[0]}")
    end(process, 1)
    assert only_run(project)["state"] == "cancelled"
    for task in ("worker-0", "worker-1"):
        (log,) = (project / "runs").glob(f"*/logs/{task}*")
        assert log.read_text().splitlines()[-1] == "saved"
    assert slurm.lab_jobs() == []


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_program_of_another_framework_finds_its_ranks_in_a_job(
    slurm: Slurm, project: Path, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX would take the variables of Slurm, in which each task is the only one of its step."""
    program = add_program(project, framework)
    monkeypatch.delenv("LAB_PYTHON")
    name = RUNTIMES[framework].environment
    (project / name).symlink_to(ROOT / name)
    (project / "cluster.yaml").write_bytes((ROOT / "clusters/workers.yaml").read_bytes())
    out, _ = lab(project, "run", program, "--backend", "slurm", "--json")
    assert json.loads(out.splitlines()[-1])["state"] == "succeeded"
    (run,) = (project / "runs").iterdir()
    last = {"torch": "rank {} of 2: same weights: True, 0", "jax": "process {} of 2: total 3.0"}
    for rank in (0, 1):
        assert last[framework].format(rank) in (run / f"logs/worker-{rank}.log").read_text()
    assert slurm.lab_jobs() == []
