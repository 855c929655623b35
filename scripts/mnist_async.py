"""MNIST with parameter servers, asynchronously: no worker waits for another.

The parameter servers (job ps) hold the variables. Every worker runs the same loop independently:
read the parameters, compute the gradients of one batch, apply them at once. Other workers may
change the parameters between a worker's read and its update. Then its gradients are stale.
"""

import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf
from checkpoints import Keeper, load_newest
from mnist_model import MODELS, share_correct
from placement import ps_strategy
from session import Session, roll_call
from split_batch import Towers, add_flag

from lab.task.sdk.data import load_mnist
from lab.task.sdk.flags import parse, training_flags, whole
from lab.task.sdk.interrupt import leave_on_interrupt
from lab.task.sdk.model import SavedModel, save_model
from lab.task.sdk.program import (
    ProgramError,
    ended_tasks,
    make_directory,
    report_failure,
    run_directory,
    wait_for_start,
)
from lab.task.sdk.recorder import Recorder

RECORD_WITHIN_S = 5  # With slow steps, a step is recorded at least every 5 seconds.

# ---- 1. This task. The flags, or TF_CONFIG, give the cluster, this task's job and its index.
parser = training_flags(__doc__)
parser.add_argument(
    "--eval_every",
    type=whole,
    default=0,
    help="global steps from one test of the chief to the next (default: one test at the end)",
)
add_flag(parser)
flags = parse(parser)
is_chief = flags.job_name == "worker" and flags.task_index == 0
workers = len(flags.worker_hosts)
myself = f"/job:{flags.job_name}/task:{flags.task_index}"

leaving = leave_on_interrupt()
recorder = Recorder(flags.job_name, flags.task_index)
report_failure(recorder)
recorder.write("start", batch_size=flags.batch_size, status="starting")

tf.disable_eager_execution()  # The program builds a graph; then a session runs parts of it.
tf.logging.set_verbosity(tf.logging.ERROR)

# ---- 2. The cluster spec: all tasks with their addresses.
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})

# ---- 3. The server makes this process a task of the cluster. The use of GPUs is set here, because
# a session on this server cannot change it.
config = tf.ConfigProto()
if flags.job_name == "ps":
    config.device_count["GPU"] = 0
elif flags.gpu_memory_fraction:
    config.gpu_options.per_process_gpu_memory_fraction = flags.gpu_memory_fraction
else:
    config.gpu_options.allow_growth = True
towers = Towers(flags, myself)
config.device_count["CPU"] = towers.cpu_devices
try:
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=config)
except tf.errors.UnknownError:
    host = cluster.task_address(flags.job_name, flags.task_index)
    raise ProgramError(f"cannot listen on {host}", "stop the program that uses it") from None
if flags.job_name == "ps":
    recorder.write("event", status="ready", message=f"serves at {server.target}")
    server.join()  # A parameter server serves until it is stopped: join never returns.

# ---- 4. The data: every worker has all images, and draws batches in its own order.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
own_steps = flags.epochs * steps_per_epoch
all_steps = flags.global_steps or own_steps * workers
if flags.global_steps or recorder.attempt:  # A restarted worker makes any of the remaining steps.
    own_steps = sys.maxsize

# ---- 5. The graph: the same in every worker. The device setter places each variable on a
# parameter server, and every other operation on this worker.
model = MODELS[flags.model]
base_rate = flags.learning_rate or model.asynchronous_rate
run_dir = run_directory()
checkpoint_dir = flags.checkpoint_dir or (run_dir and run_dir / "checkpoints")
initial_values = model.initial_parameters(flags.seed)
saved, steps_done = {}, 0
if is_chief and checkpoint_dir:
    make_directory(checkpoint_dir)
    saved, steps_done = load_newest(checkpoint_dir, initial_values, recorder)
    initial_values = {name: saved.get(name, value) for name, value in initial_values.items()}

