"""Programs that are forked after one import of the real TensorFlow train as all others do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import ROOT, lab, start

pytestmark = pytest.mark.tensorflow

CLUSTER = """\
version: 1
name: forked
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1, tf2]}}
"""
FORKED = "has started, forked from the fork server"
DRAWS = """\
import tensorflow as tf
import platform, socket, sys
print("keras at first", "keras" in sys.modules)
import numpy as np
from lab.task.sdk import program

seed = tf.random.uniform([], maxval=2**30, dtype=tf.int32)
print("drawn", int(seed), np.random.randint(2**30), tf.keras.layers.Dense(1).name)
print("keras then", "keras" in sys.modules, tf.keras.__version__.partition(".")[0])
print("asked", platform.node(), socket.gethostname())
print("lab kind=final run=r job_name=x task_index=0 seq=0 status=succeeded", flush=True)
"""
# A run ends with its workers, which may be done before the ps has started.
WAITS_FOR_ALL = """\
import os, pathlib, time
(pathlib.Path({started!r}) / str(os.getpid())).touch()
while len(os.listdir({started!r})) < 3:
    time.sleep(0.05)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    yield tmp_path
    lab(tmp_path, "down", "forked", "--yes", "--discard")


def write_program(project: Path, text: str) -> None:
    """Let async run this program, which ends once all three tasks have run it to the end."""
    (project / "started").mkdir()
    waits = WAITS_FOR_ALL.format(started=str(project / "started"))
    (project / "scripts/mnist_async.py").write_text(text + waits)


def logged(project: Path, word: str) -> list[list[str]]:
    lines = lab(project, "logs")[0].splitlines()
    return [line.partition(f"{word} ")[2].split() for line in lines if f"| {word} " in line]


def test_runs_train_behind_one_import_and_draw_numbers_of_their_own(project: Path) -> None:
    lab(project, "up", "--backend", "local", "--gpus", "none")
    for experiment in ("async", "sync"):
        flags = ("--global_steps=60", "--seed=1", "--json")
        summary = json.loads(lab(project, "run", experiment, *flags)[0].splitlines()[-1])
        assert (summary["state"], summary["updates_conserved"]) == ("succeeded", True)
        assert summary["records_lost"] == 0
    write_program(project, DRAWS)
    lab(project, "run", "async")
    output = lab(project, "logs")[0]
    assert output.count(FORKED) == 9, output
    assert "as a new process" not in output
    by_tensorflow, by_numpy, layers = zip(*logged(project, "drawn"), strict=True)
    assert len({*by_tensorflow}) == len({*by_numpy}) == 3
    assert {*layers} == {"dense"}
    assert logged(project, "keras") == [["at", "first", "False"], ["then", "True", "3"]] * 3
    # TensorFlow's import looks up the host's name, and Python keeps the answer.
    assert [asked == own for asked, own in logged(project, "asked")] == [True] * 3


def test_a_variable_has_every_program_started_by_itself(project: Path) -> None:
    write_program(project, "print('alone', flush=True)\n")
    up = start(project, "up", "--backend", "local", "--gpus", "none", LAB_LOCAL="namespaces")
    assert up.wait(60) == 0
    lab(project, "run", "async")
    output = lab(project, "logs")[0]
    assert output.count("mnist_async.py has started") == 3
    assert FORKED not in output
