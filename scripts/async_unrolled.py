"""MNIST asynchronously, with many steps in one call of the session.

As in mnist_async.py, every worker reads, computes and applies, step by step, without waiting for
other workers. Three changes save time: the images stay in the worker, one call of the session
makes many steps, and all parameters are sent in one message. Flags undo each change except the
first. Compare this program with mnist_async.py, section by section, and then with async_fast.py.
"""

import time
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from mnist_model import MODELS, share_correct
from one_core import keep_to_one_core
from resident import Apart, Images, Packed, take_number
from session import Session, roll_call
from split_batch import Towers, add_flag

from lab.task.sdk.data import PIXELS, load_mnist
from lab.task.sdk.flags import boolean, one_of, parse, positive, training_flags
from lab.task.sdk.interrupt import leave_on_interrupt
from lab.task.sdk.model import SavedModel, save_model
from lab.task.sdk.program import (
    ProgramError,
    ended_tasks,
    report_failure,
    run_directory,
    wait_for_start,
)
from lab.task.sdk.recorder import Recorder

# ---- 1. This task, as in mnist_async.py, and flags that undo the changes.
parser = training_flags(__doc__)
faster = parser.add_argument_group("flags for speed")
faster.add_argument(
    "--fetch",
    type=one_of("recorded", "every"),
    default="recorded",
    help="the steps whose results are fetched: the recorded ones, or every one (default: recorded)",
)
faster.add_argument(
    "--steps_per_call", type=positive, default=110, help="steps in one call (default: 110)"
)
faster.add_argument(
    "--packed", type=boolean, default=True, help="all parameters in one message (default: true)"
)
faster.add_argument(
    "--one_core", type=boolean, default=True, help="each task on one core (default: true)"
)
add_flag(parser)
flags = parse(parser)
is_chief = flags.job_name == "worker" and flags.task_index == 0
workers = len(flags.worker_hosts)
myself = f"/job:{flags.job_name}/task:{flags.task_index}"

leave_on_interrupt()
recorder = Recorder(flags.job_name, flags.task_index)
report_failure(recorder)
recorder.write("start", batch_size=flags.batch_size, status="starting")

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)

# ---- 2, 3. The cluster spec and the server. The operations of a step run one after another, and so
# do the messages. More threads on more cores would only cost time to wake each other up.
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
config = tf.ConfigProto()
if flags.one_core:
    keep_to_one_core(flags.task_index + (flags.job_name == "worker"))
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
    server.join()

# ---- 4. The data: the worker holds all images, and draws the indices of each batch.
mnist = load_mnist(flags.data_dir)
choices = mnist.train.choices(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
own_steps = flags.epochs * steps_per_epoch
if flags.global_steps:  # Each worker makes its share, the first ones one step more.
    own_steps = (flags.global_steps + workers - 1 - flags.task_index) // workers

# ---- 5. The graph. A step is the same as in mnist_async.py: it reads the parameters after its own
# last update, computes, takes a number, and applies at once.
model = MODELS["softmax"]
rate = flags.learning_rate or model.asynchronous_rate

with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=myself)):
    shared = (Packed if flags.packed else Apart)(model.initial_parameters(flags.seed))
    global_step = tf.get_variable("global_step", initializer=np.int64(0), use_resource=True)
    images = Images(mnist.train, myself)
    everyone = roll_call([*(f"/job:ps/task:{task}" for task in range(len(flags.ps_hosts))), myself])


class Steps(NamedTuple):
    """The results of one step, or of several steps in one call, and their update."""

    numbers: tf.Tensor
    steps_at_read: tf.Tensor
    losses: tf.Tensor
    staleness_sum: tf.Tensor
    update: tf.Operation


def step(chosen, before):
    """Build one step, which runs after the operations in `before`."""
    with tf.control_dependencies(before), tf.device(global_step.device):
        step_at_read = global_step.read_value()
    with tf.control_dependencies([step_at_read]):
        parameters = shared.read()
    batch_images, batch_labels = images.batch(chosen)
    _, loss, gradients = towers.compute(model, batch_images, batch_labels, parameters)
    changes = {name: rate * gradient for name, gradient in zip(parameters, gradients, strict=True)}
    arrived = shared.send(changes)
    with tf.control_dependencies([*arrived, *everyone]), tf.device(global_step.device):
        number = take_number(global_step)
    with tf.control_dependencies([number]):
        return Steps(number, step_at_read, loss, number - step_at_read, shared.subtract(arrived))


