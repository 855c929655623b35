"""Programs for TensorFlow 1, in `tests/tf1_programs`, on TensorFlow 2.21.

They use the parts of TensorFlow 1 that programs of 2017 and 2018 use. Those with a
cluster go through `lab run`, which recognizes them; the others are started by the same runner.
How right a result has to be comes from the oracle: the same model, in NumPy, several times over.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.task.sdk.data import Floats, Mnist, load_mnist
from tests import oracle
from tests.support.commands import ROOT, environ, lab

pytestmark = pytest.mark.tensorflow

PROGRAMS = ROOT / "tests" / "tf1_programs"
PATIENCE_S = 600.0
SAMPLE = 6

SINGLE: Mapping[str, tuple[str, ...]] = {
    "summaries_of_one_process": ("--logs=elsewhere", "--steps", "150"),
    "variable_placement": (),
    "record_files": (),
    "queue_and_threads": (),
    "convolution_restored": (),
    "towers_from_records": (),
}
"""The programs of a single process, with their arguments."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "tensorflow.examples.tutorials.mnist.input_data": ("read_data_sets",),
    "tensorflow.contrib.layers": (
        "l1_regularizer",
        "l2_regularizer",
        "xavier_initializer",
        "fully_connected",
    ),
    "tensorflow.contrib.learn.datasets": ("load_dataset",),
    "tensorflow.contrib.learn.datasets.mnist": ("load_mnist",),
    "tensorflow.contrib.learn.python.learn.datasets.mnist": ("read_data_sets",),
    "tensorflow.contrib.training": (
        "GreedyLoadBalancingStrategy",
        "RandomStrategy",
        "byte_size_load_fn",
    ),
    "tensorflow.app": ("run",),
    "tensorflow.app.flags": (
        "DEFINE_string",
        "DEFINE_integer",
    ),
    "tensorflow.flags": (
        "FLAGS",
        "DEFINE_float",
    ),
    "tensorflow.logging": (
        "set_verbosity",
        "warn",
    ),
    "tensorflow.gfile": (
        "Exists",
        "MakeDirs",
        "DeleteRecursively",
        "GFile",
    ),
    "tensorflow": (
        "placeholder",
        "Session",
        "ConfigProto",
        "variable_scope",
        "get_variable",
        "get_variable_scope",
        "device",
        "TFRecordReader",
        "parse_single_example",
        "decode_raw",
        "FIFOQueue",
        "set_random_seed",
    ),
    "tensorflow.nn": (
        "conv2d",
        "max_pool",
        "dropout",
        "softmax_cross_entropy_with_logits",
        "sparse_softmax_cross_entropy_with_logits",
    ),
    "tensorflow.train": (
        "ClusterSpec",
        "Server",
        "replica_device_setter",
        "Supervisor",
        "MonitoredTrainingSession",
        "SessionRunHook",
        "StopAtStepHook",
        "LoggingTensorHook",
        "CheckpointSaverHook",
        "Saver",
        "get_checkpoint_state",
        "latest_checkpoint",
        "ExponentialMovingAverage",
        "exponential_decay",
        "GradientDescentOptimizer",
        "AdamOptimizer",
        "get_or_create_global_step",
        "string_input_producer",
        "match_filenames_once",
        "shuffle_batch",
        "batch",
        "start_queue_runners",
        "Coordinator",
        "QueueRunner",
        "add_queue_runner",
    ),
    "tensorflow.summary": (
        "FileWriter",
        "scalar",
        "histogram",
        "merge_all",
    ),
    "tensorflow.python_io": ("TFRecordWriter",),
    "two_layers": ("digit_scores",),
}
"""Module to the names that programs of 2017 use. A program in `PROGRAMS` uses each of these."""

FLAGS = {"job_name", "task_index", "task_id", "ps_hosts", "worker_hosts"}
WORDS = {"ps_strategy", "reuse", "keep_prob", "one_hot"}
METHODS = {
    "join",
    "prepare_or_wait_for_session",
    "next_batch",
    "num_examples",
    "compute_gradients",
    "apply_gradients",
    "request_stop",
    "should_stop",
}

