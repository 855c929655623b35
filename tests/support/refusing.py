"""Steps on a real cluster, some of which a task refuses by mistake, and their results.

    python -m tests.support.refusing

The servers of all tasks are in this process. They reach each other by proxies that can refuse a
request as TensorFlow does, before it arrives: the other tasks begin with their parts of that step.
The result is a line of JSON. TensorFlow 2.21 and 2.15 both run it.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import grpc
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.client.session import BaseSession

from lab.task.tf1 import retry
from lab.task.tf1.synchronous import SyncReplicasOptimizer

JOBS: Final = {"ps": 2, "worker": 2}
STEPS: Final = 4
REFUSED: Final = 1
"""The step, counted from 0, of which a task refuses its part."""

UNLIMITED: Final = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
SERVICE: Final = "/tensorflow.WorkerService/"
KINDS: Final = {"RunGraph": "RunGraph (Worker)", "RecvTensor": "RecvTensor (GrpcWorker)"}
PATIENCE_S: Final = 120.0
ROUND_TRIP_S: Final = 0.3
"""A refusal takes so long. TensorFlow never ends a step if a refusal arrives before the session's
own server has begun with its part, and nothing outside of TensorFlow shows when it has."""


@dataclass
class Refusal:
    """The refusal of one request.

    Attributes:
        text: Its message.
        about: Bytes that the request contains.
        after: The event that it waits for.
    """

    text: str
    about: bytes
    after: threading.Event


class Proxy(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Passes every request on to a server, except those that it must refuse.

    Attributes:
        port: Its port.
        refuses: Method to its next refusal.
    """

    def __init__(self) -> None:
        self._channel: Any = None
        self._server = grpc.server(ThreadPoolExecutor(64), (self,), options=UNLIMITED)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.refuses: dict[str, Refusal] = {}
        self._server.start()

    def stand_before(self, port: int) -> None:
        """Pass requests on to the server on this port, from now on."""
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", UNLIMITED)

    def service(self, details: Any) -> Any:
        """Handle any method, by its name."""
        method = str(details.method)
        send = self._channel.unary_unary(method)

        def handle(request: bytes, context: Any) -> Any:
            refusal = self.refuses.get(method)
            if refusal and refusal.about in request:
                del self.refuses[method]
                refusal.after.wait(PATIENCE_S)
                time.sleep(ROUND_TRIP_S)
                context.abort(grpc.StatusCode.ABORTED, refusal.text)
            answer = send.future(request)
            # A call that is cancelled would otherwise wait here without end, and hold a thread.
            context.add_callback(answer.cancel)
            try:
                return answer.result()
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            except grpc.FutureCancelledError:
                context.abort(grpc.StatusCode.CANCELLED, "cancelled by the caller")

        return grpc.unary_unary_rpc_method_handler(handle)


class Cluster:
    """Two parameter servers and two workers, each behind a proxy."""

    def __init__(self) -> None:
        tasks = [(job, index) for job, count in JOBS.items() for index in range(count)]
        self.proxies = {task: Proxy() for task in tasks}
        self._servers = {task: self._served(*task) for task in tasks}
        self.targets = {task: server.target for task, server in self._servers.items()}
        self.spec = tf.train.ClusterSpec(self._addresses())

    def _addresses(self) -> dict[str, list[str]]:
        return {
            job: [f"127.0.0.1:{self.proxies[job, index].port}" for index in range(count)]
            for job, count in JOBS.items()
        }

    def _served(self, job: str, index: int) -> Any:
        while True:
            port = _free_port()
            addresses = self._addresses()
            addresses[job][index] = f"127.0.0.1:{port}"
            try:
                server = tf.train.Server(tf.train.ClusterSpec(addresses), job, index)
            except tf.errors.UnknownError:
                continue  # Another process has taken the port meanwhile.
            self.proxies[job, index].stand_before(port)
            return server

    def refuse(
        self, task: tuple[str, int], method: str, about: bytes = b"", after: Any = None
    ) -> None:
        """Let a task refuse its next request of a method, as TensorFlow does."""
        text = f"The same {KINDS[method]} request was received twice. goo.gle/debugstr ..."
        if after is None:
            (after := threading.Event()).set()
        self.proxies[task].refuses[SERVICE + method] = Refusal(text, about, after)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@dataclass
