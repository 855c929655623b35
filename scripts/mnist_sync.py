"""MNIST with parameter servers, synchronously: the workers make each update together.

Shows: a worker computes gradients from one batch, hands them in, and waits for the next update.
Try to break: slow a worker down, or use fewer gradients than workers. Who waits for whom?

An update applies the mean of `--replicas_to_aggregate` gradients (by default one of each worker).
The workers wait for it on a queue. `mnist_async.py` is the same program except for sections 1, 6
and 8.
"""

from concurrent.futures import ThreadPoolExecutor

import tensorflow.compat.v1 as tf
from chief import Chief
from mnist_model import MODELS, MovingAverages, share_correct
from placement import places, ps_strategy, server_config

from lab.protocol.mnist import load_mnist
from lab.task.sdk.program import ProgramError, begin

# ---- 1. A cluster is a set of jobs, here `ps` and `worker`. A job has numbered tasks: each task is
# a process with an address. The flags, or the variable TF_CONFIG, say which task this one is. The
# recorder writes what `lab` collects.
flags, recorder = begin("sync", __doc__)
model = MODELS[flags.model]
base_rate = flags.learning_rate or model.synchronous_rate

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

    # ---- 6. Update, in rounds. Each worker hands its gradients in: an accumulator on the parameter
    # server adds them up. When there are enough, the chief applies their mean, adds one to the
    # global step, and puts that number into a queue: as many copies as there are workers, or
    # gradients in an update if these are more. After handing in, a worker takes such a token and
    # goes on. If there has been another update when it hands in again, its gradients are dropped.
    needed = flags.replicas_to_aggregate or num_workers
    sync_optimizer = tf.train.SyncReplicasOptimizer(
        optimizer,
        replicas_to_aggregate=needed,
        total_num_replicas=num_workers,
        variable_averages=averages.follower,
        variables_to_average=list(variables.values()),
    )
    with tf.control_dependencies(gradients):
        computed_at = tf.timestamp()
    token = sync_optimizer.apply_gradients(changes, global_step)  # hands in, then takes a token
    with tf.control_dependencies([token]):
        waited = tf.timestamp() - computed_at

    # What the chief runs for each update: wait for enough gradients, apply their mean, put tokens.
    runner = sync_optimizer.get_chief_queue_runner()
    (update,) = runner.enqueue_ops
    close_tokens = runner.close_op
    # If an update needs more gradients than there are workers, some worker must hand in twice
    # before the first update. It needs a token in between.
    first_tokens = sync_optimizer.get_init_tokens_op(max(0, needed - num_workers))

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


# ---- 8. The training. Besides its own steps, the chief makes the updates, in a thread.
def make_updates(count):
    """Make this number of updates; then close the queue of tokens, so that no worker waits for one.

    The usual way is the optimizer's `make_session_run_hook`. Its thread makes updates until the
    chief's session ends, and a worker that is still waiting at that point gets no token.
    """
    try:
        for _ in range(count):
            session.run(update)
    finally:
        session.run(close_tokens)  # Workers still get the tokens that are in it.


# `ready` returns in all workers at the same time, when the last is ready.
recorder.ready(places(variables), learning_rate=base_rate)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch  # Each uses all workers' batches.
local_step, global_step_now = 0, session.run(global_step)
session.run(sync_optimizer.local_step_init_op)  # The optimizer's own counters begin here, too.
if is_chief:
    session.run([sync_optimizer.chief_init_op, first_tokens])
    updates = ThreadPoolExecutor().submit(make_updates, all_steps - global_step_now)
recorder.begin_training(flags, global_step_now, global_steps_per_epoch=steps_per_epoch)
with chief.leaves_last(session):
    while global_step_now < all_steps:
        batch_images, batch_labels = next(batches)
        feed = {images: batch_images, labels: batch_labels}
        try:
            step, waited_s, loss_now = session.run([token, waited, loss], feed)
        except tf.errors.OutOfRangeError:
            break  # The queue is closed and empty: no update will follow.
        local_step, global_step_now = local_step + 1, step
        recorder.step(local_step, global_step_now, loss=loss_now, wait_time_s=waited_s)
        chief.save_when_due(session, global_step_now)
        if recorder.test_is_due():  # Only in the chief: every `--eval_every` global steps.
            test(local_step=local_step)
    if is_chief:
        updates.result()  # It waits for the thread, and raises its error.
    if (steps_made := session.run(global_step)) < all_steps:
        raise ProgramError(f"the chief stopped after update {steps_made}", "read its messages")
    own_accuracy = test()

# ---- 9. When all workers have finished, the chief tests and saves the final parameters.
if is_chief:
    averages.test(session, recorder, images, labels, mnist.test)
    test(probe=round(float(session.run(probe))), message="final parameters")
    chief.save_model(session, parameters)
recorder.finish(accuracy=own_accuracy)