TWO_PS = """\
version: 1
name: tf1-two-ps
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1, tf2]}, worker: {on: [tf1, tf2]}}
"""

ALONE = """\
version: 1
name: tf1-alone
nodes: {tf1: {}}
jobs: {worker: {on: [tf1]}}
"""

EAGER = """\
import tensorflow as tf
import tensorflow.contrib.eager as tfe
"""

CONTRIB = """\
import json
import numpy as np
import tensorflow as tf
from tensorflow.contrib.layers import fully_connected
from tensorflow.examples.tutorials.mnist import input_data

tf.set_random_seed(5)
first, again = (
    input_data.read_data_sets("x").train.next_batch(50)[1].tolist() for _ in range(2))
w = tf.constant([[1., -2.], [3., 0.]])
xavier, normal = (tf.get_variable(
    name, [300, 200], initializer=tf.contrib.layers.xavier_initializer(uniform=uniform))
    for name, uniform in (("xavier", True), ("normal", False)))
x = tf.constant(np.linspace(-1, 1, 24).reshape(2, 3, 4), tf.float32)
layer = fully_connected(
    x, 5, weights_regularizer=tf.contrib.layers.l2_regularizer(0.5), outputs_collections="outputs")
bare = fully_connected(x, 2, None, biases_initializer=None, scope="bare")
with tf.variable_scope("", reuse=True):
    weights, biases = tf.get_variable("fully_connected/weights"), tf.get_variable(
        "fully_connected/biases")
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    said = session.run({
        "l1": tf.contrib.layers.l1_regularizer(0.5)(w),
        "l2": tf.contrib.layers.l2_regularizer(0.5)(w),
        "xavier": xavier, "normal": normal, "x": x, "layer": layer, "weights": weights,
        "biases": biases, "penalty": tf.losses.get_regularization_loss(),
        "kept": tf.get_collection("outputs")[0]})
said = {name: np.asarray(value).tolist() for name, value in said.items()}
said["batches"] = [first, again]
said["names"] = [each.op.name for each in tf.global_variables()]
print(json.dumps(said))
tf.contrib.seq2seq.sequence_loss
"""

OLD_NETWORK = """\
import json
import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib import rnn
from tensorflow.examples.tutorials.mnist import mnist

tf.app.flags.DEFINE_string("log_dir", "logs", "absl has this flag, too")
FLAGS = tf.app.flags.FLAGS
said = {"log_dir": FLAGS.log_dir}

images = tf.placeholder(tf.float32, [None, 28, 28, 1])
training = tf.placeholder(tf.bool)
with slim.arg_scope([slim.conv2d], padding="VALID", normalizer_fn=slim.batch_norm):
    with slim.arg_scope([slim.batch_norm], is_training=training, decay=0.5):
        net = slim.repeat(images, 2, slim.conv2d, 4, [3, 3], scope="conv")
net = slim.flatten(slim.max_pool2d(net, 2))
scores = slim.fully_connected(slim.dropout(net, 0.5), 10, activation_fn=None)
normal = tf.layers.batch_normalization(images, momentum=0.5, training=training)
dense = tf.layers.dense(tf.layers.flatten(normal), 3)
rows = tf.unstack(tf.reshape(images, [-1, 28, 28]), 28, 1)
outputs, _ = rnn.static_rnn(rnn.BasicLSTMCell(5), rows, dtype=tf.float32)
halves = tf.split(1, 2, tf.concat(1, [dense, dense]))
step = tf.contrib.framework.get_or_create_global_step()
loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(scores, tf.one_hot([1, 2], 10)))
train = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1))
model = mnist.inference(tf.reshape(images, [-1, 784]), 8, 4)
labels = tf.placeholder(tf.int64, [None])
with tf.variable_scope("tutorial"):
    descend = mnist.training(mnist.loss(model, labels), 0.1)
writer = tf.train.SummaryWriter(FLAGS.log_dir, tf.get_default_graph())
pixels = np.random.RandomState(0).normal(3, 2, [2, 28, 28, 1])
with tf.Session() as session:
    session.run(tf.initialize_all_variables())
    feed = {images: pixels, training: True, labels: [1, 2]}
    session.run([train, descend, tf.get_collection(tf.GraphKeys.UPDATE_OPS)], feed)
    kept, again, norm, score, logits, hits = session.run(
        [dense, halves[1], normal, scores, model, mnist.evaluation(model, labels)], feed)
    said["moving"] = [float(each.eval(session)[0]) for each in tf.global_variables()
                      if each.op.name.startswith("batch_normalization/moving")]
    said["step"] = int(session.run(step))
said.update(halves=bool((kept == again).all()), mean=float(norm.mean()),
            deviation=float(norm.std()), scores=score.shape,
            rnn=outputs[-1].shape.as_list(), hits=int(hits),
            right=int((logits.argmax(1) == [1, 2]).sum()),
            names=[each.op.name for each in tf.global_variables()],
            pixels=[float(pixels.mean()), float(pixels.var(ddof=1))])
print(json.dumps(said))
"""


