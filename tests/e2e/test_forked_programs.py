"""Programs that are forked after one import of the real TensorFlow train as all others do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux forks"),
]

CLUSTER = """\
version: 1
name: forked
nodes:
  tf1: {}
  tf2: {}
jobs:
  ps: {on: [tf1]}
  worker: {on: [tf1, tf2]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    yield tmp_path
    down = lab(tmp_path, "down", "forked", "--yes", "--discard")
    assert down.returncode == 0, down.stderr


def lab(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {"PYTHONPATH": str(ROOT), "LAB_STATE": str(project / "state"), **variables}
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        cwd=project,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_three_runs_train_behind_one_import(project: Path) -> None:
    up = lab(project, "up", "--backend", "local", "--gpus", "none")
    assert up.returncode == 0, up.stderr
    for experiment, flags in (
        ("async", ("--global_steps=120", "--seed=1")),
        ("sync", ("--global_steps=60", "--seed=1")),
        ("async", ("--global_steps=120", "--seed=1")),
    ):
        done = lab(project, "run", experiment, *flags, "--json")
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        assert summary["state"] == "succeeded"
        assert summary["updates_conserved"] is True
        assert summary["records_lost"] == 0
    output = lab(project, "logs").stdout
    assert output.count("has started, forked from the fork server") == 9, output
    assert "as a new process" not in output


def test_a_variable_has_every_program_started_by_itself(project: Path) -> None:
    up = lab(project, "up", "--backend", "local", "--gpus", "none", LAB_LOCAL_FORK="0")
    assert up.returncode == 0, up.stderr
    done = lab(project, "run", "async", "--global_steps=60", "--seed=1")
    assert done.returncode == 0, done.stderr
    output = lab(project, "logs").stdout
    assert output.count("mnist_async.py has started") == 3
    assert "forked" not in output.replace("of forked runs", "")


DRAWS = """\
import tensorflow as tf
import platform, socket
import numpy as np
from lab.task import program

seed = tf.random.uniform([], maxval=2**30, dtype=tf.int32)
print("drawn", int(seed), np.random.randint(2**30), tf.keras.layers.Dense(1).name)
print("asked", platform.node(), socket.gethostname())
print("lab kind=final run=r job_name=x task_index=0 seq=0 status=succeeded", flush=True)
"""


def test_forked_programs_draw_numbers_of_their_own_and_have_keras(project: Path) -> None:
    (project / "scripts").unlink()
    (project / "scripts").mkdir()
    (project / "scripts" / "mnist_async.py").write_text(DRAWS)
    done = lab(project, "up", "--backend", "local", "--gpus", "none")
    assert done.returncode == 0, done.stderr
    done = lab(project, "run", "async")
    assert done.returncode == 0, done.stderr
    output = lab(project, "logs").stdout
    assert output.count("forked from the fork server") == 3, output
    drawn = [line.split("drawn ")[1].split() for line in output.splitlines() if "drawn " in line]
    by_tensorflow, by_numpy, layers = zip(*drawn, strict=True)
    assert len({*by_tensorflow}) == len({*by_numpy}) == 3
    assert {*layers} == {"dense"}
    # TensorFlow's import looks up the host's name, and Python keeps the answer.
    hosts = [line.split("asked ")[1].split() for line in output.splitlines() if "asked " in line]
    assert len(hosts) == 3, output
    assert all(asked == own for asked, own in hosts)
