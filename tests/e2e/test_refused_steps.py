"""TensorFlow refuses steps whose request ids repeat; the ids of no program of `lab` do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from lab.protocol.runtimes import HERITAGE
from tests.support.commands import ROOT, environ, run_command
from tests.support.conditions import lacking

pytestmark = pytest.mark.tensorflow

STEPS = 500

SIXTEEN_SEEDS = """\
import ctypes
from importlib.util import find_spec
from pathlib import Path
from lab.task.request_ids import DEVICE, call_instead

ctypes.CDLL(str(Path(find_spec("tensorflow").origin).parent / "libtensorflow_cc.so.2"))
c = ctypes.CDLL(None)
# The C library multiplies 1 by 1 + 2**44, modulo 2**48: after 16 numbers it begins again.
c.lcong48((ctypes.c_ushort * 7)(1, 0, 0, 1, 0, 4096, 0))
assert call_instead(DEVICE, c.lrand48)
"""
"""Python runs this module, `sitecustomize`, before everything else."""

PROGRAM = """\
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
servers = [tf.train.Server({"ps": ["localhost:0"]}, "ps", 0)]
address = servers[0].target.removeprefix("grpc://")
cluster = tf.train.ClusterSpec({"ps": [address], "worker": ["localhost:0"]})
servers.append(tf.train.Server(cluster, "worker", 0))
with tf.device("/job:ps/task:0"):
    step = tf.timestamp().op
refused = 0
with tf.Session(servers[1].target) as session:
    for _ in range(STEPS):
        try:
            session.run(step)
        except tf.errors.AbortedError as error:
            assert "The same RunGraph (Worker) request was received twice" in str(error)
            refused += 1
print(refused)
"""
SDK = """\
import tensorflow.compat.v1 as tf
from lab.task.sdk.flags import parse, task_flags
from lab.task.sdk.program import begin_task

begin_task(parse(task_flags("A program.")))
"""
FORK = """\
import os, sys
import tensorflow
from lab.task.agent import forkserver

if not os.fork():
    forkserver.run_as_main(sys.argv, dict(os.environ))
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def run(folder: Path, tensorflow: str, *arguments: str, lines: str = "") -> tuple[int, str]:
    """Run a program whose request ids follow from 16 seeds; its refused steps, and its stderr."""
    python: Path | None = Path(sys.executable)
    if tensorflow == HERITAGE.name and (python := HERITAGE.python(ROOT)) is None:
        lacking(f"no {HERITAGE.environment} here; `make {HERITAGE.target}` makes it")
    (folder / "first").mkdir()
    (folder / "first" / "sitecustomize.py").write_text(SIXTEEN_SEEDS)
    program = folder / "program.py"
    program.write_text(lines + PROGRAM.replace("STEPS", str(STEPS)))
    cluster = {"ps": ["localhost:1"], "worker": ["localhost:2"]}
    done = run_command(
        [str(python), *arguments, str(program)],
        cwd=folder,
        env={
            **environ(folder),
            "PYTHONPATH": os.pathsep.join(map(str, (folder / "first", ROOT, ROOT / "scripts"))),
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}),
            "LAB_TASK": "worker-0",
            "LAB_RUN_DIR": "/runs/r1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.splitlines()[-1]), done.stderr


both_versions = pytest.mark.parametrize("tensorflow", ["tensorflow", HERITAGE.name])


@both_versions
def test_without_lab_most_steps_are_refused(tmp_path: Path, tensorflow: str) -> None:
    refused, _ = run(tmp_path, tensorflow)
    assert refused > STEPS / 2


@both_versions
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["-m", "lab.task.own"], ""),
        (["-m", "lab.task.tf1"], ""),
        ([], SDK),
        (["-c", FORK], SDK),
    ],
    ids=["own", "tf1", "sdk", "forked"],
)
def test_no_program_of_a_run_is_refused_a_step(
    tmp_path: Path, tensorflow: str, arguments: list[str], lines: str
) -> None:
    refused, errors = run(tmp_path, tensorflow, *arguments, lines=lines)
    assert refused == 0
    assert "request ids may repeat" not in errors
