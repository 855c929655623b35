"""The book's way: one terminal for each task, the program started by hand in each, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import ROOT
from tests.support.terminals import CTRL_C, Terminal, terminal

pytestmark = pytest.mark.tensorflow

NAME = "lab-e2e-by-hand"
PROGRAM = "python scripts/mnist_async.py --epochs=50 --record_every=20"
START_S = 200.0


def lab(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        cwd=project,
        env=environ(project),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def environ(project: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "LAB_STATE": str(project / "state"),
        "SHELL": "/bin/bash",
    }


@pytest.fixture(params=["local", pytest.param("compose", marks=pytest.mark.engine)])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The project's default cluster, up under its own name."""
    if request.param == "compose":
        request.getfixturevalue("image")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "data").mkdir()
    text = (ROOT / "cluster.yaml").read_text()
    (tmp_path / "cluster.yaml").write_text(text.replace("name: mnist", f"name: {NAME}"))
    lab(tmp_path, "up", "--backend", request.param, "--gpus", "none")
    yield tmp_path
    lab(tmp_path, "down", "--yes", "--discard")


def test_four_shells_the_printed_command_and_ctrl_c_in_each(project: Path) -> None:
    addresses = {each["task"]: each["address"] for each in json.loads(lab(project, "ps", "--json"))}
    workers = [task for task in addresses if task.startswith("worker-")]
    hosts = ",".join(addresses[task] for task in workers)
    cluster = f"--ps_hosts={addresses['ps-0']} --worker_hosts={hosts}"
    with contextlib.ExitStack() as opened:
        shells: dict[str, Terminal] = {}
        for task in ("ps-0", *workers):
            command = [sys.executable, "-m", "lab", "shell", task]
            shells[task] = opened.enter_context(
                terminal(command, cwd=project, env=environ(project))
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
