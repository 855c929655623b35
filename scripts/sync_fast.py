"""MNIST synchronously, as fast as it gets: the rounds of mnist_sync.py, several times quicker.

Still one update of the shared parameters per round, by the mean of every worker's gradients. What
is saved is what async_fast.py saves, and the way of a round: the parameter server adds the
gradients up, updates and lets the workers go on by itself, many rounds in one call. Compare it
with mnist_sync.py, section by section.
"""

import threading
import time
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from mnist_model import MODELS, share_correct
from one_core import keep_to_one_core
from resident import Images, Packed, take_number
from session import Session, roll_call

from lab.task.data import PIXELS, load_mnist
from lab.task.flags import boolean, parse, positive, training_flags
from lab.task.interrupt import leave_on_interrupt
from lab.task.model import SavedModel, save_model
from lab.task.program import (
    ProgramError,
    ended_tasks,
    report_failure,
    run_directory,
    wait_for_start,
)
from lab.task.recorder import Recorder

PS = "/job:ps/task:0"

# ---- 1. Who am I? As in mnist_sync.py, with flags that take back what makes it fast.
parser = training_flags(__doc__)
faster = parser.add_argument_group("what makes it fast")
faster.add_argument(
    "--steps_per_call", type=positive, default=110, help="rounds in one call (default: 110)"
)
faster.add_argument(
    "--one_core", type=boolean, default=True, help="each task on one core (default: true)"
)
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

# ---- 2, 3. The cluster spec and the server. The operations of a step follow one another, and so
# do the tasks' messages: more threads on more cores would only wake each other up.
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
config = tf.ConfigProto()
if flags.one_core:
    before_me = len(flags.ps_hosts) if flags.job_name == "worker" else 0
    keep_to_one_core(before_me + flags.task_index, config)
if flags.job_name == "ps":
    config.device_count["GPU"] = 0
elif flags.gpu_memory_fraction:
    config.gpu_options.per_process_gpu_memory_fraction = flags.gpu_memory_fraction
else:
    config.gpu_options.allow_growth = True
try:
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=config)
except tf.errors.UnknownError:
    host = cluster.task_address(flags.job_name, flags.task_index)
    raise ProgramError(f"cannot listen on {host}", "end what else uses it") from None
if flags.job_name == "ps":
    recorder.write("event", status="ready", message=f"serves at {server.target}")
    server.join()

