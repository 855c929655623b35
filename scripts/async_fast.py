"""MNIST asynchronously, as fast as possible: the training of mnist_async.py with one call a step.

As there, every worker computes the gradients of one batch after another, and its update is applied
at once, without waiting for other workers. But there is no session. The parameter server offers a
function. A worker calls it with its change of the parameters, and receives the new parameters for
its next step. Compare this program with mnist_async.py, section by section.
"""

import sys
import threading
import time

import numpy as np
import tensorflow as tf
from in_one_message import Images, Packing, answer, connect, serve, take_number
from mnist_model import MODELS, share_correct
from one_core import keep_to_one_core
from split_batch import Towers, add_flag

from lab.task.sdk.data import load_mnist
from lab.task.sdk.flags import boolean, parse, positive, training_flags, whole
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

# ---- 1. This task, as in mnist_async.py.
parser = training_flags(__doc__)
parser.add_argument(
    "--steps_per_call", type=positive, default=110, help="steps in one call (default: 110)"
)
parser.add_argument(
    "--one_core", type=boolean, default=True, help="each task on one core (default: true)"
)
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
address = flags.ps_hosts[0]

leave_on_interrupt()
recorder = Recorder(flags.job_name, flags.task_index)
report_failure(recorder)
recorder.write("start", batch_size=flags.batch_size, status="starting")
if recorder.attempt:
    raise ProgramError("this program cannot resume a training", "use mnist_async.py for that")
if flags.one_core:
    keep_to_one_core(flags.task_index + (flags.job_name == "worker"))

# ---- 2. The model of the book, with its parameters in one vector.
model = MODELS["softmax"]
rate = flags.learning_rate or model.asynchronous_rate
packing = Packing(model.initial_parameters(flags.seed))

# ---- 3. The parameter server: the vector, and the functions that workers call.
if flags.job_name == "ps":
    tf.config.set_visible_devices([], "GPU")
    vector = tf.Variable(packing.initial_vector)
    global_step = tf.Variable(0, dtype=tf.int64)
    finished = tf.Variable([False] * workers)

    @tf.function(input_signature=[packing.spec])
    def exchange(change):
        """Count, apply, read; return the number of this update, and the vector."""
        number = take_number(global_step)
        with tf.control_dependencies([number]):  # Under the vector's lock: no update is lost.
            applied = vector.assign_sub(change, read_value=False)
        with tf.control_dependencies([applied]):
            return number, vector.read_value()

    @tf.function(input_signature=[])
    def read():
        """Return the step, then the vector, and which workers have finished."""
        step = global_step.read_value()
        with tf.control_dependencies([step]):
            return step, vector.read_value(), finished.read_value()

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def finish(task_index):
        """Mark a worker as finished; return which workers have finished so far."""
        finished.scatter_nd_update([[task_index]], [True])
        return finished.read_value()

    server = serve(address, exchange=exchange, read=read, finish=finish)
    recorder.write("event", status="ready", message=f"serves at {address}")
    threading.Event().wait()  # A parameter server serves until it is stopped.

towers = Towers(flags)
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * towers.cpu_devices,
)

# ---- 4. The data: the worker holds all images, and draws the indices of each batch.
mnist = load_mnist(flags.data_dir)
images = Images(mnist.train)
choices = mnist.train.choices(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
own_steps = flags.epochs * steps_per_epoch
if flags.global_steps:  # Each worker makes its share, the first ones one step more.
    own_steps = (flags.global_steps + workers - 1 - flags.task_index) // workers

recorder.write("event", message="waits for the parameter server")
ps = connect(address)


# ---- 5. The steps: one call makes many of them. Each step computes with the parameters that its
# previous exchange returned.
@tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64), packing.spec])
def make_steps(chosen, vector):
    """Make a step for each row of image indices, beginning with these parameters."""
    number, staleness, loss = tf.constant(0, tf.int64), tf.constant(0, tf.int64), 0.0
    for row in chosen:
        batch_images, batch_labels = images.batch(row)
        parameters = packing.parameters(vector)
        _, loss, gradients = towers.compute(model, batch_images, batch_labels, parameters)
        change = packing.change([rate * gradient for gradient in gradients])
        updates_seen = packing.updates(vector)
        number, vector = answer(ps.exchange(change), [], packing.spec.shape)
        # The updates by others from one read to the next one, which follows this step's own update.
        staleness = packing.updates(vector) - updates_seen - 1
    return number, staleness, loss, vector