def steps(count, chosen):
    """Build `count` consecutive steps; their results are one message, not one for each step."""
    made = [step(chosen[0], [])]
    for index in range(1, count):
        made.append(step(chosen[index], [made[-1].update]))
    numbers, steps_at_read, losses, stalenesses, updates = zip(*made, strict=True)
    with tf.device(global_step.device):
        numbers, steps_at_read = tf.stack(numbers), tf.stack(steps_at_read)
        staleness_sum = tf.add_n(stalenesses)
    return Steps(numbers, steps_at_read, tf.stack(losses), staleness_sum, updates[-1])


with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=myself)):
    chosen = tf.placeholder(tf.int32, [None, flags.batch_size], "chosen")
    in_one_call = {count: steps(count, chosen) for count in {flags.steps_per_call, 1}}

    test_images = tf.placeholder(tf.float32, [None, PIXELS], "images")
    test_labels = tf.placeholder(tf.int32, [None], "labels")
    step_at_test = global_step.read_value()
    with tf.control_dependencies([step_at_test]):
        parameters = shared.read()
    accuracy = share_correct(model.logits(test_images, parameters), test_labels)

with tf.device("/job:ps/task:0"):
    finished = tf.get_variable("finished", initializer=np.zeros(workers, np.int32))
    tell_finished = tf.scatter_update(finished, flags.task_index, 1)

initialize = tf.global_variables_initializer()
missing_variables = tf.report_uninitialized_variables(tf.global_variables())

# ---- 6. The session, as in mnist_async.py, but without checkpoints: a training takes seconds.
config = tf.ConfigProto(
    log_device_placement=flags.log_device_placement, device_filters=["/job:ps", myself]
)
recorder.write("event", message="waits for the parameter servers and the chief")
session = Session(server.target, recorder, config)
if recorder.attempt:
    raise ProgramError("this program cannot resume a training", "use mnist_async.py for that")
if is_chief:
    if not len(session.run(missing_variables)):
        raise ProgramError("the parameter servers still hold an earlier run", "restart them")
    session.run(initialize)
while len(session.run(missing_variables)):
    time.sleep(0.2)
images.load(session)
places = f"the parameters are on {global_step.device}"
recorder.write("event", status="ready", learning_rate=rate, message=places)
wait_for_start(lambda: session.run(global_step))

# ---- 7. The training: each call makes many steps.
local_step = last_recorded = staleness_sum = 0
global_step_now = 0
recorded_at = time.monotonic()
while local_step < own_steps:
    # A call never continues past the end of an epoch.
    left = min(own_steps - local_step, steps_per_epoch - local_step % steps_per_epoch)
    count = flags.steps_per_call if left >= flags.steps_per_call else 1
    of_the_call = {chosen: [next(choices) for _ in range(count)]}
    local_step += count
    epoch_ends = local_step % steps_per_epoch == 0
    is_due = local_step - last_recorded >= flags.record_every or local_step in {count, own_steps}
    if not (epoch_ends or is_due or flags.fetch == "every"):
        of_call, _ = session.run(in_one_call[count][-2:], of_the_call)
        staleness_sum += of_call
        continue
    numbers, steps_at_read, losses, of_call, _ = session.run(in_one_call[count], of_the_call)
    staleness_sum += of_call
    global_step_now = numbers[-1] + 1
    now = time.monotonic()
    if epoch_ends or is_due:
        recorder.write(
            "epoch" if epoch_ends else "step",
            epoch=(local_step - 1) // steps_per_epoch,
            local_step=local_step,
            global_step=global_step_now,
            staleness=numbers[-1] - steps_at_read[-1],
            staleness_sum=staleness_sum,
            loss=losses[-1],
            examples=local_step * flags.batch_size,
            step_time_s=(now - recorded_at) / (local_step - last_recorded),
        )
        last_recorded, recorded_at = local_step, now

# ---- 8. The test with the current parameters. Other workers may still improve them.
test = {test_images: mnist.test.images, test_labels: mnist.test.labels}
own_accuracy, steps_at_test = session.run([accuracy, step_at_test], test)
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
    final_parameters, final_step, final_probe, final_accuracy = session.run(
        [parameters, step_at_test, shared.probe, accuracy], test
    )
    if run_dir := run_directory():
        save_model(run_dir / "model", SavedModel("softmax", final_step, final_parameters, {}))
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