class Case:
    """A step, and its effect.

    Attributes:
        fetches: The fetches of `Session.run`.
        state: The values to read after all steps.
        feed: The feed of the step.
        before: Run once before the steps, after the initialization.
        between: Run before each step, with the feed of each.
        master: The task whose server the session uses.
    """

    fetches: Any
    state: Sequence[Any]
    feed: Mapping[Any, Any] = field(default_factory=dict)
    before: Sequence[Any] = ()
    between: Sequence[tuple[Any, Mapping[Any, Any]]] = ()
    master: tuple[str, int] = ("worker", 0)


PS = ("/job:ps/task:0", "/job:ps/task:1")
WORKER = ("/job:worker/task:0", "/job:worker/task:1")
CASES: dict[str, Callable[[Cluster], Case]] = {}
BATCH: Final = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
LABELS: Final = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1]]


def case(make: Callable[[Cluster], Case]) -> Callable[[Cluster], Case]:
    """Register a case by the name of its function."""
    CASES[make.__name__] = make
    return make


def counter(device: str) -> Any:
    """A variable on a device."""
    with tf.device(device):
        return tf.Variable(0)


def softmax(cluster: Cluster, servers: int, **variable: Any) -> tuple[Any, ...]:
    """The book's graph; returns placeholders, variables, loss and global step."""
    spec = tf.train.ClusterSpec(
        {"ps": cluster.spec.job_tasks("ps")[:servers], "worker": cluster.spec.job_tasks("worker")}
    )
    with tf.device(tf.train.replica_device_setter(cluster=spec, worker_device=WORKER[0])):
        x = tf.placeholder(tf.float32, [None, 7])
        y = tf.placeholder(tf.float32, [None, 3])
        step = tf.Variable(0, name="global_step", trainable=False, **variable)
        w = tf.Variable(tf.zeros([7, 3]), **variable)
        b = tf.Variable(tf.zeros([3]), **variable)
        logits = tf.matmul(x, w) + b
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(logits=logits, labels=y))
    return x, y, w, b, step, loss


def trained(cluster: Cluster, servers: int, optimizer: Any, **variable: Any) -> Case:
    """The book's step with an optimizer."""
    x, y, w, b, step, loss = softmax(cluster, servers, **variable)
    with tf.device(WORKER[0]):
        update = optimizer.minimize(loss, global_step=step)
    return Case([update, loss, step], [step, w, b], {x: BATCH, y: LABELS})


@case
def one_ps(cluster: Cluster) -> Case:
    return trained(cluster, 1, tf.train.GradientDescentOptimizer(0.1))


@case
def two_ps(cluster: Cluster) -> Case:
    return trained(cluster, 2, tf.train.GradientDescentOptimizer(0.1))


@case
def two_ps_resource_variables(cluster: Cluster) -> Case:
    return trained(cluster, 2, tf.train.GradientDescentOptimizer(0.1), use_resource=True)


@case
def two_ps_adam(cluster: Cluster) -> Case:
    return trained(cluster, 2, tf.train.AdamOptimizer(0.1))


@case
def a_summary(cluster: Cluster) -> Case:
    x, y, w, b, step, loss = softmax(cluster, 2)
    with tf.device(WORKER[0]):
        update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        tf.summary.scalar("loss", loss)
        tf.summary.histogram("w", w)
        merged = tf.summary.merge_all()
    return Case([merged, update], [step, w, b], {x: BATCH, y: LABELS})


