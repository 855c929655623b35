"""Steps of which a real task refuses its part: which run again, and which end the program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.tf_versions import TF1
from tests.support.commands import ROOT, environ
from tests.support.conditions import lacking

pytestmark = pytest.mark.tensorflow

PATIENCE_S = 1200.0
UNKNOWN = "the unknown task of"

RUN_AGAIN = {
    "one_ps",
    "two_ps",
    "two_ps_resource_variables",
    "two_ps_adam",
    "a_summary",
    "an_evaluation",
    "averages_behind_the_update",
    "one_task_alone",
    "behind_a_shape",
    "behind_a_product_with_zero",
    "behind_a_control_input",
    "a_synchronous_worker",
    "a_synchronous_update",
    "a_loop",
    "a_checkpoint",
}
"""Steps that have changed nothing when a task refuses its part."""

END = {
    "averages_without_a_wait": "worker-0",
    "initialization_on_two_ps": "ps-0",
    "two_counters": "ps-0",
    "a_result_for_the_session": "worker-0",
    "behind_an_identity": "worker-1",
    "behind_a_constant": "worker-1",
    "without_a_device": f"{UNKNOWN} Const",
    "a_fed_result": "worker-0",
    "a_merge": "ps-1",
    "a_queue": "ps-1",
    "in_graph": "worker-1",
    "one_ps_from_its_own_server": "worker-0",
    "a_python_function": "worker-0",
    "a_graph_function": None,
}
"""Steps that may have changed something, and the task that a change does not wait for."""


@pytest.fixture(scope="module", params=["2.21", TF1.tensorflow])
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The output of `tests/support/refusing.py`, with each TensorFlow."""
    python: Path | None = Path(sys.executable)
    if request.param == TF1.tensorflow and (python := TF1.python(ROOT)) is None:
        lacking(f"no {TF1.environment} here; `make {TF1.target}` makes it")
    folder = tmp_path_factory.mktemp("refusing")
    done = subprocess.run(
        [str(python), "-m", "tests.support.refusing"],
        cwd=folder,
        env=environ(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_step_is_expected_to_run_again_or_to_end(observed: Any) -> None:
    assert observed["steps"].keys() == RUN_AGAIN | END.keys()


@pytest.mark.parametrize("name", sorted(RUN_AGAIN))
def test_a_step_that_has_changed_nothing_runs_exactly_once_more(observed: Any, name: str) -> None:
    step = dict(observed["steps"][name])
    whole = step.pop("")
    assert whole["doubt"] is None
    # In the parts that TensorFlow made of it, every effect waits for all other tasks.
    assert not whole["unsafe"]
    assert set(step) == set(whole["parts"]) - {whole["master"]}
    for refused in step.values():
        assert refused["told"] == 1
        assert not refused["ended"]
        assert refused["state"] == whole["state"]


@pytest.mark.parametrize("name", sorted(END))
def test_a_step_that_may_have_changed_something_ends_the_program(observed: Any, name: str) -> None:
    step = dict(observed["steps"][name])
    whole = step.pop("")
    other = END[name]
    reason = "runs a function" if other is None else f"it does not wait for {other}"
    assert reason in whole["doubt"]
    for refused in step.values():
        assert refused["told"] == 0
        assert refused["ended"].startswith("TensorFlow refused a step by mistake, and ")
        assert reason in refused["ended"]


def test_a_step_that_ends_the_program_would_have_counted_wrong(observed: Any) -> None:
    """One server has counted, and the other one has refused: to run the step again is wrong."""
    refused = observed["steps"]["two_counters"]["ps-1"]
    assert refused["state"] == "[2, 1]"
    assert observed["steps"]["two_counters"][""]["unsafe"]


def test_a_refused_tensor_leaves_half_an_update_although_all_parts_have_begun(
    observed: Any,
) -> None:
    assert observed["half"]["state"] == [1, 0]
    assert (
        "The same RecvTensor (GrpcWorker) request was received twice" in observed["half"]["error"]
    )


PROGRAM = """\
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
data = tf.data.Dataset.range(3).map(lambda each: each)
iterator = tf.data.make_initializable_iterator(data)
with tf.Session(server.target) as session:
    session.run(steps.initializer)  # 1
    session.run(add)                # 2, 3, 4
    session.make_callable(add)()    # 5, 6
with tf.train.MonitoredTrainingSession(server.target) as session:
    refused = {count + 2}
    print("reached", session.run(add), session.run(add), flush=True)
with tf.Session(server.target) as session:
    refused = {count + 1} if TIMES else set()
    session.run(iterator.initializer)
    refused = range(count + 1, count + 100)
    session.run(add)
"""


@pytest.mark.parametrize(
    ("refuses_function", "ends_with"),
    [
        ("True", "and MapDataset on localhost-0 runs a function, and may have run; "),
        ("False", "5 times in a row; start the run again; docs/listings.md lists "),
    ],
)
def test_all_sessions_of_a_listing_pass_and_the_last_line_has_the_reason(
    tmp_path: Path, refuses_function: str, ends_with: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("TIMES", refuses_function))
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.tf1", str(program)],
        cwd=tmp_path,
        env=environ(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "reached 1 2" in done.stdout.splitlines(), done.stderr[-3000:]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("KnownFaultError: TensorFlow refused a step by mistake, ")
    assert ends_with in last


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
    done = subprocess.run(
        [str(python), "-c", REPEATING],
        cwd=tmp_path,
        env=environ(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    is_done, refused = found["same"]
    assert is_done
    assert 100 < refused < 200
    assert found["numbered"] == [True, 0]
    assert found["made"] == 2200 - refused
