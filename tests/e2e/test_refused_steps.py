"""Steps that a real server refuses by mistake run again; numbered requests are never refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.tf_versions import TF1
from tests.support.commands import ROOT, environ
from tests.support.conditions import lacking

pytestmark = pytest.mark.tensorflow

PATIENCE_S = 300.0


def run(folder: Path, *arguments: str, python: Path | None = None) -> tuple[int, list[str], str]:
    """The exit code, the lines of the output and the standard error of a Python process."""
    done = subprocess.run(
        [str(python or sys.executable), *arguments],
        cwd=folder,
        env=environ(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


LISTING = """\
import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session as lowest

real, count = lowest.TF_SessionRun_wrapper, 0
refused = {2, 3, 5, 7, 9}


def refusing(*step):
    global count
    count += 1
    if count in refused:
        raise tf.errors.AbortedError(
            None, None, "The same RunGraph (Worker) request was received twice. goo.gle/debugstr")
    return real(*step)


lowest.TF_SessionRun_wrapper = refusing
server = tf.train.Server.create_local_server()
steps = tf.train.get_or_create_global_step()
add = tf.assign_add(steps, 1)
with tf.Session(server.target) as session:
    session.run(steps.initializer)  # 1
    session.run(add)                # 2, 3, 4
    session.make_callable(add)()    # 5, 6
with tf.train.MonitoredTrainingSession(server.target) as session:
    refused = {count + 2}
    print("reached", session.run(add), session.run(add), flush=True)
with tf.Session(server.target) as session:
    refused = range(count + 1, count + 100)
    session.run(add)
"""


def test_a_listing_repeats_refused_steps_and_gives_up_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LISTING)
    code, output, errors = run(tmp_path, "-m", "lab.task.tf1", "program.py")
    assert (code, "reached 1 2" in output) == (1, True), errors[-3000:]
    last = errors.splitlines()[-1]
    assert last.startswith("KnownFaultError: TensorFlow refused a step by mistake, ")
    assert "5 times in a row" in last


REPEATING = """\
import ctypes, json, os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow.compat.v1 as tf
from lab.task.tf1.request_ids import DEVICE, call_instead, number_requests

tf.disable_eager_execution()
servers = [tf.train.Server({"ps": ["localhost:0"]}, "ps", 0)]
address = servers[0].target.removeprefix("grpc://")
cluster = tf.train.ClusterSpec({"ps": [address], "worker": ["localhost:0"]})
servers.append(tf.train.Server(cluster, "worker", 0))
with tf.device("/job:ps/task:0"):
    count = tf.get_variable("count", initializer=0, use_resource=False)
    add = tf.assign_add(count, 1).op


def refused(steps):
    found = 0
    for _ in range(steps):
        try:
            session.run(add)
        except tf.errors.AbortedError as error:
            assert "The same RunGraph (Worker) request was received twice" in str(error)
            found += 1
    return found


with tf.Session(servers[1].target) as session:
    session.run(count.initializer)
    same = [call_instead(DEVICE, ctypes.CDLL(None).getpid), refused(200)]
    numbered = [number_requests(1, 0), refused(2000)]
    made = int(session.run(count))
print(json.dumps({"same": same, "numbered": numbered, "made": made}))
"""


@pytest.mark.parametrize("tensorflow", ["2.21", TF1.tensorflow])
def test_request_ids_follow_from_the_seeds_of_threads(tmp_path: Path, tensorflow: str) -> None:
    """With one seed for all threads nearly every step is refused, with numbered seeds none."""
    python: Path | None = Path(sys.executable)
    if tensorflow == TF1.tensorflow and (python := TF1.python(ROOT)) is None:
        lacking(f"no {TF1.environment} here; `make {TF1.target}` makes it")
    code, output, errors = run(tmp_path, "-c", REPEATING, python=python)
    assert code == 0, errors[-3000:]
    found = json.loads(output[-1])
    is_done, refused = found["same"]
    assert is_done
    assert 100 < refused < 200
    assert found["numbered"] == [True, 0]
    assert found["made"] == 2200 - refused