@case
def an_evaluation(cluster: Cluster) -> Case:
    x, y, w, b, step, loss = softmax(cluster, 2)
    with tf.device(WORKER[1]):
        drawn = tf.random_normal([])
    return Case([loss, drawn], [step, w, b], {x: BATCH, y: LABELS})


@case
def averages_without_a_wait(cluster: Cluster) -> Case:
    x, y, w, b, step, loss = softmax(cluster, 1)
    with tf.device(WORKER[0]):
        update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        averages = tf.train.ExponentialMovingAverage(0.9).apply([w, b])
        both = tf.group(update, averages)
    return Case([both], [step, w, b], {x: BATCH, y: LABELS})


@case
def averages_behind_the_update(cluster: Cluster) -> Case:
    x, y, w, b, step, loss = softmax(cluster, 2)
    with tf.device(WORKER[0]):
        update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        with tf.control_dependencies([update]):
            averages = tf.train.ExponentialMovingAverage(0.9, step).apply([w, b])
    return Case([averages, loss], [step, w, b], {x: BATCH, y: LABELS})


@case
def initialization_on_two_ps(cluster: Cluster) -> Case:
    _, _, w, b, step, _ = softmax(cluster, 2)
    return Case(tf.global_variables_initializer(), [step, w, b])


@case
def two_counters(_: Cluster) -> Case:
    counters = [counter(device) for device in PS]
    return Case([tf.assign_add(each, 1).op for each in counters], counters)


@case
def one_task_alone(_: Cluster) -> Case:
    with tf.device(PS[1]):
        mine = tf.Variable(0)
        return Case(tf.assign_add(mine, 1).op, [mine])


@case
def a_result_for_the_session(_: Cluster) -> Case:
    """The session's own server has a part, too: it returns the result."""
    mine = counter(PS[1])
    with tf.device(PS[1]):
        return Case(tf.assign_add(mine, 1), [mine])


@case
def behind_an_identity(_: Cluster) -> Case:
    """TensorFlow removes the identity, so nothing waits for the worker."""
    mine = counter(PS[0])
    with tf.device(WORKER[1]):
        hop = tf.identity(mine)
        other = tf.random_uniform([])
    with tf.device(PS[0]):
        return Case([tf.assign(mine, hop + 1).op, other.op], [mine])


@case
def behind_a_constant(_: Cluster) -> Case:
    """TensorFlow removes control inputs that are constants, so nothing waits for the worker."""
    mine = counter(PS[0])
    with tf.device(WORKER[1]):
        ready = tf.constant(1)
        other = tf.random_uniform([])
    with tf.device(PS[0]), tf.control_dependencies([ready]):
        return Case([tf.assign_add(mine, 1).op, other.op], [mine])


@case
def behind_a_shape(_: Cluster) -> Case:
    """TensorFlow computes the shape beforehand, and still waits for the variable."""
    mine, theirs = counter(PS[0]), counter(PS[1])
    with tf.device(PS[0]):
        size = tf.size(theirs)
        return Case(tf.assign_add(mine, size).op, [mine])


@case
def behind_a_product_with_zero(_: Cluster) -> Case:
    mine, theirs = counter(PS[0]), counter(PS[1])
    with tf.device(PS[0]):
        nothing = theirs * 0
        return Case(tf.assign_add(mine, nothing + 1).op, [mine])


@case
def behind_a_control_input(_: Cluster) -> Case:
    mine, theirs = counter(PS[0]), counter(PS[1])
    with tf.device(PS[1]), tf.control_dependencies([theirs]):
        present = tf.no_op()
    with tf.device(PS[0]), tf.control_dependencies([present]):
        return Case(tf.assign_add(mine, 1).op, [mine])


@case
def without_a_device(_: Cluster) -> Case:
    mine = counter(PS[0])
    return Case([tf.assign_add(mine, tf.constant(1)).op, tf.constant(2) + 1], [mine])


