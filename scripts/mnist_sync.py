"""MNIST with parameter servers, synchronously: all workers make each update together.

Shows: every worker computes gradients from one batch, and waits until their mean is applied.
Try to break: slow a worker down, or use fewer gradients than workers. Who waits for whom?

With the mean of `--replicas_to_aggregate` gradients the chief makes an update, and puts a token for
each worker into a queue. `mnist_async.py` is the same program, but for the sections 1, 6 and 8.
"""

from concurrent.futures import ThreadPoolExecutor

import tensorflow.compat.v1 as tf
from chief import Chief
from mnist_model import MODELS, MovingAverages, share_correct
from placement import places, ps_strategy, server_config

from lab.protocol.mnist import load_mnist
from lab.task.sdk.flags import experiment_flags, parse
from lab.task.sdk.program import ProgramError, begin

# ---- 1. The flags, or TF_CONFIG, give the cluster, this task's job and its index.
flags = parse(experiment_flags("sync", __doc__))
model = MODELS[flags.model]
base_rate = flags.learning_rate or model.synchronous_rate

# ---- 2. The server makes this process a task of the cluster. The spec lists all tasks.
recorder = begin(flags, batch_size=flags.batch_size)  # It writes the records that `lab` collects.
tf.disable_eager_execution()  # The program builds a graph; then a session runs parts of it.
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
if flags.job_name == "ps":
    recorder.ready(f"serves at {server.target}")
    server.join()  # A parameter server serves until it is stopped: join never returns.

# ---- 3. The data: every worker has all images, and draws batches in its own order.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)

# ---- 4. The variables. Every worker builds the same graph: the setter places variables on the
# parameter servers, one after another, and all else on this worker.
myself = f"/job:worker/task:{flags.task_index}"
is_chief = flags.task_index == 0
num_workers = len(flags.worker_hosts)
strategy = ps_strategy(flags.ps_strategy, len(flags.ps_hosts))
setter = tf.train.replica_device_setter(cluster=cluster, worker_device=myself, ps_strategy=strategy)
with tf.device(setter):
    initial_values = model.initial_parameters(flags.seed).items()
    variables = {name: tf.get_variable(name, initializer=value) for name, value in initial_values}
    global_step = tf.get_variable("global_step", initializer=tf.constant(0, tf.int64))
    # A probe for lost updates: see where its gradient is computed.
    probe = tf.get_variable("probe", initializer=0.0)
    images = tf.placeholder(tf.float32, [None, 784], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")

    # ---- 5. Read and compute. The global step is read first, then each parameter once, so that all
    # gradients use these values, and none is newer than the step says.
    step_at_read = global_step.read_value()
    with tf.control_dependencies([step_at_read]):
        parameters = {name: variable.read_value() for name, variable in variables.items()}
    logits = model.logits(images, parameters)
    loss = model.loss(logits, labels, parameters)
    accuracy = share_correct(logits, labels)
    gradients = tf.gradients(loss, list(parameters.values()))
    # The rate of the model `mlp` decays as in the blog; the decay of `softmax` is 1: none.
    rate = tf.train.exponential_decay(base_rate, step_at_read, 600, model.decay)
    optimizer = tf.train.GradientDescentOptimizer(rate, use_locking=True)
    # An update subtracts the gradient times the rate. So a gradient of -1 / rate adds one to the
    # probe: at the end it has the number of the updates that arrived.
    changes = [*zip(gradients, variables.values(), strict=True), (-1.0 / rate, probe)]
    averages = MovingAverages(model, variables, global_step, is_chief)

    # ---- 6. Update: hand the gradients in, and wait. An accumulator on the parameter server adds
    # them up. Then the worker takes a token, which is the number of an update. Gradients of a
    # worker with an older token are dropped.
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
    add_and_wait = sync_optimizer.apply_gradients(changes, global_step)
    with tf.control_dependencies([add_and_wait]):
        waited = tf.timestamp() - computed_at

    # What the chief runs: apply the mean of the gradients, then add tokens to the queue.
    runner = sync_optimizer.get_chief_queue_runner()
    update, close_tokens = runner.enqueue_ops[0], runner.close_op
    # Only an update of more gradients than workers needs spare tokens at the start.
    first_tokens = sync_optimizer.get_init_tokens_op(max(0, needed - num_workers))

# ---- 7. The session runs on this worker's server, which sends each part of the graph to its task.
# The filters hide the other workers, so that the session does not wait for them.
chief = Chief(flags, recorder, averages, global_step=global_step, probe=probe)
config = tf.ConfigProto(device_filters=["/job:ps", myself])
config.log_device_placement = flags.log_device_placement
session = tf.Session(server.target, config=config)
chief.initialize_or_wait(session)  # The chief initializes or resumes; the others wait.


def test(**fields):
    """Test the current parameters, and record their accuracy."""
    feed = {images: mnist.test.images, labels: mnist.test.labels}
    accuracy_now, step = session.run([accuracy, step_at_read], feed)
    recorder.write("eval", global_step=step, accuracy=accuracy_now, **fields)
    return accuracy_now


# ---- 8. The training. Besides its own steps, the chief makes the updates, in a thread.
def make_updates(count):
    """Make this number of updates.

    The usual way is the optimizer's `make_session_run_hook`. Its thread makes updates until the
    session ends, and then a worker may wait for a token that never comes. This one makes as many as
    are wanted, and then closes the queue.
    """
    try:
        for _ in range(count):
            session.run(update)
    finally:
        session.run(close_tokens)


# All workers begin together, when the last one is ready.
recorder.ready(places(variables), learning_rate=base_rate)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch  # Each is one update for all.
local_step, global_step_now = 0, session.run(global_step)
session.run(sync_optimizer.local_step_init_op)
if is_chief:  # It also works like any other worker.
    session.run([sync_optimizer.chief_init_op, first_tokens])
    updater = ThreadPoolExecutor().submit(make_updates, all_steps - global_step_now)
recorder.begin_training(flags, global_step_now, global_steps_per_epoch=steps_per_epoch)
with chief.leaves_last(session):
    while global_step_now < all_steps:
        batch_images, batch_labels = next(batches)
        feed = {images: batch_images, labels: batch_labels}
        try:
            token, waited_s, loss_now = session.run([add_and_wait, waited, loss], feed)
        except tf.errors.OutOfRangeError:
            break  # The queue of tokens is closed.
        local_step, global_step_now = local_step + 1, token
        recorder.step(local_step, global_step_now, loss=loss_now, wait_time_s=waited_s)
        chief.save_when_due(session, global_step_now)
        if recorder.test_is_due():  # In the chief, every `--eval_every` global steps.
            test(local_step=local_step)
    if is_chief:
        updater.result()  # It waits for the thread, and raises its error.
    if (steps_made := session.run(global_step)) < all_steps:
        raise ProgramError(f"the chief stopped after update {steps_made}", "read its messages")
    own_accuracy = test()

# ---- 9. All workers have finished: the chief tests and saves the final parameters.
if is_chief:
    averages.test(session, recorder, images, labels, mnist.test)
    test(probe=round(float(session.run(probe))), message="final parameters")
    chief.save_model(session, parameters)
recorder.finish(accuracy=own_accuracy)
