"""What the lessons say of TensorFlow: functions, and the servers of a cluster.

One process imports TensorFlow and tries everything.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.support.commands import python

pytestmark = pytest.mark.tensorflow

TRY: Final = r"""
import json, os, socket, threading

import tensorflow as tf
import tensorflow.compat.v1 as v1

found = {}

one, other = tf.Variable(0.0), tf.Variable(0.0)


@tf.function
def changes():
    one.assign(1.0)
    before = one.read_value()
    other.assign(5.0)
    one.assign(2.0)
    return before, one.read_value()


found["read"] = [float(each) for each in changes()]
graph = changes.get_concrete_function().graph


def resource(operation):
    return operation.inputs[0].name


def waits_for(operation):
    # Every operation that must end before this one.
    seen, left = set(), [operation]
    while left:
        at = left.pop()
        befores = [*at.control_inputs, *(each.op for each in at.inputs)]
        left += [each for each in befores if each not in seen]
        seen.update(befores)
    return seen


assigns = [each for each in graph.get_operations() if each.type == "AssignVariableOp"]
of_one = [each for each in assigns if resource(each) == resource(assigns[0])]
(of_other,) = [each for each in assigns if each not in of_one]
found["same resource is ordered"] = of_one[0] in waits_for(of_one[1])
found["other resource is ordered"] = any(
    late in waits_for(early) for early in of_one for late in [of_other]
) or any(each in waits_for(of_other) for each in of_one)

traces = []


@tf.function
def traced(tensor, value):
    traces.append((tensor.shape.as_list(), value))
    return tensor + value


for tensor, value in [
    (tf.zeros([2]), 1.0), (tf.ones([2]), 1.0), (tf.zeros([3]), 1.0), (tf.zeros([2]), 2.0),
]:
    traced(tensor, value)
found["traces"] = traces

with tf.Graph().as_default():
    with v1.device(v1.train.replica_device_setter(ps_tasks=2)):
        whole = v1.get_variable("whole", [784, 500])
        parts = v1.get_variable("parts", [784, 500], partitioner=v1.fixed_size_partitioner(2))
found["whole"] = whole.device
found["parts"] = sorted((each.device, each.shape.as_list()) for each in parts)


def build():
    variable = v1.get_variable("kept", initializer=0)
    queue = v1.FIFOQueue(2, tf.int32, shapes=[[]], shared_name="queue")
    return variable, queue


def write(target):
    with tf.Graph().as_default(), v1.Session(target) as session:
        variable, queue = build()
        session.run([variable.assign(7).op, queue.enqueue(3)])


def read(target):
    with tf.Graph().as_default(), v1.Session(target) as session:
        variable, queue = build()
        try:
            return [int(session.run(variable.read_value())), int(session.run(queue.size()))]
        except tf.errors.FailedPreconditionError:
            return "not initialized"


target = v1.train.Server.create_local_server().target
for name, place in (("server", target), ("process", "")):
    write(place)
    found[name] = read(place)


# ---- Which tasks a session waits for: of three, two are there.
with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two, \
        socket.create_server(("127.0.0.1", 0)) as absent:
    ports = [each.getsockname()[1] for each in (one, two, absent)]
cluster = tf.train.ClusterSpec({"worker": [f"127.0.0.1:{port}" for port in ports]})
servers = [tf.distribute.Server(cluster, "worker", index) for index in range(2)]


def add(filters):
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:1"):
            total = tf.constant(1) + 2
        session = v1.Session(servers[0].target, config=v1.ConfigProto(device_filters=filters))
        return int(session.run(total))


found["filters"] = add(["/job:worker/task:0", "/job:worker/task:1"])
client = threading.Thread(target=lambda: found.update({"no filters": add([])}), daemon=True)
client.start()
client.join(12)  # after 10 s the server logs for which task it waits
found["answers without the third task"] = "no filters" in found
servers.append(tf.distribute.Server(cluster, "worker", 2))
client.join(60)
print(json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What the process reports, and the tasks for which a session waited."""
    result = python("-c", TRY)
    assert result.returncode == 0, result.stderr[-2000:]
    waited = re.findall(r"CreateSession still waiting for response .*/task:(\d)", result.stderr)
    return {**json.loads(result.stdout.splitlines()[-1]), "waited for": {*waited}}


def test_a_function_orders_the_operations_on_one_resource_only(found: dict[str, Any]) -> None:
    assert found["read"] == [1, 2]
    assert found["same resource is ordered"] is True
    assert found["other resource is ordered"] is False


def test_a_function_is_traced_for_each_shape_and_each_python_value(found: dict[str, Any]) -> None:
    """The second call has the shape and the Python value of the first, and other numbers."""
    assert found["traces"] == [[[2], 1.0], [[3], 1.0], [[2], 2.0]]


def test_a_partitioner_divides_a_variable_among_servers(found: dict[str, Any]) -> None:
    assert found["whole"] == "/job:ps/task:0"
    parts = [[f"/job:ps/task:{server}", [392, 500]] for server in (0, 1)]
    assert found["parts"] == parts


def test_a_servers_variables_and_queues_outlive_the_session(found: dict[str, Any]) -> None:
    assert found["server"] == [7, 1]
    assert found["process"] == "not initialized"  # without a server they end with the session


def test_a_session_waits_for_every_task_that_its_filters_do_not_hide(found: dict[str, Any]) -> None:
    assert found["filters"] == 3
    assert found["answers without the third task"] is False
    assert found["waited for"] == {"2"}
    assert found["no filters"] == 3  # when the third task is there
