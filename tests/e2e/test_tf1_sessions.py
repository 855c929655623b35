"""The sessions of printed programs: the end of a synchronous one, and what they return."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT

pytestmark = pytest.mark.tensorflow

PROGRAM = """\
import tensorflow as tf
server = tf.train.Server.create_local_server()
step = tf.train.get_or_create_global_step()
w = tf.get_variable('w', [1, 1], initializer=tf.constant_initializer(2.5))
optimizer = tf.train.SyncReplicasOptimizer(
    tf.train.GradientDescentOptimizer(0.0), replicas_to_aggregate=1, total_num_replicas=1)
train = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)
hooks = [optimizer.make_session_run_hook(True, num_tokens=0), tf.train.StopAtStepHook(last_step=3)]
with tf.train.MonitoredTrainingSession(server.target, is_chief=True, hooks=hooks) as session:
    while not session.should_stop():
        _, value = session.run([train, w])
        print('weight %.1f' % value)
print('ended')
"""


def test_the_queue_runner_of_a_monitored_session_is_no_fault(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.tf1", str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LAB_RUN_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [each for each in done.stdout.splitlines() if each.startswith(("weight", "ended"))] == [
        *["weight 2.5"] * 3,
        "ended",
    ]
    assert "Exception in thread" not in done.stderr
