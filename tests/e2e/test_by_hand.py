"""The book's way: one terminal for each task, the program started by hand in each, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import wait_for
from tests.support.cluster import Task, cluster
from tests.support.commands import ROOT, command, environ, lab
from tests.support.terminals import CTRL_C, Terminal, terminal

pytestmark = pytest.mark.tensorflow

NAME = "lab-e2e-by-hand"
PROGRAM = "python scripts/mnist_async.py --epochs=50 --record_every=20"
START_S = 200.0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """The project's default cluster, up under its own name."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "data").mkdir()
    text = (ROOT / "cluster.yaml").read_text()
    (tmp_path / "cluster.yaml").write_text(text.replace("name: mnist", f"name: {NAME}"))
    lab(tmp_path, "up", "--backend", "local", "--gpus", "none")
    yield tmp_path
    lab(tmp_path, "down", "--yes", "--discard")


def test_four_shells_the_printed_command_and_ctrl_c_in_each(project: Path) -> None:
    addresses = {
        each["task"]: each["address"] for each in json.loads(lab(project, "ps", NAME, "--json")[0])
    }
    workers = [task for task in addresses if task.startswith("worker-")]
    hosts = ",".join(addresses[task] for task in workers)
    cluster = f"--ps_hosts={addresses['ps-0']} --worker_hosts={hosts}"
    with contextlib.ExitStack() as opened:
        shells: dict[str, Terminal] = {}
        for task in ("ps-0", *workers):
            env = environ(project) | {"SHELL": "/bin/bash"}
            shells[task] = opened.enter_context(
                terminal(command("shell", task), cwd=project, env=env)
            )
            job, _, index = task.rpartition("-")
            shells[task].type(f"{PROGRAM} --job_name={job} --task_index={index} {cluster}\n")
        for task in workers:
            shells[task].until(r"lab kind=step .*task_index=" + task[-1], START_S)
        # One that leaves does not disturb the others.
        leaves(shells["worker-2"])
        for task in ("worker-0", "worker-1"):
            step = int(shells[task].until(r" local_step=(\d+)", START_S)[1])
            later = int(shells[task].until(r" local_step=(\d+)", START_S)[1])
            assert later > step
            leaves(shells[task])
        leaves(shells["ps-0"])


def leaves(shell: Terminal) -> None:
    """Ctrl-C ends the program, with the code of an interrupt, and the shell is there again."""
    shell.type(CTRL_C)
    shell.type('echo "ended with $?"\n')
    assert shell.until(r"ended with (\d+)", START_S)[1] == "130"
    assert "Traceback" not in shell.said


def test_the_first_program_starts_in_any_order_without_lab(tmp_path: Path) -> None:
    steps = 2000
    nothing_of_lab = {"PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "0"}
    flags = (f"--steps={steps}",)
    with cluster("first_async.py", tmp_path, *flags, workers=3, **nothing_of_lab) as made:
        server = made.start("ps", 0)
        early = made.start("worker", 1)
        wait_for(lambda: "Started server" in early.stderr.read_text(), "a server", START_S)
        chief = made.start("worker", 0)
        made.succeed()
        # The early worker noticed at once that the chief had begun, so they trained together.
        assert last_step(chief) > steps
        assert max(last_step(chief), last_step(early)) == 2 * steps
        # The late one needs neither of them: they have ended.
        late = made.start("worker", 2)
        made.succeed()
        assert last_step(late) == 3 * steps
        fitted = re.fullmatch(r"worker 2: y = (\S+) x \+ (\S+)", late.lines[-1])
        assert fitted is not None
        assert [*map(float, fitted.groups())] == pytest.approx([3, 2], abs=0.02)
        assert server.process.poll() is None  # It serves until it is killed.


def last_step(worker: Task) -> int:
    (step,) = re.findall(r"step (\d+), loss", worker.lines[-2])
    return int(step)
