"""The effect of stale gradients on the training.

Shows: among n workers, a gradient is on average at most n - 1 updates old when it is applied.
Try to break: the loss, by a large learning rate. Then save it, by a smaller one or smaller batches.

As in `mnist_async.py`, every worker reads the parameters, computes the gradients of one batch and
applies them. But here it waits before it applies them (`--pause`), like a worker with a slow GPU or
a slow network. Meanwhile the other workers apply theirs. With a small learning rate this hardly
matters. With a large one the updates overshoot the minimum, again and again.
"""

import time

import numpy as np
import tensorflow.compat.v1 as tf
from chief import Finish
from mnist_model import MODELS, share_correct
from placement import server_config

from lab.task.sdk import begin, load_mnist

flags, recorder = begin("staleness", __doc__)
is_chief = flags.job_name == "worker" and flags.task_index == 0
workers = len(flags.worker_hosts)
myself = f"/job:{flags.job_name}/task:{flags.task_index}"
tf.disable_eager_execution()

# ---- 1. The server, as in `mnist_async.py`.
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
if flags.job_name == "ps":
    recorder.ready(f"serves at {server.target}")
    server.join()

mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch * workers

# ---- 2. The graph, in two halves: the program feeds the gradients of the first into the second.
model = MODELS[flags.model]
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=myself)):
    variables = {
        name: tf.get_variable(name, initializer=value)
        for name, value in model.initial_parameters(flags.seed).items()
    }
    global_step = tf.get_variable("global_step", initializer=np.int64(0))
    # A probe for lost updates: every update adds exactly one to it.
    probe = tf.get_variable("probe", initializer=np.float32(0))
    staleness_sum = tf.get_variable("staleness_sum", initializer=np.int64(0))
    images = tf.placeholder(tf.float32, [None, 784], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")

    # The first half: read and compute.
    step_at_read = global_step.read_value()
    with tf.control_dependencies([step_at_read]):
        parameters = {name: variable.read_value() for name, variable in variables.items()}
    logits = model.logits(images, parameters)
    loss = model.loss(logits, labels, parameters)
    accuracy = share_correct(logits, labels)
    gradients = tf.gradients(loss, list(parameters.values()))

    # The second half: take a number, and apply. It fails when all numbers are taken.
    held = [tf.placeholder(tf.float32, gradient.shape) for gradient in gradients]
    held_since = tf.placeholder(tf.int64, [])
    with tf.device(global_step.device):
        number = tf.count_up_to(global_step, all_steps)
    learning_rate = flags.learning_rate or model.asynchronous_rate
    optimizer = tf.train.GradientDescentOptimizer(learning_rate, use_locking=True)
    changes = [
        *zip(held, variables.values(), strict=True),
        (tf.constant(-1 / learning_rate), probe),
    ]
    with tf.control_dependencies([number]):
        staleness = number - held_since
        update = tf.group(optimizer.apply_gradients(changes), staleness_sum.assign_add(staleness))

finish = Finish(workers, flags.task_index)
initialize = tf.global_variables_initializer()
missing_variables = tf.report_uninitialized_variables(tf.global_variables())

# ---- 3. The training.
config = tf.ConfigProto(device_filters=["/job:ps", myself])
with tf.Session(server.target, config=config) as session:
    if is_chief and len(session.run(missing_variables)):
        session.run(initialize)
    while len(session.run(missing_variables)):
        time.sleep(0.2)
    recorder.ready(f"holds its gradients for {flags.pause:g} s")
    recorder.begin_training(flags)
    with finish.chief_leaves_last(session, recorder):
        for local_step, (batch_images, batch_labels) in enumerate(batches, start=1):
            computed, seen, loss_now = session.run(
                [gradients, step_at_read, loss], {images: batch_images, labels: batch_labels}
            )
            time.sleep(flags.pause)
            feed = {held_since: seen, **dict(zip(held, computed, strict=True))}
            try:
                taken, late_by, _ = session.run([number, staleness, update], feed)
            except tf.errors.OutOfRangeError:
                break  # All numbers are taken.
            recorder.step(local_step, taken + 1, loss=loss_now, staleness=late_by)

    # ---- 4. All workers have finished: the chief records the results.
    if is_chief:
        test = {images: mnist.test.images, labels: mnist.test.labels}
        final_loss, final_accuracy, final_probe, step, total = session.run(
            [loss, accuracy, probe, step_at_read, staleness_sum], test
        )
        recorder.write(
            "eval",
            global_step=step,
            probe=round(float(final_probe)),
            accuracy=final_accuracy,
            message="final parameters",
        )
        # Each update makes at most one step of each other worker staler. So the mean staleness is
        # at most n - 1: n - 1 times the share of a step between the read and the count.
        others = workers - 1
        recorder.write("result", name="staleness", value=total / step, low=others / 4, high=others)
        recorder.write("result", name="test loss", value=final_loss)

recorder.finish()