@dataclass(frozen=True)
class Listing:
    """A run of a listing that has ended.

    Attributes:
        path: Its directory.
        summary: The output of `--json`.
    """

    path: Path
    summary: dict[str, Any]

    def records(self, task: str, *kinds: str) -> list[dict[str, Any]]:
        """Its records of these kinds."""
        lines = (self.path / "tasks" / f"{task}.jsonl").read_text().splitlines()
        return [record for line in lines if (record := json.loads(line))["kind"] in kinds]

    def log(self, task: str) -> str:
        """Its output."""
        return (self.path / "logs" / f"{task}.log").read_text()


def listing(
    project: Path, name: str, cluster: Path, *arguments: str, backend: str = "local"
) -> Listing:
    """Run a program on a cluster, of plain processes or containers, without `--listing`."""
    program = str(PROGRAMS / f"{name}.py")
    out, err = lab(
        project,
        *("run", program, "--backend", backend, "--gpus", "none", "--json"),
        *("--cluster", str(cluster), "--runs-dir", str(project / "runs"), *arguments),
    )
    (path,) = (project / "runs").iterdir()
    assert f"{name}.py uses TensorFlow 1 (" in err
    assert json.loads((path / "run.json").read_text())["spec"]["listing"]
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "succeeded"
    # The parameter servers, too: they have been ended with their run.
    assert {task["state"] for task in summary["tasks"]} == {"succeeded"}
    return Listing(path, summary)


