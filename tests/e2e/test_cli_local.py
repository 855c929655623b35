"""Real runs through the command line, on plain processes of this machine."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import PATIENCE_S, wait_for
from tests.support.commands import ROOT, command, environ, lab, start

pytestmark = pytest.mark.tensorflow

CLUSTER = """\
version: 1
name: e2e-cli
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf2]}}
port: 24222
"""

STEPS = """\
import os, signal, sys, time
from lab.task.sdk.recorder import Recorder

task = os.environ["LAB_TASK"]
recorder = Recorder(*task.split("-")[:1], int(task.split("-")[1]))
recorder.write("start")
if task == "ps-0":
    signal.pause()
for step in range(1, STEPS + 1):
    recorder.write("step", epoch=0, local_step=step, global_step=step, loss=1 / step)
    time.sleep(0.02)
recorder.write("final", local_step=STEPS, global_step=STEPS, accuracy=0.5, status="succeeded")
"""


ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
RUN = ("run", "async", "--backend", "local", "--gpus", "none")


def ours(project: Path) -> list[str]:
    """The command lines of all processes that know this project's state directory."""
    mark = f"LAB_STATE={project / 'state'}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project whose programs a test writes; all of it is removed at the end."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    yield tmp_path
    lab(tmp_path, "down", "--all", "--yes", "--discard")
    assert ours(tmp_path) == []


def program(project: Path, text: str) -> None:
    (project / "scripts/mnist_async.py").write_text(text)


def steps(count: int) -> str:
    return STEPS.replace("STEPS", str(count))


def left_nothing(project: Path) -> bool:
    return ours(project) == [] and not list((project / "state").glob("local/*/"))


def the_run(project: Path) -> Path:
    (run,) = (project / "runs").iterdir()
    return run


def numbers(run: Path, task: str) -> list[int]:
    lines = (run / "tasks" / f"{task}.jsonl").read_text().splitlines()
    return [json.loads(line)["seq"] for line in lines]


def wait_for_a_record(project: Path) -> None:
    """Wait until records of both workers were collected."""
    found = [f"runs/*/tasks/worker-{index}.jsonl" for index in (0, 1)]
    wait_for(lambda: all(any(project.glob(each)) for each in found), "a record", PATIENCE_S)


def test_mnist_is_trained_from_one_command(tmp_path: Path) -> None:
    arguments = ["--epochs", "1", "--seed", "3", "--json", "--runs-dir", str(tmp_path / "runs")]
    out, _ = lab(tmp_path, *RUN, *arguments, "--cluster", str(ROOT / "cluster.yaml"))
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "succeeded"
    assert summary["global_step"] == 3 * 550
    assert summary["updates_conserved"] is True
    assert summary["records_lost"] == 0
    assert 0.4 < summary["accuracy"] < 0.8
    assert 0 < summary["first_step_s"] < summary["wall_s"]
    workers = [task for task in summary["tasks"] if task["job_name"] == "worker"]
    assert [task["local_step"] for task in workers] == [550] * 3
    assert max(task["global_step"] for task in workers) == 1650
    run = the_run(tmp_path)
    assert json.loads((run / "run.json").read_text())["seed"] == 3
    assert json.loads((run / "summary.json").read_text()) == summary
    assert list((run / "model").iterdir())
    assert left_nothing(tmp_path)


def test_a_program_that_crashes_at_once(project: Path) -> None:
    program(project, "import sys\nprint('\\x1b]0;owned\\x07')\nsys.exit('cannot find the data')\n")
    out, err = lab(project, *RUN, code=1)
    assert "cannot find the data" in err
    assert err.splitlines()[-1].startswith("error: run ")
    assert "\x1b" not in out + err
    assert json.loads((the_run(project) / "run.json").read_text())["state"] == "failed"
    assert left_nothing(project)


def test_a_program_that_prints_binary_data(project: Path) -> None:
    program(
        project,
        "import os, sys\nos.write(1, bytes(range(256)) * 40 + b'\\nlab kind=step what\\n')\n"
        "import signal\nif os.environ['LAB_TASK'] == 'ps-0': signal.pause()\n",
    )
    lab(project, *RUN)
    assert bytes(range(11, 256)) in (the_run(project) / "logs/worker-0.log").read_bytes()
    assert left_nothing(project)


def test_ctrl_c(project: Path) -> None:
    program(project, steps(100_000))
    process = start(project, *RUN)
    wait_for_a_record(project)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("error: run ")
    assert "cancelled" in out
    summary = json.loads((the_run(project) / "summary.json").read_text())
    assert (summary["state"], summary["records_lost"]) == ("cancelled", 0)
    assert left_nothing(project)


def test_the_terminal_is_closed(project: Path) -> None:
    program(project, steps(100_000))
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(project)
        os.execve(sys.executable, command(*RUN), environ(project))  # noqa: S606
    try:
        wait_for_a_record(project)
        os.close(terminal)
        wait_for(lambda: os.waitid(os.P_PID, child, ENDED), "the end of the command")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert json.loads((the_run(project) / "run.json").read_text())["state"] == "cancelled"
    assert left_nothing(project)


def test_a_closed_reader_does_not_change_the_outcome(project: Path) -> None:
    program(project, steps(100))
    process = subprocess.Popen(
        command(*RUN),
        cwd=project,
        env=environ(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    process.wait(PATIENCE_S)
    assert json.loads((the_run(project) / "run.json").read_text())["state"] == "succeeded"
    assert left_nothing(project)


def test_after_a_killed_client_every_line_is_collected_once(project: Path) -> None:
    program(project, steps(300))
    lab(project, "up", "--backend", "local", "--gpus", "none")
    process = start(project, "run", "async", "--gpus", "none")
    wait_for_a_record(project)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    run = the_run(project)
    assert json.loads((run / "run.json").read_text())["state"] in {"starting", "training"}

    # `collect` collects the present files; repeat it until the run has ended.
    def collected() -> bool:
        lab(project, "collect", "last")
        return (run / "summary.json").exists()

    wait_for(collected, "an end", PATIENCE_S)
    assert json.loads((run / "summary.json").read_text())["state"] == "succeeded"
    for task in ("worker-0", "worker-1"):
        assert numbers(run, task) == list(range(302))
    # A second run in the environment that is up, then its end.
    program(project, steps(3))
    lab(project, *RUN)
    states = json.loads(lab(project, "ps", "--json")[0])
    assert {row["state"] for row in states} == {"succeeded"}
    lab(project, "down")
    assert left_nothing(project)


def test_runs_of_an_ended_environment_are_collected_first(
    project: Path,
) -> None:
    program(project, steps(100_000))
    lab(project, "up", "--backend", "local", "--gpus", "none")
    helper = start(project, "run", "async", "--gpus", "none")
    wait_for_a_record(project)
    helper.kill()
    helper.communicate(timeout=PATIENCE_S)
    record = json.loads((project / "state/local/e2e-cli/environment.json").read_text())
    os.kill(record["process"]["pid"], signal.SIGKILL)
    wait_for(lambda: ours(project) == [], "the end of all processes", PATIENCE_S)
    first = the_run(project)
    program(project, steps(3))
    lab(project, *RUN)
    info = json.loads((first / "run.json").read_text())
    assert (info["state"], info["reason"]) == ("lost", "its environment no longer runs")
    found = numbers(first, "worker-0")
    assert found == list(range(len(found)))
    assert left_nothing(project)
