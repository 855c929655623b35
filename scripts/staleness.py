"""The effect of stale gradients on the training.

As in `mnist_async.py`, every worker reads the parameters, computes the gradients of one batch and
applies them. But here it waits before it applies them (`--pause`), like a worker with a slow GPU or
a slow network. Meanwhile the other workers apply theirs. Among n workers each gradient is computed
from parameters that are n - 1 updates old. With a small learning rate this hardly matters. With a
large one the updates overshoot the minimum, again and again.
"""

import time

import numpy as np
import tensorflow.compat.v1 as tf
from begin import begin, server_config
from mnist_model import MODELS, share_correct

from lab.task.sdk.data import load_mnist
from lab.task.sdk.flags import amount, parse, training_flags
from lab.task.sdk.program import ended_tasks, wait_for_start

parser = training_flags(__doc__)
parser.add_argument("--pause", type=amount, default=0.03, help="the wait in s (default: 0.03)")
flags = parse(parser)
is_chief = flags.job_name == "worker" and flags.task_index == 0
workers = len(flags.worker_hosts)
myself = f"/job:{flags.job_name}/task:{flags.task_index}"

recorder = begin(flags, batch_size=flags.batch_size)
tf.disable_eager_execution()

# ---- 1. The server, as in `mnist_async.py`.
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
if flags.job_name == "ps":
    recorder.write("event", status="ready", message=f"serves at {server.target}")
    server.join()

mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + flags.task_index])
all_steps = flags.global_steps or (
    flags.epochs * mnist.train.batches_per_epoch(flags.batch_size) * workers
)

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
    with tf.device(global_step.device):
        number = tf.count_up_to(global_step, all_steps)
    learning_rate = flags.learning_rate or model.asynchronous_rate
    optimizer = tf.train.GradientDescentOptimizer(learning_rate, use_locking=True)
    with tf.control_dependencies([number]):
        update = optimizer.apply_gradients(
            [*zip(held, variables.values(), strict=True), (tf.constant(-1 / learning_rate), probe)]
        )

# At its end every worker sets `finished`, and the sum of the staleness of its gradients.
with tf.device("/job:ps/task:0"):
    finished = tf.get_variable("finished", initializer=np.zeros(workers, np.int32))
    sums = tf.get_variable("sums", initializer=np.zeros(workers, np.int64))
    own_sum = tf.placeholder(tf.int64, [])
    with tf.control_dependencies([tf.scatter_update(sums, flags.task_index, own_sum)]):
        tell_finished = tf.scatter_update(finished, flags.task_index, 1)
initialize = tf.global_variables_initializer()
missing_variables = tf.report_uninitialized_variables(tf.global_variables())

# ---- 3. The training.
config = tf.ConfigProto(device_filters=["/job:ps", myself])
with tf.Session(server.target, config=config) as session:
    if is_chief and len(session.run(missing_variables)):
        session.run(initialize)
    while len(session.run(missing_variables)):
        time.sleep(0.2)
    recorder.write("event", status="ready", message=f"holds its gradients for {flags.pause:g} s")
    wait_for_start()

    local_step = staleness_sum = global_step_now = 0
    while True:
        batch_images, batch_labels = next(batches)
        computed, steps_at_read, loss_now = session.run(
            [gradients, step_at_read, loss], {images: batch_images, labels: batch_labels}
        )
        time.sleep(flags.pause)
        try:
            steps_before, _ = session.run([number, update], dict(zip(held, computed, strict=True)))
        except tf.errors.OutOfRangeError:
            break
        local_step += 1
        global_step_now = steps_before + 1
        staleness_sum += steps_before - steps_at_read
        if local_step % flags.record_every == 0 or local_step == 1:
            recorder.write(
                "step",
                local_step=local_step,
                global_step=global_step_now,
                staleness=steps_before - steps_at_read,
                staleness_sum=staleness_sum,
                loss=loss_now,
                examples=local_step * flags.batch_size,
            )
    session.run(tell_finished, {own_sum: staleness_sum})

    def all_have_finished():
        """Whether every worker has finished, except workers that have failed."""
        told, gone = session.run(finished), ended_tasks()
        return all(told[task] or f"worker-{task}" in gone for task in range(workers))

    # ---- 4. The chief waits for all workers, and records the results.
    if is_chief:
        recorder.write("event", message="waits until all workers have finished")
        while not all_have_finished():
            time.sleep(0.1)
        test = {images: mnist.test.images, labels: mnist.test.labels}
        final_loss, final_accuracy, final_probe, step = session.run(
            [loss, accuracy, probe, step_at_read], test
        )
        recorder.write(
            "eval",
            global_step=step,
            probe=round(float(final_probe)),
            accuracy=final_accuracy,
            message="final parameters",
        )
        # Each update makes at most one step of each other worker staler. So the mean staleness is
        # at most n - 1, and nearly n - 1 if all workers are equally fast.
        recorder.write(
            "result",
            name="staleness",
            value=session.run(sums).sum() / step,
            low=(workers - 1) / 4,
            high=workers - 1,
        )
        recorder.write("result", name="test loss", value=final_loss)

recorder.write(
    "final",
    local_step=local_step,
    global_step=global_step_now,
    staleness_sum=staleness_sum,
    examples=local_step * flags.batch_size,
    status="succeeded",
)