def start(program: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that needs no cluster, in its own directory."""
    folder.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "lab.task.tf1", str(program), *arguments],
        cwd=folder,
        env=environ(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("single")


@pytest.fixture(scope="module")
def ended(folder: Path) -> Mapping[str, subprocess.CompletedProcess[str]]:
    """The programs of a single process, two at a time: most of their time is TensorFlow's start."""
    texts = {"contrib": CONTRIB, "old_network": OLD_NETWORK}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    with ThreadPoolExecutor(2) as pool:
        started = {
            name: pool.submit(start, folder / f"{name}.py", folder / name, "--unknown")
            for name in texts
        }
        for name, arguments in SINGLE.items():
            program = PROGRAMS / f"{name}.py"
            started[name] = pool.submit(start, program, folder / name, *arguments)
        return {name: future.result() for name, future in started.items()}


@pytest.fixture(scope="module")
def mnist() -> Mnist:
    return load_mnist()


def output(ended: Mapping[str, subprocess.CompletedProcess[str]], name: str) -> list[str]:
    done = ended[name]
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def glorot(random: np.random.Generator, *sides: int) -> Floats:
    """Glorot's uniform distribution: a variance of 2 / (inputs + outputs)."""
    limit = math.sqrt(6 / sum(sides))
    drawn: Floats = random.uniform(-limit, limit, sides).astype(np.float32)
    return drawn


def glorot_layers(seed: int, hidden: int) -> oracle.Parameters:
    """Initial parameters of 784 - hidden - 10, as `xavier_initializer` draws them."""
    random = np.random.default_rng(seed)
    zeros = {"biases1": np.zeros(hidden, np.float32), "biases2": np.zeros(10, np.float32)}
    weights1, weights2 = glorot(random, 784, hidden), glorot(random, hidden, 10)
    return {"weights1": weights1, "weights2": weights2, **zeros}


def cut_off_layers(seed: int, hidden: int) -> oracle.Parameters:
    """The same from a normal of 0.1, cut off at two deviations: a part of the oracle's own."""
    full = oracle.initial_parameters("mlp", seed)
    within = {"weights1": full["weights1"][:, :hidden], "biases1": full["biases1"][:hidden]}
    return {**within, "weights2": full["weights2"][:hidden], "biases2": full["biases2"]}


def zeros() -> oracle.Parameters:
    """An untrained softmax regression."""
    return {"weights": np.zeros((784, 10), np.float32), "biases": np.zeros(10, np.float32)}


def trained(
    mnist: Mnist, parameters: oracle.Parameters, seed: int, updates: Sequence[int], **rates: float
) -> list[oracle.Step]:
    """The oracle's steps with these numbers, from 1; each with its parameters."""
    batches = oracle.worker_batches(mnist.train, seed, 0)
    steps = enumerate(oracle.train(parameters, batches, **rates), 1)
    return [
        oracle.Step(step.loss, {name: value.copy() for name, value in step.parameters.items()})
        for number, step in itertools.islice(steps, max(updates))
        if number in updates
    ]


# ---- APIs that the programs use.


@dataclass(frozen=True)
class Spoken:
    """The APIs that a program uses.

    Attributes:
        names: Dotted names that it imports or uses.
        flags: The flags that it defines.
        keywords: The keyword arguments of its calls.
        attributes: The attributes of any object.
    """

    names: set[str]
    flags: set[str]
    keywords: set[str]
    attributes: set[str]


def imported(tree: ast.Module) -> dict[str, str]:
    """Each name that is bound by an import, and its meaning."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update((each.asname or each.name, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(
                (each.asname or each.name, f"{node.module}.{each.name}") for each in node.names
            )
    return found


def dotted(node: ast.expr, bound: Mapping[str, str]) -> str | None:
    """The whole name of `tf.app.flags` and the like; None without an import."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, bound)
        return None if base is None else f"{base}.{node.attr}"
    return None


def spoken(program: Path) -> Spoken:
    """Read a program's text, without running it."""
    tree = ast.parse(program.read_text())
    bound = imported(tree)
    output = Spoken(set(bound.values()), set(), set(), set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = dotted(node.value, bound)
            if value is not None:  # flags = tf.app.flags
                bound[node.targets[0].id] = value
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            output.attributes.add(node.attr)
            output.names.add(dotted(node, bound) or "")
        elif isinstance(node, ast.Call):
            output.keywords.update(each.arg for each in node.keywords if each.arg)
            if getattr(node.func, "attr", "").startswith("DEFINE_"):
                output.flags.add(ast.literal_eval(node.args[0]))
    return output


def test_the_programs_use_each_api_that_is_provided_for_them() -> None:
    heard = [spoken(program) for program in sorted(PROGRAMS.glob("*.py"))]
    wanted = {f"{module}.{name}" for module, its in NAMES.items() for name in its}
    assert sorted(wanted.difference(*(each.names for each in heard))) == []
    assert sorted(FLAGS.difference(*(each.flags for each in heard))) == []
    assert sorted(WORDS.difference(*(each.keywords for each in heard))) == []
    assert sorted(METHODS.difference(*(each.attributes for each in heard))) == []


def test_every_program_is_run_here() -> None:
    """A program that no test runs would prove nothing."""
    # Other programs import the first and the last; the faulty one has its own tests.
    others = {"two_layers", "sync_three_faults", "adder_parts"}
    text = "".join(
        Path(__file__).with_name(f"test_tf1_{name}.py").read_text()
        for name in ("programs", "tasks_and_files")
    )
    programs = {program.stem for program in PROGRAMS.glob("*.py")} - others
    assert sorted(stem for stem in programs if f'"{stem}"' not in text) == []


# ---- Clusters.


@pytest.mark.parametrize("runner", ["lab.task.own", "lab.task.tf1"])
def test_keras_has_the_images_of_the_lab(tmp_path: Path, mnist: Mnist, runner: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport tensorflow as tf\nfrom tensorflow.keras.datasets import mnist\n"
        "for load in (mnist.load_data, tf.keras.datasets.mnist.load_data):\n"
        "    (x, y), (tx, ty) = load('mnist-%d.npz' % 0)\n"
        "    print(x.shape, tx.shape, int(x[55_000:].sum()), *y[-3:], *ty[-3:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", runner, str(program)],
        cwd=tmp_path,
        env=environ(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    total = int(mnist.validation.pixels.sum(dtype=np.int64))
    digits = [*mnist.validation.labels[-3:], *mnist.test.labels[-3:]]
    line = f"(60000, 28, 28) (10000, 28, 28) {total} {' '.join(map(str, digits))}"
    assert done.stdout.splitlines() == [line] * 2, done.stderr


def test_ports_in_the_source_and_workers_that_do_not_wait_30_seconds(
    tmp_path: Path, mnist: Mnist
) -> None:
    workers = ["worker-0", "worker-1", "worker-2"]
    # All others wait for a late chief. With the Supervisor's own poll they ask again
    # 30 s later: the chief has done its 1,100 steps by then, alone.
    run = listing(
        tmp_path, "async_fixed_ports", ROOT / "clusters/book.yaml", "--start", "worker-0: 4s"
    )
    assert run.records("worker-0", "epoch")[-1]["global_step"] > 1150
    records = []
    for task in workers:
        epochs = run.records(task, "epoch")
        # Two epochs of 550 batches, a line at the end of each.
        assert [(each["epoch"], each["local_step"]) for each in epochs] == [(0, 550), (1, 1100)]
        records += epochs
    finals = [run.records(task, "final")[0]["accuracy"] for task in workers]

    printed = {int(each["global_step"]) for each in records}
    counts = sorted({*printed, 1100, 3300})
    runs = []
    for seed in range(SAMPLE):
        initial = oracle.initial_parameters("softmax", seed)
        steps = trained(mnist, initial, seed, counts, rate=0.01)
        runs.append(dict(zip(counts, steps, strict=True)))

    def accuracies(count: int) -> oracle.Band:
        return oracle.prediction_band(
            [oracle.accuracy(each[count].parameters, mnist.test) for each in runs]
        )

    # The last to finish tests what all 3,300 updates made, the first at least its own 1,100.
    assert max(finals) in accuracies(3300)
    assert min(finals) > accuracies(1100).low
    losses = [float(np.mean([each[count].loss for count in printed])) for each in runs]
    assert float(np.mean([each["loss"] for each in records])) in oracle.prediction_band(losses)


def test_host_flags_a_task_id_and_a_module_beside_the_program(tmp_path: Path, mnist: Mnist) -> None:
    # Where the chief had ended, a worker's session would wait for it: so it does not finish first.
    run = listing(tmp_path, "async_host_flags", ROOT / "cluster.yaml", "--start", "worker-0: 3s")
    images, labels = next(oracle.worker_batches(mnist.train, 0, 0))
    untrained, _ = oracle.loss_and_gradients(oracle.initial_parameters("mlp", 0), images, labels)
    steps = [record for i in range(3) for record in run.records(f"worker-{i}", "step")]
    steps.sort(key=lambda record: int(record["global_step"]))
    assert len(steps) >= 3
    assert all(record["local_step"] % 100 == 0 for record in steps)
    assert all(record["local_step"] <= record["global_step"] <= 600 for record in steps)
    assert all(record["loss"] < untrained / 2 for record in steps)
    # Relative to the run: the Supervisor's saver and its summaries.
    saved = {path.name for path in (run.path / "files/logs_async").iterdir()}
    assert "checkpoint" in saved
    assert any(name.startswith("events.out.tfevents") for name in saved)
    assert "is not available" not in "".join(run.log(f"worker-{i}") for i in range(3))


@pytest.mark.engine
@pytest.mark.usefixtures("image")
def test_a_program_and_the_module_beside_it_in_containers(tmp_path: Path) -> None:
    laptop = ROOT / "clusters/laptop.yaml"
    run = listing(tmp_path, "async_host_flags", laptop, backend="compose")
    steps = [each for i in range(2) for each in run.records(f"worker-{i}", "step")]
    assert {each["local_step"] % 100 for each in steps} == {0}
    assert max(int(each["global_step"]) for each in steps) > 300
    assert (run.path / "files/logs_async/checkpoint").is_file()


def test_monitored_sessions_and_variables_balanced_over_two_ps(
    tmp_path: Path, mnist: Mnist
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "two-ps.yaml").write_text(TWO_PS)
    run = listing(tmp_path, "hooks_on_two_ps", tmp_path / "two-ps.yaml")
    sample = [
        oracle.accuracy(step.parameters, mnist.test)
        for seed in range(SAMPLE)
        for step in trained(mnist, zeros(), seed, [400], rate=0.1)
    ]
    for task in ("worker-0", "worker-1"):
        log = run.log(task)
        # 31,360 bytes, 40, and 8: the first ps is full with the first.
        assert "matrix is held by /job:ps/task:0" in log
        assert "added is held by /job:ps/task:1" in log
        assert "global_step is held by /job:ps/task:1" in log
        (final,) = run.records(task, "final")
        assert final["accuracy"] in oracle.prediction_band(sample)
        for record in run.records(task, "step"):
            # Read beside the update, in one call: perhaps right before it.
            assert record["local_step"] - 1 <= record["global_step"] <= 401
    assert "INFO:tensorflow:loss = " in run.log("worker-0")
    assert "INFO:tensorflow:Saving checkpoints" in run.log("worker-0")
    assert (run.path / "files/monitored_logs/checkpoint").is_file()
    assert "Saving checkpoints" not in run.log("worker-1")


def test_a_client_apart_from_two_servers(tmp_path: Path) -> None:
    run = listing(tmp_path, "line_from_a_client", ROOT / "clusters/client.yaml")
    steps = run.records("client-0", "step")
    assert [record["local_step"] for record in steps] == [30, 60, 90, 120]
    losses = [record["loss"] for record in steps]
    assert losses == sorted(losses, reverse=True)
    # An update leaves 1 - 0.1 · mean(x²) = 0.92 of what the slope lacks, and 0.9 of what the
    # intercept lacks: after 120 less than a ten-thousandth.
    assert "slope 2.000, intercept 10.000, both on /job:worker/task:0" in run.log("client-0")
    # They join for ever, and are ended when the client has.
    assert run.summary["state"] == "succeeded"


def test_unavailable_names_are_in_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "cluster.yaml").write_text(ALONE)
    (tmp_path / "with_eager.py").write_text(EAGER)
    arguments = ("--listing", "--backend", "local", "--gpus", "none")
    _, err = lab(tmp_path, "run", "with_eager.py", *arguments, code=1)
    assert "ImportError: tf.contrib.eager is not available: " in err.splitlines()[-1]


# ---- A single process.


Ended = Mapping[str, subprocess.CompletedProcess[str]]


def test_feed_dictionaries_averages_and_summaries(ended: Ended, folder: Path, mnist: Mnist) -> None:
    lines = output(ended, "summaries_of_one_process")
    losses = [float(re.fullmatch(r"update \d+: loss (\S+)", line)[1]) for line in lines[:2]]
    assert losses[1] < losses[0] / 2
    # The rate decays by 0.99 in 100 updates; the oracle's in 600. Its penalty has both layers.
    sample = [
        oracle.accuracy(step.parameters, mnist.test)
        for seed in range(SAMPLE)
        for step in trained(mnist, glorot_layers(seed, 50), seed, [150], rate=0.5, decay=0.99**6)
    ]
    assert lines[-1].startswith("10000 tested, right: ")
    assert float(lines[-1].rpartition(" ")[2]) in oracle.prediction_band(sample)
    (events,) = (folder / "summaries_of_one_process/elsewhere").iterdir()
    assert events.stat().st_size > 10_000  # the graph and 150 values


def test_where_each_strategy_puts_variables(ended: Ended) -> None:
    lines = output(ended, "variable_placement")
    where = {
        name: "".join(line[-1] for line in lines if line.startswith(f"{name}: "))
        for name in ("one after the other", "by name", "by bytes")
    }
    assert where == {
        "one after the other": "0101010101",
        # The MD5 of layer0/matrix_3 and so on, as a number: odd or even.
        "by name": "0100111100",
        # 8,192 bytes and 128, 16,384 and 512, 8,192 and 64, 16,384 and 1,024, 8,192 and 32: to the
        # server that has fewer.
        "by bytes": "0110011000",
    }
    assert lines[0] == "one after the other: layer0/matrix /job:ps/task:0"


def test_records_written_and_read_back_once(ended: Ended) -> None:
    lines = output(ended, "record_files")
    names = [f"numbers-{i:02d}.tfrecord" for i in range(3)]
    assert [Path(name).name for name in lines[0].split()] == names
    read = [pair for line in lines[1:-1] for pair in line.removeprefix("read ").split()]
    assert read == [f"{i}/{j}" for i in range(3) for j in range(4)]
    assert lines[-1] == "no more records"


def test_a_queue_and_a_coordinator_by_hand(ended: Ended) -> None:
    lines = output(ended, "queue_and_threads")
    assert lines == [
        "threads that fill the queue: 5",  # one for each of four fillers, one closes the queue
        "slope 3.000, offset -1.000",
        "the first has counted to 50",
        "all have ended: True",
    ]


def test_a_convolutional_network_saved_and_restored(ended: Ended, mnist: Mnist) -> None:
    lines = output(ended, "convolution_restored")
    penalties = {line.partition("/")[0]: float(line.split()[-1]) for line in lines[:2]}
    assert set(penalties) == {"convolution0", "convolution1"}
    # 200 and 3,200 weights whose sizes are still near 0.07, the mean of the cut-off normal's.
    assert penalties["convolution0"] == pytest.approx(200 * 0.07 * 1e-5, rel=1)
    assert penalties["convolution1"] == pytest.approx(3200 * 0.07 * 1e-5, rel=0.5)
    match = re.fullmatch(r"restored after 120 updates, right: (\S+)", lines[2])
    assert match is not None, lines
    # More than a linear model gets from more images; less than LeNet-5 with all its layers after
    # all its epochs (LeCun et al., 1998: 0.95% wrong).
    linear = [
        oracle.accuracy(step.parameters, mnist.test)
        for seed in range(SAMPLE)
        for step in trained(mnist, zeros(), seed, [120], rate=0.1)
    ]
    assert max(linear) < float(match[1]) < 0.9905
    assert lines[3:] == [
        "newest: ./convolution.ckpt-120",
        'model_checkpoint_path: "convolution.ckpt-120"',
    ]


def test_towers_that_read_records(ended: Ended, folder: Path, mnist: Mnist) -> None:
    lines = output(ended, "towers_from_records")
    losses = [float(re.findall(r"loss = (\S+)", line)[0]) for line in lines[:10]]
    # Each tower has half of a batch of 100: the mean of their gradients is that of the batch, which
    # is drawn from 5,000 images, as if from all of them in so few steps.
    printed = range(11, 102, 10)  # steps 10, 20, … by the program, which counts from 0
    runs = [
        trained(mnist, cut_off_layers(seed, 100), seed, printed, rate=0.05, decay=0.99)
        for seed in range(SAMPLE)
    ]
    sample = [float(np.mean([step.loss for step in run])) for run in runs]
    assert float(np.mean(losses)) in oracle.prediction_band(sample)
    assert len(losses) == len(printed)
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) / 1.5
    assert lines[-1] == "saved as tower_checkpoints/towers-100"
    names = {path.name for path in (folder / "towers_from_records/tower_checkpoints").iterdir()}
    assert {"towers-0.index", "towers-100.index", "checkpoint"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)


def test_the_numbers_of_contrib_and_the_last_line_of_what_it_lacks(ended: Ended) -> None:
    done = ended["contrib"]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["l1"] == pytest.approx(0.5 * 6)
    assert found["l2"] == pytest.approx(0.5 * 14 / 2)
    for name in ("xavier", "normal"):
        # Glorot and Bengio (2010): 2 / (inputs + outputs); 60,000 draws know it to 1%.
        assert np.var(found[name]) == pytest.approx(2 / 500, rel=0.03)
    assert np.abs(found["xavier"]).max() <= math.sqrt(6 / 500)
    assert np.abs(found["normal"]).max() > math.sqrt(6 / 500)
    layer = np.asarray(found["x"]) @ np.asarray(found["weights"]) + np.asarray(found["biases"])
    np.testing.assert_allclose(found["layer"], np.maximum(layer, 0), atol=1e-5)
    assert found["kept"] == found["layer"]
    assert found["penalty"] == pytest.approx(0.25 * np.sum(np.square(found["weights"])), rel=1e-5)
    assert found["names"] == [
        *("xavier", "normal", "fully_connected/weights", "fully_connected/biases", "bare/weights")
    ]
    # The graph's seed is NumPy's: the same batches again.
    first, again = found["batches"]
    assert first == again
    assert len(set(first)) > 1
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "AttributeError: tf.contrib.seq2seq is not available: TensorFlow 2 has no tf.contrib; lab"
        " has its data, framework, layers, learn.datasets, losses, metrics, rnn, slim, training"
    )