with tf.device(
    tf.train.replica_device_setter(
        cluster=cluster,
        worker_device=myself,
        ps_strategy=ps_strategy(flags.ps_strategy, len(flags.ps_hosts)),
    )
):
    variables = {
        name: tf.get_variable(name, initializer=value) for name, value in initial_values.items()
    }
    global_step = tf.get_variable("global_step", initializer=np.int64(steps_done))
    # A probe for lost updates: every update adds exactly one to it.
    probe = tf.get_variable("probe", initializer=np.float32(steps_done))

    images = tf.placeholder(tf.float32, [None, 784], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")

    # Read: the global step first, then each parameter once.
    step_at_read = global_step.read_value()
    with tf.control_dependencies([step_at_read]):
        parameters = {name: variable.read_value() for name, variable in variables.items()}

    # Compute: on the worker's device, or on several devices with a part of the batch each.
    logits, loss, gradients = towers.compute(model, images, labels, parameters)
    accuracy = share_correct(logits, labels)

    # Count: take a number. Each step gets a different one. The operation fails when all numbers are
    # taken, so the training has exactly `all_steps` updates. No variable changes before it.
    everyone = roll_call([*(f"/job:ps/task:{task}" for task in range(len(flags.ps_hosts))), myself])
    with tf.control_dependencies([*gradients, *everyone]), tf.device(global_step.device):
        number = tf.count_up_to(global_step, all_steps)

    # Apply, at once, under each variable's lock. If two workers write a variable at the same time,
    # one waits, and no update is lost.
    learning_rate = tf.train.exponential_decay(
        base_rate,
        step_at_read,
        decay_steps=600,
        decay_rate=model.decay,
    )
    optimizer = tf.train.GradientDescentOptimizer(learning_rate, use_locking=True)
    with tf.control_dependencies([number]):
        update = optimizer.apply_gradients(
            [*zip(gradients, variables.values(), strict=True), (-1.0 / learning_rate, probe)]
        )

    # The chief keeps moving averages of the parameters, if the model uses them.
    averages = {}
    if is_chief and model.moving_average:
        follower = tf.train.ExponentialMovingAverage(model.moving_average, global_step)
        with tf.control_dependencies([update]):
            update = follower.apply(list(variables.values()))
        averages = {name: follower.average(variable) for name, variable in variables.items()}
        accuracy_of_averages = share_correct(model.logits(images, averages), labels)

# Each worker has an element of `finished`, and sets it to 1 at its end.
with tf.device("/job:ps/task:0"):
    finished = tf.get_variable("finished", initializer=np.zeros(workers, np.int32))
    tell_finished = tf.scatter_update(finished, flags.task_index, 1)

keeper = None
if is_chief and checkpoint_dir:
    with tf.device(myself):  # The chief writes the checkpoints, not the parameter servers.
        keeper = Keeper(checkpoint_dir, [global_step, *variables.values(), *averages.values()])
initialize = tf.global_variables_initializer()
missing_variables = tf.report_uninitialized_variables(tf.global_variables())

# ---- 6. The session runs on this worker's server, which sends each part of the graph to its task.
# The filters hide the other workers, so that the session does not wait for them.
config = tf.ConfigProto(
    log_device_placement=flags.log_device_placement, device_filters=["/job:ps", myself]
)
recorder.write("event", message="waits for the parameter servers and the chief")
session = Session(server.target, recorder, config)

# The chief initializes the variables, and the other workers wait for it. A restarted chief uses the
# existing variables, unless a parameter server was restarted, too. In the first attempt existing
# variables are an error: they belong to an earlier run.
if is_chief:
    if len(session.run(missing_variables)):
        session.run(initialize)
        for average in averages.values() if saved else ():
            average.load(saved[average.op.name], session)
        begins = f"resumes from the checkpoint of step {steps_done}" if saved else "starts again"
        if saved or recorder.attempt:
            recorder.write("event", global_step=steps_done, message=begins)
    elif recorder.attempt == 0:
        raise ProgramError("the parameter servers still hold an earlier run", "restart them")
while len(session.run(missing_variables)):
    time.sleep(0.2)
places = ", ".join(f"{variable.op.name} on {variable.device}" for variable in variables.values())
recorder.write("event", status="ready", learning_rate=base_rate, message=places)
# All workers begin together, when the last one is ready. A late worker waits for its global step.
wait_for_start(lambda: session.run(global_step))
if keeper:
    leaving.first(lambda: keeper.save(session, session.run(global_step)))

# ---- 7. The training: each call of the session reads, computes, counts and applies once.
local_step = last_recorded = staleness_sum = 0
global_step_now = steps_done
recorded_at = saved_at = time.monotonic()
test = {images: mnist.test.images, labels: mnist.test.labels}
next_test = flags.eval_every if is_chief and flags.eval_every else sys.maxsize
while local_step < own_steps:
    batch_images, batch_labels = next(batches)
    try:
        steps_before, steps_at_read, loss_now, _ = session.run(
            [number, step_at_read, loss, update], {images: batch_images, labels: batch_labels}
        )
    except tf.errors.OutOfRangeError:
        break  # All numbers are taken.
    local_step += 1
    global_step_now = steps_before + 1
    staleness_sum += steps_before - steps_at_read
    now = time.monotonic()

    epoch_ends = local_step % steps_per_epoch == 0
    is_due = local_step % flags.record_every == 0 or now - recorded_at > RECORD_WITHIN_S
    if epoch_ends or is_due or local_step == 1:
        recorder.write(
            "epoch" if epoch_ends else "step",
            epoch=(local_step - 1) // steps_per_epoch,
            local_step=local_step,
            global_step=global_step_now,
            staleness=steps_before - steps_at_read,
            staleness_sum=staleness_sum,
            loss=loss_now,
            examples=local_step * flags.batch_size,
            step_time_s=(now - recorded_at) / (local_step - last_recorded),
        )
        last_recorded, recorded_at = local_step, now

    if keeper and now - saved_at > flags.checkpoint_every:
        keeper.save(session, global_step_now)
        saved_at = now

    if global_step_now >= next_test:  # The other workers continue meanwhile.
        accuracy_now, steps_at_test = session.run([accuracy, step_at_read], test)
        recorder.write(
            "eval", local_step=local_step, global_step=steps_at_test, accuracy=accuracy_now
        )
        next_test = (steps_at_test // flags.eval_every + 1) * flags.eval_every
        recorded_at += time.monotonic() - now  # The next step time does not include the test.

# ---- 8. The test with the current parameters. Other workers may still improve them.
own_accuracy, steps_at_test = session.run([accuracy, step_at_read], test)
recorder.write("eval", global_step=steps_at_test, accuracy=own_accuracy)
session.run(tell_finished)


def all_have_finished():
    """Whether every worker has finished, except workers that have failed."""
    told, gone = session.run(finished), ended_tasks()
    return all(told[task] or f"worker-{task}" in gone for task in range(workers))


# ---- 9. The chief waits for all workers, tests the final parameters and saves them.
if is_chief:
    recorder.write("event", message="waits until all workers have finished")
    while not all_have_finished():
        time.sleep(0.1)
    final_parameters, final_averages, final_step, final_probe, final_accuracy = session.run(
        [parameters, averages, step_at_read, probe, accuracy], test
    )
    if averages:
        recorder.write(
            "eval",
            global_step=final_step,
            accuracy=session.run(accuracy_of_averages, test),
            message="moving averages of the parameters",
        )
    if keeper:
        keeper.save(session, final_step)
    if model_dir := run_dir / "model" if run_dir else flags.checkpoint_dir:
        save_model(model_dir, SavedModel(flags.model, final_step, final_parameters, final_averages))
    recorder.write(
        "eval",
        global_step=final_step,
        probe=round(float(final_probe)),
        accuracy=final_accuracy,
        message="final parameters",
    )

recorder.write(
    "final",
    epoch=max(local_step - 1, 0) // steps_per_epoch,
    local_step=local_step,
    global_step=global_step_now,
    staleness_sum=staleness_sum,
    examples=local_step * flags.batch_size,
    accuracy=own_accuracy,
    status="succeeded",
)
