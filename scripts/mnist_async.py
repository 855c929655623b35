"""MNIST with parameter servers, asynchronously: no worker waits for another.

Shows: a worker reads the parameters, computes gradients from one batch, and applies them at once.
Try to break: kill a worker, or slow it down. Is an update lost? The probe counts those applied.

The parameter servers (job ps) hold the variables. Between a worker's read and its update other
workers may change the parameters; then its gradients are stale. `mnist_sync.py` is the same
program except for sections 1, 6 and 8.
"""

import math

import tensorflow.compat.v1 as tf
from chief import Chief
from mnist_model import MODELS, MovingAverages, share_correct
from placement import places, ps_strategy, server_config

from lab.task.sdk import begin, load_mnist

# ---- 1. A cluster is a set of jobs, here `ps` and `worker`. A job has numbered tasks: each task is
# a process with an address. The flags, or the variable TF_CONFIG, say which task this one is. The
# recorder writes what `lab` collects.
flags, recorder = begin("async", __doc__)
model = MODELS[flags.model]
base_rate = flags.learning_rate or model.asynchronous_rate

# ---- 2. The server makes this process a task of the cluster. The spec lists all tasks.
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
if flags.job_name == "ps":
    recorder.ready(f"serves at {server.target}")
    server.join()  # It never returns. From now on workers create and change variables here.

# ---- 3. The data: every worker has all images, and draws batches in its own order.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)

# ---- 4. The graph. Down to section 7 nothing is computed: the lines describe operations, of which
# `session.run` later runs the ones that it is asked for. Every worker builds this graph. The setter
# places variables on the parameter servers, and everything else on this worker. A variable with the
# same name on the same server is one variable for all workers.
tf.disable_eager_execution()
myself = f"/job:worker/task:{flags.task_index}"
is_chief = flags.task_index == 0
num_workers = len(flags.worker_hosts)
strategy = ps_strategy(flags.ps_strategy, len(flags.ps_hosts))
setter = tf.train.replica_device_setter(cluster=cluster, worker_device=myself, ps_strategy=strategy)
with tf.device(setter):
    initial_values = model.initial_parameters(flags.seed).items()
    variables = {name: tf.get_variable(name, initializer=value) for name, value in initial_values}
    global_step = tf.get_variable("global_step", initializer=tf.constant(0, tf.int64))
    probe = tf.get_variable("probe", initializer=0.0)  # It counts the updates: see section 5.
    # Inputs, fed by each `session.run`. None allows a batch of any size.
    images = tf.placeholder(tf.float32, [None, 784], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")

    # ---- 5. Read and compute. The global step is read first: the updates that others count after
    # that are the staleness. Then each parameter is read once, so that all gradients of this
    # step use the same values. Operations in a block of control dependencies wait for the listed
    # ones; all others run as soon as their inputs are there.
    step_at_read = global_step.read_value()
    with tf.control_dependencies([step_at_read]):
        parameters = {name: variable.read_value() for name, variable in variables.items()}
    logits = model.logits(images, parameters)
    loss = model.loss(logits, labels, parameters)
    accuracy = share_correct(logits, labels)
    gradients = tf.gradients(loss, list(parameters.values()))
    # In 600 steps the rate of `mlp` decays by a factor of 0.99; that of `softmax` is constant.
    rate = tf.train.exponential_decay(base_rate, step_at_read, 600, model.decay)
    # With locking, workers that update a variable at the same time take turns: no update is lost.
    optimizer = tf.train.GradientDescentOptimizer(rate, use_locking=True)
    # An update subtracts the gradient times the rate. So a gradient of -1 / rate adds one to the
    # probe, which at the end equals the number of updates that were applied.
    changes = [*zip(gradients, variables.values(), strict=True), (-1.0 / rate, probe)]
    # `mlp` is also tested with moving averages of its parameters, which the chief keeps.
    averages = MovingAverages(model, variables, global_step, is_chief)

    # ---- 6. Update: count, then apply. Counting returns the global step and adds one to it, on its
    # server, so every step of every worker gets a number of its own; at `all_steps` it fails. It
    # waits for the gradients, so that updates made while they were computed count as staleness.
    all_steps = flags.global_steps or flags.epochs * steps_per_epoch * num_workers
    with tf.control_dependencies(gradients), tf.device(global_step.device):
        step_before = tf.count_up_to(global_step, all_steps)
    with tf.control_dependencies([step_before]):
        update = averages.updated_after(optimizer.apply_gradients(changes))

# ---- 7. The session. The chief, worker 0, gives all variables that the graph has by now their
# first values, saves them from time to time, and leaves last. The other workers wait for it.
chief = Chief(flags, recorder, averages, global_step=global_step, probe=probe)
# A session runs on this worker's server, which sends each part of the graph to the task that runs
# it. With the filters it needs only the parameter servers, and does not wait for other workers.
config = tf.ConfigProto(device_filters=["/job:ps", myself])
config.log_device_placement = flags.log_device_placement
session = tf.Session(server.target, config=config)
chief.initialize_or_wait(session)


def test(**fields):
    """Test the current parameters, and record their accuracy."""
    feed = {images: mnist.test.images, labels: mnist.test.labels}
    accuracy_now, step = session.run([accuracy, step_at_read], feed)
    recorder.write("eval", global_step=step, accuracy=accuracy_now, **fields)
    return accuracy_now


# ---- 8. The training. `ready` returns in all workers at the same time, when the last is ready. A
# worker that `lab run --start` lets join later also waits for its global step.
recorder.ready(
    places(variables), learning_rate=base_rate, global_step=lambda: session.run(global_step)
)
own_steps = flags.epochs * steps_per_epoch
if flags.global_steps or recorder.attempt:  # Go on to `all_steps`; a restarted worker does, too.
    own_steps = math.inf
local_step, global_step_now = 0, session.run(global_step)
recorder.begin_training(flags, global_step_now, local_steps_per_epoch=steps_per_epoch)
with chief.leaves_last(session):
    while local_step < own_steps:
        batch_images, batch_labels = next(batches)
        feed = {images: batch_images, labels: batch_labels}
        try:  # One call of the session reads, computes, counts and applies.
            before, at_read, loss_now, _ = session.run(
                [step_before, step_at_read, loss, update], feed
            )
        except tf.errors.OutOfRangeError:
            break  # The global step has reached `all_steps`.
        local_step, global_step_now = local_step + 1, before + 1
        recorder.step(local_step, global_step_now, loss=loss_now, staleness=before - at_read)
        chief.save_when_due(session, global_step_now)
        if recorder.test_is_due():  # Only in the chief: every `--eval_every` global steps.
            test(local_step=local_step)
    own_accuracy = test()  # Other workers may still be training.

# ---- 9. When all workers have finished, the chief tests and saves the final parameters.
if is_chief:
    averages.test(session, recorder, images, labels, mnist.test)
    test(probe=round(float(session.run(probe))), message="final parameters")
    chief.save_model(session, parameters)
recorder.finish(accuracy=own_accuracy)