def test_slim_layers_cells_and_names_of_2016(ended: Ended) -> None:
    found = json.loads(output(ended, "old_network")[-1])
    assert found["log_dir"] == "logs"
    normalized = [
        f"conv/conv_{layer}/{name}"
        for layer in (1, 2)
        for name in (
            "weights",
            *(f"BatchNorm/{each}" for each in ("beta", "moving_mean", "moving_variance")),
        )
    ]
    tutorial = [
        f"{layer}/{name}"
        for layer in ("hidden1", "hidden2", "softmax_linear")
        for name in ("weights", "biases")
    ]
    cell = [f"rnn/basic_lstm_cell/{name}" for name in ("kernel", "bias")]
    assert found["names"] == [
        *normalized,
        *(f"fully_connected/{name}" for name in ("weights", "biases")),
        *(f"batch_normalization/{name}" for name in ("beta", "gamma")),
        *(f"batch_normalization/moving_{name}" for name in ("mean", "variance")),
        *("dense/kernel", "dense/bias", *cell, "global_step"),
        *(*tutorial, "tutorial/global_step"),
    ]
    # The batch is normalized; half of its moments are in the moving ones, which began at 0 and 1.
    assert found["mean"] == pytest.approx(0, abs=1e-3)
    assert found["deviation"] == pytest.approx(1, abs=1e-3)
    mean, variance = found["pixels"]
    assert found["moving"] == pytest.approx([mean / 2, (1 + variance) / 2], rel=1e-3)
    assert found["scores"] == [2, 10]
    assert found["rnn"] == [None, 5]
    assert found["halves"]
    assert found["step"] == 1
    assert found["hits"] == found["right"]


SUPERVISED = """\
import tensorflow as tf

step = tf.train.get_or_create_global_step()
count = tf.assign_add(step, 1)
sv = tf.train.Supervisor(init_op=tf.global_variables_initializer(), logdir="train",
                         global_step=step, save_model_secs=0)
with sv.managed_session() as session:
    for _ in range(10):
        reached = session.run(count)
    sv.saver.save(session, "train/model.ckpt", global_step=step)
print("reached", reached)
"""


def test_a_checkpoint_of_an_earlier_run_is_not_used(tmp_path: Path) -> None:
    program = tmp_path / "supervised.py"

    def go(*switches: str) -> subprocess.CompletedProcess[str]:
        program.write_text(SUPERVISED)  # Anew for each run, as the lab does.
        command = [sys.executable, "-m", "lab.task.tf1", *switches, str(program)]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environ(tmp_path),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    assert go().stdout.splitlines()[-1] == "reached 10"
    refused = go()
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "error: train holds model.ckpt-10, a checkpoint of an earlier run; remove that directory,"
        " or use --faithful to resume from it"
    )
    assert "Traceback" not in refused.stderr
    assert go("--faithful").stdout.splitlines()[-1] == "reached 20"
