"""MNIST asynchronously, as fast as possible: the training of mnist_async.py with one call a step.

Shows: a step costs messages, not computation. One call sends a change and returns the parameters.
Try to break: the order of exchanges. Remove a `tf.control_dependencies`, or slow a worker down.

As in mnist_async.py, every worker computes the gradients of one batch after another, and its update
is applied at once. But there is no session: the parameter server offers a function, and the worker
calls it. Compare both programs, section by section.
"""

import threading
import time

import numpy as np
import tensorflow as tf
from in_one_message import Images, Packing, answer, connect, keep_to_one_core, serve, take_number
from mnist_model import MODELS, share_correct

from lab.task.sdk import ProgramError, begin, ended_tasks, load_mnist, save_trained

# ---- 1. This task, as in mnist_async.py.
flags, recorder = begin("async-fast", __doc__)
is_chief = flags.job_name == "worker" and flags.task_index == 0
workers = len(flags.worker_hosts)
address = flags.ps_hosts[0]
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
    recorder.ready(f"serves at {address}")
    threading.Event().wait()  # A parameter server serves until it is stopped.

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
        loss = model.loss(model.logits(batch_images, parameters), batch_labels, parameters)
        gradients = tf.gradients(loss, list(parameters.values()))
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
recorder.ready(places, learning_rate=rate, global_step=steps_so_far)
step, vector, _ = ps.read_blocking()
updates_at_start = packing.updates(vector).numpy()

# ---- 7. The training.
local_step = 0
recorder.begin_training(
    flags, step.numpy(), local_steps_per_epoch=steps_per_epoch, last_step=own_steps
)
while local_step < own_steps:
    # The first call makes one step, to record it. No call continues past the end of an epoch.
    left = min(own_steps - local_step, steps_per_epoch - local_step % steps_per_epoch)
    count = min(flags.steps_per_call, left) if local_step else 1
    chosen = np.stack([next(choices) for _ in range(count)])
    number, staleness, loss, vector = make_steps(chosen, vector)
    local_step += count
    recorder.step(
        local_step,
        number.numpy() + 1,
        loss=loss.numpy(),
        staleness=staleness.numpy(),
        # Each update since the start is this worker's own, or it made one step stale by one.
        staleness_sum=packing.updates(vector).numpy() - updates_at_start - local_step,
    )
    if recorder.test_is_due():
        recorder.write(
            "eval",
            local_step=local_step,
            global_step=number.numpy() + 1,
            accuracy=accuracy(vector).numpy(),
        )

# ---- 8. The test with the current parameters. Other workers may still improve them.
step_at_test, vector, _ = ps.read_blocking()
own_accuracy = accuracy(vector).numpy()
recorder.write("eval", global_step=step_at_test.numpy(), accuracy=own_accuracy)
finished = ps.finish_blocking(flags.task_index)

# ---- 9. The chief waits for all workers, tests the final parameters and saves them.
if is_chief:
    recorder.write("event", message="waits until all workers have finished")
    # It does not wait for workers that have failed.
    while not all(finished[task] or f"worker-{task}" in ended_tasks() for task in range(workers)):
        time.sleep(0.1)
        finished = ps.finish_blocking(flags.task_index)
    final_step, vector, _ = ps.read_blocking()
    parameters = {name: value.numpy() for name, value in packing.parameters(vector).items()}
    save_trained(flags, final_step.numpy(), parameters)
    recorder.write(
        "eval",
        global_step=final_step.numpy(),
        probe=packing.updates(vector).numpy(),
        accuracy=accuracy(vector).numpy(),
        message="final parameters",
    )

recorder.finish(accuracy=own_accuracy)