@tf.function
def accuracy(vector):
    """The share of the test images that these parameters classify correctly."""
    logits = model.logits(mnist.test.images, packing.parameters(vector))
    return share_correct(logits, mnist.test.labels)


def steps_so_far():
    """The number of updates that the parameter server has made so far."""
    return ps.read_blocking()[0].numpy()


# ---- 6. All workers begin together, when the last one is ready. A late worker waits for its global
# step. Then each worker reads the current parameters.
finished = ps.read_blocking()[2]
if finished[flags.task_index]:
    raise ProgramError("the parameter servers still hold an earlier run", "restart them")
make_steps.get_concrete_function()
places = f"the parameters are on {address}"
recorder.write("event", status="ready", learning_rate=rate, message=places)
wait_for_start(steps_so_far)
step, vector, _ = ps.read_blocking()
updates_at_start = packing.updates(vector).numpy()

# ---- 7. The training.
local_step = last_recorded = staleness_sum = 0
global_step_now = step.numpy()
recorded_at = time.monotonic()
next_test = flags.eval_every if is_chief and flags.eval_every else sys.maxsize
while local_step < own_steps:
    # The first call makes one step, to record it. No call continues past the end of an epoch.
    left = min(own_steps - local_step, steps_per_epoch - local_step % steps_per_epoch)
    count = min(flags.steps_per_call, left) if local_step else 1
    chosen = np.stack([next(choices) for _ in range(count)])
    number, staleness, loss, vector = make_steps(chosen, vector)
    global_step_now = number.numpy() + 1
    local_step += count
    # Each update since the start is one of this worker's own, or it made one step stale by one.
    staleness_sum = packing.updates(vector).numpy() - updates_at_start - local_step
    epoch_ends = local_step % steps_per_epoch == 0
    now = time.monotonic()
    is_due = local_step - last_recorded >= flags.record_every or local_step in {1, own_steps}
    if epoch_ends or is_due:
        recorder.write(
            "epoch" if epoch_ends else "step",
            epoch=(local_step - 1) // steps_per_epoch,
            local_step=local_step,
            global_step=global_step_now,
            staleness=staleness.numpy(),
            staleness_sum=staleness_sum,
            loss=loss.numpy(),
            examples=local_step * flags.batch_size,
            step_time_s=(now - recorded_at) / (local_step - last_recorded),
        )
        last_recorded, recorded_at = local_step, now

    if global_step_now >= next_test:  # The other workers continue meanwhile.
        recorder.write(
            "eval",
            local_step=local_step,
            global_step=global_step_now,
            accuracy=accuracy(vector).numpy(),
        )
        next_test = (global_step_now // flags.eval_every + 1) * flags.eval_every
        recorded_at += time.monotonic() - now  # The next step time does not include the test.

# ---- 8. The test with the current parameters. Other workers may still improve them.
step_at_test, vector, _ = ps.read_blocking()
own_accuracy = accuracy(vector).numpy()
recorder.write("eval", global_step=step_at_test.numpy(), accuracy=own_accuracy)
told = ps.finish_blocking(flags.task_index)

# ---- 9. The chief waits for all workers, tests the final parameters and saves them.
if is_chief:
    recorder.write("event", message="waits until all workers have finished")
    # It does not wait for workers that have failed.
    while not all(told[task] or f"worker-{task}" in ended_tasks() for task in range(workers)):
        time.sleep(0.1)
        told = ps.finish_blocking(flags.task_index)
    final_step, vector, _ = ps.read_blocking()
    if run_dir := run_directory():
        parameters = {name: value.numpy() for name, value in packing.parameters(vector).items()}
        save_model(run_dir / "model", SavedModel("softmax", final_step.numpy(), parameters, {}))
    recorder.write(
        "eval",
        global_step=final_step.numpy(),
        probe=packing.updates(vector).numpy(),
        accuracy=accuracy(vector).numpy(),
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
