"""MNIST synchronously, as fast as possible: the rounds of mnist_sync.py with one call a round.

Shows: a round needs no chief. The last call of a round makes the update, and answers all workers.
Try to break: the rounds. Remove a `tf.control_dependencies`, or slow a worker down.

As in mnist_sync.py, each round makes one update of the parameters, by the mean of all workers'
changes. But there is no session: the parameter server offers a function, and the worker calls it
with its change. All calls return the new parameters. Compare both programs, section by section.
"""

import threading
import time

import numpy as np
import tensorflow as tf
from in_one_message import Images, Packing, answer, connect, keep_to_one_core, serve, take_number
from mnist_model import MODELS, share_correct

from lab.task.sdk import ProgramError, begin, ended_tasks, load_mnist, save_trained

# ---- 1. This task, as in mnist_sync.py.
flags, recorder = begin("sync-fast", __doc__)
is_chief = flags.job_name == "worker" and flags.task_index == 0
workers = len(flags.worker_hosts)
address = flags.ps_hosts[0]
if recorder.attempt:
    raise ProgramError("this program cannot resume a training", "use mnist_sync.py for that")
if flags.one_core:
    keep_to_one_core(flags.task_index + (flags.job_name == "worker"))

# ---- 2. The model of the book, with its parameters in one vector.
model = MODELS["softmax"]
rate = flags.learning_rate or model.synchronous_rate
packing = Packing(model.initial_parameters(flags.seed))

# ---- 3. The parameter server: the vector, and the functions that workers call.
if flags.job_name == "ps":
    tf.config.set_visible_devices([], "GPU")
    vector = tf.Variable(packing.initial_vector)
    global_step = tf.Variable(0, dtype=tf.int64)
    finished = tf.Variable([False] * workers)

    handed_in = tf.Variable(0, dtype=tf.int64)
    sum_of_changes = tf.Variable(tf.zeros(packing.spec.shape))
    tokens = [tf.queue.FIFOQueue(1, [tf.int64], [[]]) for _ in range(workers)]

    def take_part(task_index):
        """Return the function that one worker calls in each round."""

        @tf.function(input_signature=[packing.spec])
        def exchange(change):
            """Add the change, wait; return the step after this round's update, and the vector."""
            added = sum_of_changes.assign_add(change, read_value=False)
            with tf.control_dependencies([added]):
                place = take_number(handed_in) % workers
            if place == workers - 1:  # The last call of the round makes the update.
                updated = vector.assign_sub(sum_of_changes / workers, read_value=False)
                cleared = sum_of_changes.assign(tf.zeros_like(sum_of_changes), read_value=False)
                with tf.control_dependencies([updated, cleared]):
                    step = global_step.assign_add(1)
                for queue in tokens:
                    queue.enqueue(step)
            token = tokens[task_index].dequeue()
            with tf.control_dependencies([token]):
                return token, vector.read_value()

        return exchange

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

    exchanges = {f"exchange_{task_index}": take_part(task_index) for task_index in range(workers)}
    server = serve(address, read=read, finish=finish, **exchanges)
    recorder.ready(f"serves at {address}")
    threading.Event().wait()  # A parameter server serves until it is stopped.

# ---- 4. The data: the worker holds all images, and draws the indices of each batch.
mnist = load_mnist(flags.data_dir)
images = Images(mnist.train)
choices = mnist.train.choices(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch

recorder.write("event", message="waits for the parameter server")
ps = connect(address)
exchange = getattr(ps, f"exchange_{flags.task_index}")


# ---- 5. The rounds: one call makes many of them. All workers compute with the same parameters, the
# result of the round before.
@tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64), packing.spec])
def take_part_in_rounds(chosen, vector):
    """Make a round for each row of image indices, beginning with these parameters."""
    step, loss, waited_s = tf.constant(0, tf.int64), 0.0, tf.constant(0, tf.float64)
    for row in chosen:
        batch_images, batch_labels = images.batch(row)
        parameters = packing.parameters(vector)
        loss = model.loss(model.logits(batch_images, parameters), batch_labels, parameters)
        gradients = tf.gradients(loss, list(parameters.values()))
        change = packing.change([rate * gradient for gradient in gradients])
        with tf.control_dependencies([change]):
            handed_in_at = tf.timestamp()
        step, vector = answer(exchange(change), [], packing.spec.shape)
        with tf.control_dependencies([vector]):
            waited_s += tf.timestamp() - handed_in_at
    return step, loss, waited_s, vector


@tf.function
def accuracy(vector):
    """The share of the test images that these parameters classify correctly."""
    logits = model.logits(mnist.test.images, packing.parameters(vector))
    return share_correct(logits, mnist.test.labels)


# ---- 6. All workers begin together, when the last one is ready.
_, vector, finished = ps.read_blocking()
if finished[flags.task_index]:
    raise ProgramError("the parameter servers still hold an earlier run", "restart them")
take_part_in_rounds.get_concrete_function()
places = f"the parameters are on {address}"
recorder.ready(places, learning_rate=rate)

# ---- 7. The training: each round makes one update.
local_step = 0
recorder.begin_training(flags, local_steps_per_epoch=steps_per_epoch, last_step=all_steps)
while local_step < all_steps:
    # The first call makes one step, to record it. No call continues past the end of an epoch.
    left = min(all_steps - local_step, steps_per_epoch - local_step % steps_per_epoch)
    count = min(flags.steps_per_call, left) if local_step else 1
    chosen = np.stack([next(choices) for _ in range(count)])
    step, loss, waited_s, vector = take_part_in_rounds(chosen, vector)
    local_step += count
    recorder.step(local_step, step.numpy(), loss=loss.numpy(), wait_time_s=waited_s.numpy())
    if recorder.test_is_due():
        recorder.write(
            "eval",
            local_step=local_step,
            global_step=step.numpy(),
            accuracy=accuracy(vector).numpy(),
        )

# ---- 8. The test: all updates are made, so every worker tests the same parameters.
step_at_test, vector, _ = ps.read_blocking()
own_accuracy = accuracy(vector).numpy()
recorder.write("eval", global_step=step_at_test.numpy(), accuracy=own_accuracy)
finished = ps.finish_blocking(flags.task_index)

# ---- 9. The chief waits for all workers, tests once more and saves the parameters.
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