@case
def a_fed_result(_: Cluster) -> Case:
    """The fed value is the result of an operation: nothing before it runs."""
    mine, theirs = counter(PS[0]), counter(PS[1])
    with tf.device(WORKER[0]):
        more = tf.add(theirs, 1)
    with tf.device(PS[0]):
        return Case(tf.assign_add(mine, more).op, [mine], {more: 1})


@case
def a_merge(_: Cluster) -> Case:
    """Either branch is enough, and one waits for nothing on the other server."""
    mine, theirs = counter(PS[0]), counter(PS[1])
    with tf.device(PS[0]):
        chosen = tf.placeholder(tf.bool, [])
        more = tf.cond(chosen, lambda: tf.identity(theirs) + 1, lambda: tf.constant(1))
        return Case(tf.assign_add(mine, more).op, [mine], {chosen: False}, master=("ps", 0))


@case
def a_loop(_: Cluster) -> Case:
    mine, theirs = counter(PS[0]), counter(PS[1])
    with tf.device(PS[1]):
        more = tf.while_loop(lambda i: i < theirs + 3, lambda i: i + 1, [tf.constant(0)])
    with tf.device(PS[0]):
        return Case(tf.assign_add(mine, more).op, [mine])


@case
def a_queue(_: Cluster) -> Case:
    mine = counter(PS[1])
    with tf.device(PS[0]):
        queue = tf.FIFOQueue(10, [tf.int32], [[]])
        element = queue.dequeue()
        fill = queue.enqueue(1)
        size = queue.size()
    with tf.device(PS[1]):
        return Case(tf.assign_add(mine, element).op, [mine, size], between=[(fill, {})])


@case
def in_graph(cluster: Cluster) -> Case:
    """The second worker holds no state, and computes half of the gradient."""
    x, y, w, b, step, loss = softmax(cluster, 1)
    with tf.device(WORKER[1]):
        more = tf.reduce_mean(
            tf.nn.softmax_cross_entropy_with_logits_v2(logits=tf.matmul(-x, w) + b, labels=y)
        )
    with tf.device(WORKER[0]):
        update = tf.train.GradientDescentOptimizer(0.1).minimize(loss + more, global_step=step)
    return Case(update, [step, w, b], {x: BATCH, y: LABELS})


@case
def one_ps_from_its_own_server(cluster: Cluster) -> Case:
    """The fed value arrives at the parameter server, so the worker holds no state."""
    this = trained(cluster, 1, tf.train.GradientDescentOptimizer(0.1))
    this.master = ("ps", 0)
    return this


@case
def a_python_function(_: Cluster) -> Case:
    mine = counter(PS[0])
    with tf.device(WORKER[0]):
        one = tf.py_func(lambda: np.int32(1), [], tf.int32)
    with tf.device(PS[0]):
        return Case(tf.assign_add(mine, one).op, [mine])


@case
def a_graph_function(_: Cluster) -> Case:
    mine = counter(PS[0])
    with tf.device(PS[0]):
        data = tf.data.Dataset.range(3).map(lambda each: each + 1)
        iterator = tf.data.make_initializable_iterator(data)
    with tf.device(PS[0]):
        return Case([iterator.initializer, tf.assign_add(mine, 1).op], [mine])


@case
def a_checkpoint(cluster: Cluster) -> Case:
    _, _, w, b, step, _ = softmax(cluster, 2)
    with tf.device(WORKER[0]):
        saver = tf.train.Saver().as_saver_def()
    path = os.path.join(tempfile.mkdtemp(), "saved")  # noqa: PTH118
    return Case(saver.save_tensor_name, [step, w, b], {saver.filename_tensor_name: path})


