"""Horovod: ring all-reduce between ranks, each of which is a complete program.

Every rank trains a copy of the model on its own batches. In each step all ranks exchange their
gradients: each rank receives the mean, and all make the same update. There is no parameter server,
and no session with several tasks: for TensorFlow it is a program for one process, with three more
lines. The ring between the ranks is in Horovod, outside of TensorFlow.
"""

import hashlib

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from begin import begin
from mnist_model import MODELS, share_correct

from lab.task.sdk import LOST_CONTACT
from lab.task.sdk.data import load_mnist
from lab.task.sdk.flags import parse, training_flags
from lab.task.sdk.model import SavedModel, save_model
from lab.task.sdk.program import ProgramError, run_directory, wait_for_start

flags = parse(training_flags(__doc__, jobs=["worker"]))
recorder = begin(flags, batch_size=flags.batch_size)

# ---- 1. The ring. `horovodrun` usually starts the ranks over SSH, and sets their numbers and the
# address of the rendezvous in variables. Here the agents do this. `init` reads the variables, and
# returns when all ranks are connected.
ranks = len(flags.worker_hosts)
recorder.write("event", status="ready", message=f"rank {flags.task_index} of {ranks}")
wait_for_start()
hvd.init()

# ---- 2. One GPU for each rank, if there are GPUs.
gpus = tf.config.list_physical_devices("GPU")[:1]
tf.config.set_visible_devices(gpus, "GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, enable=True)

# ---- 3. The data: every rank draws its own batches.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + hvd.rank()])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size * hvd.size())
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
for now in range(1, all_steps + 1):
    try:
        loss_now = step(*next(batches))
    except tf.errors.UnknownError:  # A rank has stopped: the ring is broken.
        raise ProgramError(f"{LOST_CONTACT} another rank", "see how it ended") from None
    if now % flags.record_every == 0 or now % steps_per_epoch == 0 or now in {1, all_steps}:
        recorder.write(
            "epoch" if now % steps_per_epoch == 0 else "step",
            epoch=(now - 1) // steps_per_epoch,
            local_step=now,
            global_step=now,
            loss=float(loss_now),
            examples=now * flags.batch_size * hvd.size(),
        )

# ---- 6. The test: are all copies equal, bit by bit, and what is their accuracy?
values = {name: variable.numpy() for name, variable in variables.items()}
digest = hashlib.sha256(b"".join(value.tobytes() for value in values.values())).digest()
digests = hvd.allgather(np.frombuffer(digest, np.uint8)[None]).numpy()
different = sum(not np.array_equal(each, digests[0]) for each in digests)
accuracy = share_correct(model.logits(mnist.test.images, values), mnist.test.labels).numpy()
if hvd.rank() == 0 and (run_dir := run_directory()):
    save_model(run_dir / "model", SavedModel(flags.model, all_steps, values, {}))
recorder.write("result", name="ranks compared", value=len(digests), low=ranks, high=ranks)
recorder.write("result", name="ranks that differ", value=different, low=0, high=0)
recorder.write("final", global_step=all_steps, accuracy=accuracy, status="succeeded")
hvd.shutdown()