# ---- 4. The data: the worker holds all images, and draws the numbers of those in a batch.
mnist = load_mnist(flags.data_dir)
choices = mnist.train.choices(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch

# ---- 5. The graph. What is shared is on one parameter server: the parameters, the sum of the
# changes to them, and for each worker the tokens that let it go on.
model = MODELS[flags.model]
rate = flags.learning_rate or model.synchronous_rate

with tf.device(PS):
    shared = Packed(model.initial_parameters(flags.seed))
    global_step = tf.get_variable("global_step", initializer=np.int64(0), use_resource=True)
    changes = tf.ConditionalAccumulator(
        tf.float32, shape=shared.vector.shape, shared_name="changes"
    )
    tokens = [
        tf.FIFOQueue(-1, [tf.int64], [[]], shared_name=f"tokens_of_{worker}")
        for worker in range(workers)
    ]
images = Images(mnist.train, myself)
everyone = roll_call([PS, myself])


class Rounds(NamedTuple):
    """What one round tells, or several that are made in one call."""

    tokens: tf.Tensor
    waited: tf.Tensor
    losses: tf.Tensor


def take_part(chosen, newest):
    """One round of a worker, after the update that it knows as the newest one."""
    with tf.control_dependencies([newest]):
        parameters = shared.read()
    batch_images, batch_labels = images.batch(chosen)
    loss = model.loss(model.logits(batch_images, parameters), batch_labels, parameters)
    gradients = tf.gradients(loss, list(parameters.values()))
    change = shared.joined(
        {name: rate * gradient for name, gradient in zip(parameters, gradients, strict=True)}
    )
    with tf.device(PS):
        with tf.control_dependencies([change, *everyone]):
            handed_in_at = tf.timestamp()
        with tf.control_dependencies([handed_in_at]):
            handed_in = changes.apply_grad(change, newest)
        with tf.control_dependencies([handed_in]):
            token = tokens[flags.task_index].dequeue()
        with tf.control_dependencies([token]):
            waited = tf.timestamp() - handed_in_at
    return Rounds(token, waited, loss)


def take_part_in(count, chosen):
    """So many rounds, one after the other: what they tell is one message, and not one a round."""
    made = []
    newest = global_step.read_value()
    for index in range(count):
        made.append(take_part(chosen[index], newest))
        newest = made[-1].tokens
    numbers, waited, losses = zip(*made, strict=True)
    with tf.device(PS):
        numbers, waited = tf.stack(numbers), tf.stack(waited)
    return Rounds(numbers, waited, tf.stack(losses))


def update(count):
    """So many updates by the mean of all workers' changes, with a token for each of them."""
    made = tf.group(*everyone)
    for _ in range(count):
        with tf.control_dependencies([made]):
            mean = changes.take_grad(workers)
            updated = shared.vector.assign_sub(mean, read_value=False)
        with tf.control_dependencies([updated]):
            number = take_number(global_step) + 1
        made = tf.group(*(queue.enqueue(number) for queue in tokens))
    return made


with tf.device(myself):
    chosen = tf.placeholder(tf.int32, [None, flags.batch_size], "chosen")
    in_one_call = {count: take_part_in(count, chosen) for count in {flags.steps_per_call, 1}}

    test_images = tf.placeholder(tf.float32, [None, PIXELS], "images")
    test_labels = tf.placeholder(tf.int32, [None], "labels")
    step_at_test = global_step.read_value()
    with tf.control_dependencies([step_at_test]):
        parameters = shared.read()
    accuracy = share_correct(model.logits(test_images, parameters), test_labels)
with tf.device(PS):
    updates_in_one_call = {count: update(count) for count in {flags.steps_per_call, 1}}

with tf.device(PS):
    finished = tf.get_variable("finished", initializer=np.zeros(workers, np.int32))
    tell_finished = tf.scatter_update(finished, flags.task_index, 1)

initialize = tf.global_variables_initializer()
missing_variables = tf.report_uninitialized_variables(tf.global_variables())

# ---- 6. The session, as in mnist_sync.py, without checkpoints: a training takes seconds.
config = tf.ConfigProto(
    log_device_placement=flags.log_device_placement, device_filters=["/job:ps", myself]
)
recorder.write("event", message="waits for the parameter servers and the chief")
session = Session(server.target, recorder, config)
if recorder.attempt:
    raise ProgramError("this program cannot go on where it was", "run mnist_sync.py for that")
if is_chief:
    if not len(session.run(missing_variables)):
        raise ProgramError("the parameter servers still hold an earlier run", "start them anew")
    session.run(initialize)
while len(session.run(missing_variables)):
    time.sleep(0.2)
images.load(session)
recorder.write("event", status="ready", message=f"the parameters are on {global_step.device}")
wait_for_start()


def calls(steps):
    """Numbers of steps, one for each call, that add up to so many."""
    whole, rest = divmod(steps, flags.steps_per_call)
    return [flags.steps_per_call] * whole + [1] * rest


# ---- 7. The training. The chief lets the parameter server make the updates, exactly as many as
# there are to be, in a thread of its own; besides, it is a worker like the others.
coordinator = tf.train.Coordinator()


def make_updates():
    with coordinator.stop_on_exception():
        for count in calls(all_steps):
            session.run(updates_in_one_call[count])


if is_chief:
    updater = threading.Thread(target=make_updates, daemon=True)
    updater.start()

local_step = last_recorded = 0
global_step_now = 0
waiting_s = 0.0
recorded_at = time.monotonic()
for count in calls(all_steps):
    numbers, waited_s, losses = session.run(
        in_one_call[count], {chosen: [next(choices) for _ in range(count)]}
    )
    waiting_s += waited_s.sum()
    local_step += count
    epoch_ends = numbers[-1] // steps_per_epoch > global_step_now // steps_per_epoch
    global_step_now = numbers[-1]
    now = time.monotonic()
    if epoch_ends or local_step - last_recorded >= flags.record_every or local_step == all_steps:
        recorder.write(
            "epoch" if epoch_ends else "step",
            epoch=(global_step_now - 1) // steps_per_epoch,
            local_step=local_step,
            global_step=global_step_now,
            loss=losses[-1],
            examples=local_step * flags.batch_size,
            step_time_s=(now - recorded_at) / (local_step - last_recorded),
            wait_time_s=waiting_s / (local_step - last_recorded),
        )
        last_recorded, recorded_at, waiting_s = local_step, now, 0.0

if is_chief:
    coordinator.join([updater])  # What went wrong in the thread goes wrong here.

# ---- 8. The test: all updates are made, so that every worker tests the same parameters.
test = {test_images: mnist.test.images, test_labels: mnist.test.labels}
own_accuracy, steps_at_test = session.run([accuracy, step_at_test], test)
recorder.write("eval", global_step=steps_at_test, accuracy=own_accuracy)
session.run(tell_finished)


def all_have_finished():
    """Whether every worker has said so, but for those that have failed and are gone."""
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
        save_model(run_dir / "model", SavedModel(flags.model, final_step, final_parameters, {}))
    recorder.write(
        "eval",
        global_step=final_step,
        probe=round(float(final_probe)),
        accuracy=final_accuracy,
        message="final parameters",
    )

recorder.write(
    "final",
    epoch=max(global_step_now - 1, 0) // steps_per_epoch,
    local_step=local_step,
    global_step=global_step_now,
    examples=local_step * flags.batch_size,
    accuracy=own_accuracy,
    status="succeeded",
)