def synchronous(cluster: Cluster) -> tuple[Any, ...]:
    x, y, w, b, step, loss = softmax(cluster, 1)
    with tf.device(tf.train.replica_device_setter(cluster=cluster.spec, worker_device=WORKER[0])):
        optimizer = SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=1, total_num_replicas=1
        )
        update = optimizer.minimize(loss, global_step=step)
        runner = optimizer.get_chief_queue_runner()
    return optimizer, runner, update, {x: BATCH, y: LABELS}, [step, w, b]


@case
def a_synchronous_worker(cluster: Cluster) -> Case:
    """It hands in a gradient and takes a token."""
    optimizer, runner, update, feed, _ = synchronous(cluster)
    handed_in = [each.num_accumulated() for each, _ in optimizer._accumulator_list]
    tokens = runner.queue.enqueue_many([[0] * (STEPS + 1)])
    state = [*handed_in, runner.queue.size()]
    return Case(update, state, feed, before=[optimizer.chief_init_op, tokens])


@case
def a_synchronous_update(cluster: Cluster) -> Case:
    """It takes the gradients, applies them, and hands out a token."""
    optimizer, runner, _, feed, state = synchronous(cluster)
    (update,) = runner.enqueue_ops
    operations = tf.get_default_graph().get_operations()
    hand_in = [each for each in operations if each.type.endswith("AccumulatorApplyGradient")]
    between = [(optimizer.chief_init_op, {}), (hand_in, feed)]
    return Case(update, [*state, runner.queue.size()], between=between)


class GivenUpError(Exception):
    """The program would have ended here."""


TOLD: list[str] = []
NUMBERS: Final = itertools.count()


def give_up(line: str) -> None:
    raise GivenUpError(line)


def observed(
    cluster: Cluster, make: Callable[[Cluster], Case], refuses: tuple[str, int] | None = None
) -> dict[str, Any]:
    """Make some steps; one task may refuse its part of one of them.

    Returns:
        `state` after all steps, as text; `told`, how often a step ran again; `ended`, the line of a
        program that was ended. Besides, of the first step: `doubt`, what the analysis says;
        `parts`, the tasks that TensorFlow gave a part; `unsafe`, an effect that does not wait for
        one of these, in the parts themselves; `master`, the task that the session talks to.
    """
    TOLD.clear()
    found: dict[str, Any] = {"ended": ""}
    # Servers keep the variables of earlier graphs: these have names of their own.
    with tf.Graph().as_default() as graph, graph.container(f"case{next(NUMBERS)}"):
        this = make(cluster)
        initialize = tf.global_variables_initializer()
        with tf.Session(cluster.targets[this.master]) as session:
            session.run(initialize)
            for each in this.before:
                session.run(each)
            for number in range(STEPS):
                for fetches, feed in this.between:
                    session.run(fetches, feed)
                if number == 0:
                    found |= looked_at(session, graph, this)
                    continue
                if number == REFUSED and refuses is not None:
                    cluster.refuse(refuses, "RunGraph")
                try:
                    session.run(this.fetches, dict(this.feed))
                except GivenUpError as error:
                    found["ended"] = str(error)
                    break
            state = session.run(list(this.state))
    values = repr([np.asarray(each).tolist() for each in state])
    return {**found, "told": len(TOLD), "state": values, "master": _label(this.master)}


def _label(task: tuple[Any, Any]) -> str:
    return f"{task[0]}-{task[1]}"


def looked_at(session: Any, graph: Any, this: Case) -> dict[str, Any]:
    """Make a step, and compare the result of the analysis with the parts that ran."""
    doubts: list[str | None] = []
    real = BaseSession._call_tf_sessionrun

    def look(session: Any, *step: Any) -> Any:
        doubts.append(retry._doubt(session, *step))
        return real(session, *step)

    metadata = tf.RunMetadata()
    with patch.object(BaseSession, "_call_tf_sessionrun", look):
        options = tf.RunOptions(output_partition_graphs=True)
        session.run(this.fetches, dict(this.feed), options, metadata)
    parts, unsafe = unstopped(metadata.partition_graphs, graph)
    return {"doubt": doubts[0], "parts": sorted(parts), "unsafe": unsafe}


