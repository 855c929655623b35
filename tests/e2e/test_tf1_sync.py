"""A synchronous program with the faults of a book of 2018, and their fixes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import State
from tests.support.agents import processes_with
from tests.support.commands import ROOT, Done, lab, python
from tests.support.shown import assert_shows

pytestmark = pytest.mark.tensorflow

LESSON = "docs/tutorials/lessons/complaints.md"
PROGRAM = ROOT / "tests/tf1_programs/sync_three_faults.py"
CALLS = [
    number
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if line.endswith("_init_op()")
]
"""The lines with the first fault."""
ROUNDS = 550  # one epoch of 55,000 images in batches of 100
WORKERS = ("worker-0", "worker-1", "worker-2")


def messages(run_dir: Path, task: str) -> list[str]:
    records = map(json.loads, (run_dir / f"tasks/{task}.jsonl").read_text().splitlines())
    return [each["message"] for each in records if each["kind"] == "event"]


def test_fixed_every_worker_is_in_every_round_and_ends(tmp_path: Path) -> None:
    where = ("--cluster", str(ROOT / "clusters/book.yaml"), "--backend", "local", "--gpus", "none")
    runs = ("--json", "--runs_dir", str(tmp_path / "runs"))
    out, _ = lab(tmp_path, "run", "--listing=mend", str(PROGRAM), *where, *runs)
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert not processes_with(str(run_dir))
    assert summary["state"] == "succeeded"
    table, _ = lab(tmp_path, "show", "last", "--runs-dir", str(tmp_path / "runs"))
    assert_shows(LESSON, "$ lab run --listing", table, figures=False)
    tasks = {each["task"]: each for each in summary["tasks"]}
    assert {each["state"] for each in tasks.values()} == {"succeeded"}
    for worker in WORKERS:
        assert tasks[worker]["local_step"] == ROUNDS
        # Its line is printed with the value before the update, which is that of its own step - 1.
        assert tasks[worker]["global_step"] in {ROUNDS - 1, ROUNDS}
        # Softmax regression after 550 averaged steps at a rate of 0.1, far above a guess's 0.1.
        assert tasks[worker]["accuracy"] > 0.65
    told = messages(run_dir, "worker-0")
    assert [f"fixed: line {each}: " in "\n".join(told) for each in CALLS] == [True, True]
    assert any("each worker has its own tokens" in each for each in told)
    assert any("does not wait for the queue runner" in each for each in told)
    assert not any("the queue runner" in each for each in messages(run_dir, "worker-1"))


ALONE = """\
import tensorflow as tf
server = tf.train.Server.create_local_server()
step = tf.Variable(0, name='global_step', trainable=False)
w = tf.Variable(1.0)
optimizer = tf.train.SyncReplicasOptimizer(
    tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate={0}, total_num_replicas={1})
train = optimizer.minimize(w * w, global_step=step)
tokens = optimizer.get_init_tokens_op(0)
sv = tf.train.Supervisor(init_op=tf.global_variables_initializer(), global_step=step,
                         local_init_op=optimizer.chief_init_op,
                         ready_for_local_init_op=optimizer.ready_for_local_init_op)
ts = sv.prepare_or_wait_for_session(server.target)
sv.start_queue_runners(ts, [optimizer.get_chief_queue_runner()])
ts.run(tokens)
for _ in range(3):
    ts.run(train)
print('trained to', ts.run(step))
with tf.Graph().as_default(), tf.Session(server.target) as other:
    for each in range({1}):
        name = 'sync_token_q_%d' % each
        tokens = tf.FIFOQueue(-1, tf.int32, shapes=[()], shared_name=name)
        print(name, 'holds', other.run(tokens.size()))
sv.stop()
print('stopped')
"""
HURRIED = """\
import runpy, sys
from lab.task.tf1 import known_bugs
known_bugs.PATIENCE_S, known_bugs.GIVE_UP_S = 2.0, 5.0
sys.argv[0] = "heritage"
runpy.run_module("lab.task.tf1", run_name="__main__", alter_sys=True)
"""


MONITORED = """\
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


def alone(folder: Path, text: str, *switches: str, gone: str = "") -> Done:
    """One of these workers; another task has ended."""
    program, status = folder / "alone.py", folder / "status"
    program.write_text(text)
    status.mkdir()
    if gone:
        (status / f"{gone}.json").write_text(TaskStatus(gone, State.SUCCEEDED).to_json())
    own = {"LAB_TASK": "worker-0", "LAB_RUN_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    env = {**os.environ, **own, "TF_CPP_MIN_LOG_LEVEL": "2"}
    return python("-c", HURRIED, *switches, str(program), env=env)


def test_a_queue_runner_that_never_stops_is_recognized(tmp_path: Path) -> None:
    done = alone(tmp_path, ALONE.format(1, 1))
    assert "trained to 3" in done.stdout
    assert "stopped" not in done.stdout
    assert "known fault: this program waits for the queue runner" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("KnownFaultError: this program waits for the q")
    assert done.returncode == 1


def test_fixed_each_round_gives_each_worker_one_token(tmp_path: Path) -> None:
    done = alone(tmp_path, ALONE.format(1, 2), "--mend")
    output = done.stdout.splitlines()
    assert (done.returncode, output[-1]) == (0, "stopped"), done.stderr
    assert "trained to 3" in output
    # This one has taken its own three; those of the other wait in the queue.
    assert [each for each in output if "holds" in each] == [
        "sync_token_q_0 holds 0",
        "sync_token_q_1 holds 3",
    ]


def test_a_worker_whose_round_cannot_be_completed_is_recognized(tmp_path: Path) -> None:
    done = alone(tmp_path, ALONE.format(2, 2), gone="worker-1")
    assert "known fault: this worker waits for worker-1" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(
        "KnownFaultError: this worker waits for worker-1, "
    )
    assert done.returncode == 1


def test_the_queue_runner_of_a_monitored_session_is_no_fault(tmp_path: Path) -> None:
    done = alone(tmp_path, MONITORED)
    assert done.returncode == 0, done.stderr
    lines = [each for each in done.stdout.splitlines() if each.startswith(("weight", "ended"))]
    assert lines == [*["weight 2.5"] * 3, "ended"]
    assert "Exception in thread" not in done.stderr


TOKENS = """
import tensorflow.compat.v1 as tf
from lab.task.tf1.synchronous import _Tokens

tf.disable_eager_execution()
tokens = _Tokens(0, 3, 1, tf.int64, shapes=(), name="tokens", shared_name="tokens")
fill = tokens._queues[1].enqueue(7)
give = tokens.enqueue_many((tf.constant([1, 1, 1], tf.int64),))
with tf.Session() as session:
    session.run(fill)
    try:
        session.run(give, options=tf.RunOptions(timeout_in_ms=1000))
    except tf.errors.DeadlineExceededError:
        print(*session.run([queue.size() for queue in tokens._queues]))
"""


def test_the_chief_gets_its_token_after_all_others() -> None:
    """While worker-1 cannot take a token, worker-2 has one, and the chief has none."""
    done = python("-c", TOKENS, cwd=ROOT, check=True)
    assert done.stdout.split() == ["0", "1", "1"]
