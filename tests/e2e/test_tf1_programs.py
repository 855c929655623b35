"""Programs for TensorFlow 1, in `tests/tf1_programs`, on TensorFlow 2.21.

They use the parts of TensorFlow 1 that programs of 2017 and 2018 use. Those with a
cluster go through `lab run`, which recognizes them; the others are started by the same runner.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.protocol.mnist import Mnist, load_mnist
from tests import oracle
from tests.support.commands import ROOT, Done, environ, lab, python
from tests.support.experiments import LOCAL, Ran

pytestmark = pytest.mark.tensorflow

PROGRAMS = ROOT / "tests" / "tf1_programs"
SAMPLE = 6


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
x = tf.constant(np.linspace(-1, 1, 24).astype(np.float).reshape(2, 3, 4), tf.float32)
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


def listing(project: Path, name: str, cluster: Path, *arguments: str) -> Ran:
    """Run a program on a cluster of plain processes, without `--listing`."""
    program = str(PROGRAMS / f"{name}.py")
    where = ("--cluster", str(cluster), "--runs-dir", str(project / "runs"), "--json")
    out, err = lab(project, "run", program, *LOCAL, *where, *arguments)
    (path,) = (project / "runs").iterdir()
    assert f"{name}.py uses TensorFlow 1 (" in err
    assert json.loads((path / "run.json").read_text())["spec"]["listing"]
    ran = Ran(path, json.loads(out.splitlines()[-1]), err)
    # The parameter servers, too: they have been ended with their run.
    assert {*ran.states.values()} == {"succeeded"}
    return ran


def start(
    program: Path,
    folder: Path,
    *arguments: str,
    switches: Sequence[str] = (),
) -> Done:
    """Run a program that needs no cluster, in a directory; switches are those of the runner."""
    words = ["-m", "lab.task.tf1", *switches, str(program), *arguments]
    return python(*words, cwd=folder, env=environ(folder), timeout=600)


def started(folder: Path, text: str, *arguments: str, **how: Any) -> Done:
    (folder / "program.py").write_text(text)
    return start(folder / "program.py", folder, *arguments, **how)


def output(done: Done) -> list[str]:
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def mnist() -> Mnist:
    return load_mnist()


def accuracies(mnist: Mnist, updates: int) -> oracle.Band:
    """The interval of softmax's accuracy after these updates, from any start."""
    found = []
    for seed in range(SAMPLE):
        stream = oracle.worker_batches(mnist.train, seed, 0)
        steps = oracle.train(oracle.initial_parameters("softmax", seed), stream, rate=0.01)
        last = next(itertools.islice(steps, updates - 1, None))
        found.append(oracle.accuracy(last.parameters, mnist.test))
    return oracle.prediction_band(found)


def test_ports_in_the_source_and_workers_that_do_not_wait_30_seconds(
    tmp_path: Path, mnist: Mnist
) -> None:
    # All others wait for a late chief. With the Supervisor's own poll they ask again
    # 30 s later: the chief has done its 1,100 steps by then, alone.
    run = listing(
        tmp_path, "async_fixed_ports", ROOT / "clusters/book.yaml", "--start", "worker-0: 4s"
    )
    assert run.records("worker-0", "epoch")[-1]["global_step"] > 1150
    finals = []
    for task in ("worker-0", "worker-1", "worker-2"):
        epochs = run.records(task, "epoch")
        # Two epochs of 550 batches, a line at the end of each.
        assert [(each["epoch"], each["local_step"]) for each in epochs] == [(0, 550), (1, 1100)]
        assert "counts: local_step=1100 counted=1100 " in "\n".join(run.log(task))
        finals.append(run.records(task, "final")[0]["accuracy"])
    # The last to finish tests what all 3,300 updates made, the first at least its own 1,100.
    assert max(finals) in accuracies(mnist, 3300)
    assert min(finals) > accuracies(mnist, 1100).low