def unstopped(graphs: Any, graph: Any) -> tuple[set[str], str]:
    """The tasks with a part of a step, and an effect that does not wait for each of them."""
    nodes = {node.name: node for part in graphs for node in part.node}
    sends = {
        (node.attr["tensor_name"].s, node.attr["send_device"].s, node.attr["recv_device"].s): name
        for name, node in nodes.items()
        if node.op.endswith("Send") and not node.attr["client_terminated"].b
    }
    above: dict[str, list[str]] = {}
    for name, node in nodes.items():
        inputs = [each.removeprefix("^").partition(":")[0] for each in node.input]
        if node.op in {"Merge", "RefMerge"}:
            inputs = [each[1:] for each in node.input if each.startswith("^")]
        if node.op.endswith("Recv") and not node.attr["client_terminated"].b:
            attr = node.attr
            inputs.append(
                sends[attr["tensor_name"].s, attr["send_device"].s, attr["recv_device"].s]
            )
        above[name] = inputs
    tasks = {name: _label(retry._DEVICE.findall(node.device)[0]) for name, node in nodes.items()}
    parts = set(tasks.values())
    for name in nodes:
        try:
            op = graph.get_operation_by_name(name)
        except KeyError:
            continue
        if not retry._has_effect(op):
            continue
        seen, left = set[str](), [name]
        while left:
            each = left.pop()
            if each not in seen:
                seen.add(each)
                left += above[each]
        if missing := parts - {tasks[each] for each in seen}:
            return parts, f"{name} does not wait for {sorted(missing)}"
    return parts, ""


def half_an_update(cluster: Cluster) -> dict[str, Any]:
    """Refuse a tensor of a step of which all parts have begun, when another one has arrived.

    Returns:
        `state`, of two variables that the step adds one to; `error`, what the step raised.
    """
    with tf.Graph().as_default():
        first, second = counter(PS[0]), counter(PS[0])
        ones = tf.placeholder(tf.int32, [2])
        with tf.device(WORKER[0]):
            early, late = ones[0] + 0 * ones[1], tf.add(ones[1], 0 * ones[0], name="late")
        everyone = []
        for device in (PS[0], WORKER[0]):
            with tf.device(device):
                everyone.append(tf.timestamp())
        with tf.device(PS[0]), tf.control_dependencies(everyone):
            update = [tf.assign_add(first, early), tf.assign_add(second, late)]
        with tf.Session(cluster.targets["worker", 0]) as session, ThreadPoolExecutor(1) as pool:
            session.run(tf.global_variables_initializer())
            has_arrived = threading.Event()
            cluster.refuse(("worker", 0), "RecvTensor", b"_late;", has_arrived)
            step = pool.submit(session.run, update, {ones: [1, 1]})
            while not session.run(first):
                time.sleep(0.01)
            has_arrived.set()
            error = step.exception(PATIENCE_S)
            return {
                "state": [int(each) for each in session.run([first, second])],
                "error": str(error),
            }


def main() -> None:
    """Look at the cases that are named, or all."""
    tf.disable_v2_behavior()
    cluster = Cluster()
    retry.retry_refused_steps(TOLD.append, give_up)
    found: dict[str, Any] = {}
    for name in sys.argv[1:] or CASES:
        found[name] = {"": (whole := observed(cluster, CASES[name]))}
        for task in cluster.proxies:
            # The session's own server gets its part without a request.
            if (label := _label(task)) in whole["parts"] and label != whole["master"]:
                found[name][label] = observed(cluster, CASES[name], task)
        print(name, whole["doubt"], whole["unsafe"], file=sys.stderr, flush=True)
    print(json.dumps({"steps": found, "half": half_an_update(cluster)}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        os._exit(1)  # The threads of servers and proxies would go on.
