"""Horovod: ring all-reduce between ranks, each of which is a complete program.

Shows: a program for one process becomes distributed by three lines; all ranks stay equal.
Try to break: the ring. Kill one rank, or limit the network of one rank.

Every rank trains a copy of the model on its own part of the images. In each step all ranks exchange
their gradients: each rank receives the mean, and all make the same update. There is no parameter
server, and no session with several tasks. The ring between the ranks is in Horovod, outside of
TensorFlow.
"""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from mnist_model import MODELS, share_correct
from mnist_parameters import digest

from lab.task.sdk import LOST_CONTACT, ProgramError, begin, load_mnist, save_trained

flags, recorder = begin("horovod", __doc__)

# ---- 1. The ring. `horovodrun` usually starts the ranks over SSH, and sets their numbers and the
# address of the rendezvous in variables. Here the agents do this. `init` reads the variables, and
# returns when all ranks are connected.
ranks = len(flags.worker_hosts)
recorder.ready(f"rank {flags.task_index} of {ranks}")
hvd.init()

# ---- 2. One GPU for each rank, if there are GPUs.
gpus = tf.config.list_physical_devices("GPU")[:1]
tf.config.set_visible_devices(gpus, "GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, enable=True)

# ---- 3. The data: all ranks draw the same random order of each epoch, and each takes its own part.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1], part=hvd.rank(), parts=hvd.size())
joined_size = flags.batch_size * hvd.size()
steps_per_epoch = mnist.train.batches_per_epoch(joined_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch

# ---- 4. The model: every rank draws different initial values, and then receives those of rank 0.
model = MODELS[flags.model]
learning_rate = flags.learning_rate or model.synchronous_rate
variables = {
    name: tf.Variable(value, name=name)
    for name, value in model.initial_parameters(flags.seed + hvd.rank()).items()
}
hvd.broadcast_variables(list(variables.values()), root_rank=0)


@tf.function
def step(images, labels):
    """Make a step with the mean of all ranks' gradients; return the mean of their losses."""
    with tf.GradientTape() as tape:
        loss = model.loss(model.logits(images, variables), labels, variables)
    tape = hvd.DistributedGradientTape(tape)  # It returns all-reduced gradients.
    gradients = tape.gradient(loss, list(variables.values()))
    for variable, gradient in zip(variables.values(), gradients, strict=True):
        variable.assign_sub(learning_rate * gradient)
    return hvd.allreduce(loss)


# ---- 5. The training.
recorder.begin_training(
    flags, local_steps_per_epoch=steps_per_epoch, examples_per_step=joined_size, last_step=all_steps
)
for number in range(1, all_steps + 1):
    try:
        loss_now = step(*next(batches))
    except tf.errors.UnknownError:  # A rank has stopped: the ring is broken.
        raise ProgramError(f"{LOST_CONTACT} another rank", "see how it ended") from None
    recorder.step(number, number, loss=loss_now)

# ---- 6. The test: are all copies equal, bit by bit, and what is their accuracy?
values = {name: variable.numpy() for name, variable in variables.items()}
digests = hvd.allgather(np.frombuffer(digest(values), np.uint8)[None]).numpy()
different = sum(not np.array_equal(each, digests[0]) for each in digests)
accuracy = share_correct(model.logits(mnist.test.images, values), mnist.test.labels).numpy()
if hvd.rank() == 0:
    save_trained(flags, all_steps, values)
recorder.write("result", name="ranks compared", value=len(digests), low=ranks, high=ranks)
recorder.write("result", name="ranks that differ", value=different, low=0, high=0)
recorder.finish(accuracy=accuracy)
hvd.shutdown()