def test_host_flags_a_task_id_and_a_module_beside_the_program(tmp_path: Path, mnist: Mnist) -> None:
    # Where the chief had ended, a worker's session would wait for it: so it does not finish first.
    run = listing(tmp_path, "async_host_flags", ROOT / "cluster.yaml", "--start", "worker-0: 3s")
    images, labels = next(oracle.worker_batches(mnist.train, 0, 0))
    untrained, _ = oracle.loss_and_gradients(oracle.initial_parameters("mlp", 0), images, labels)
    steps = [record for i in range(3) for record in run.records(f"worker-{i}", "step")]
    assert len(steps) >= 3
    assert all(record["local_step"] % 100 == 0 for record in steps)
    assert all(record["local_step"] <= record["global_step"] <= 600 for record in steps)
    assert all(record["loss"] < untrained / 2 for record in steps)
    # Relative to the run: the Supervisor's saver and its summaries.
    saved = {path.name for path in (run.path / "files/logs_async").iterdir()}
    assert "checkpoint" in saved
    assert any(name.startswith("events.out.tfevents") for name in saved)


def test_a_client_apart_from_two_servers(tmp_path: Path) -> None:
    run = listing(tmp_path, "line_from_a_client", ROOT / "clusters/client.yaml")
    steps = run.records("client-0", "step")
    assert [record["local_step"] for record in steps] == [30, 60, 90, 120]
    losses = [record["loss"] for record in steps]
    assert losses == sorted(losses, reverse=True)
    # An update leaves 1 - 0.1 · mean(x²) = 0.92 of what the slope lacks, and 0.9 of what the
    # intercept lacks: after 120 less than a ten-thousandth.
    (line,) = [line for line in run.log("client-0") if line.startswith("slope")]
    assert line.startswith("slope 2.000, intercept 10.000, both on /job:worker/task:0")


KERAS = """\
import tensorflow as tf
from tensorflow.keras.datasets import mnist
for load in (mnist.load_data, tf.keras.datasets.mnist.load_data):
    (x, y), (tx, ty) = load("mnist-%d.npz" % 0)
    print(x.shape, tx.shape, int(x[55_000:].sum()), *y[-3:], *ty[-3:])
"""


def test_keras_has_the_images_of_the_lab(tmp_path: Path, mnist: Mnist) -> None:
    total = int(mnist.validation.pixels.sum(dtype=np.int64))
    digits = [*mnist.validation.labels[-3:], *mnist.test.labels[-3:]]
    line = f"(60000, 28, 28) (10000, 28, 28) {total} {' '.join(map(str, digits))}"
    assert output(started(tmp_path, KERAS)) == [line] * 2


def test_the_numbers_of_contrib_and_the_last_line_of_what_it_lacks(tmp_path: Path) -> None:
    done = started(tmp_path, CONTRIB, "--unknown")
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


def test_slim_layers_cells_and_names_of_2016(tmp_path: Path) -> None:
    found = json.loads(output(started(tmp_path, OLD_NETWORK, "--unknown"))[-1])
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


QUEUES = """\
import tensorflow as tf

_, text = tf.TFRecordReader().read(tf.train.string_input_producer(["no.tfrecords"]))
batch = tf.train.batch([text], 3)
with tf.Session() as session:
    tf.train.start_queue_runners(session)
    session.run(batch)
"""


def test_queue_runners_without_a_coordinator_end_the_program_if_a_file_is_missing(
    tmp_path: Path,
) -> None:
    """Otherwise the main thread would wait for the queue for ever."""
    done = started(tmp_path, QUEUES)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "MissingFileError: no.tfrecords is missing; in the directory of program.py, run `lab data"
        " tfrecords no.tfrecords`"
    )


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
    def go(*switches: str) -> Done:
        # Anew for each run, as the lab does.
        return started(tmp_path, SUPERVISED, switches=switches)

    assert output(go())[-1] == "reached 10"
    refused = go()
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "error: train holds model.ckpt-10, a checkpoint of an earlier run; remove that directory,"
        " or use --listing=faithful to resume from it"
    )
    assert "Traceback" not in refused.stderr
    assert output(go("--faithful"))[-1] == "reached 20"
