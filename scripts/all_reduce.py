"""All-reduce: no parameter servers; every replica holds all parameters, and all step together.

Shows: each replica makes the same update, with the mean of all gradients; all stay equal.
Try to break: the equality, bit by bit. Slow a worker down, limit its network, kill it.

Each replica computes the gradients of its own batch. An all-reduce gives every replica the mean of
these gradients. With `mirrored` the replicas are the GPUs of one task (without GPUs: several
logical devices of one CPU). With `multiworker` they are the GPUs or CPUs of all workers. The
gradients are then exchanged in a ring over the network, or by NCCL between GPUs. The program is the
same for both strategies.
"""

import numpy as np
import tensorflow as tf
from mnist_model import MODELS, share_correct

from lab.task.sdk import PIXELS, begin, load_mnist, save_trained

flags, recorder = begin("multiworker", __doc__)

# ---- 1. The strategy defines the replicas. The multi-worker strategy reads TF_CONFIG.
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, enable=True)
if flags.strategy == "mirrored":
    devices = [f"GPU:{index}" for index in range(len(gpus))]
    if not gpus:
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * flags.cpu_replicas
        tf.config.set_logical_device_configuration(cpu, parts)
        devices = [f"CPU:{index}" for index in range(flags.cpu_replicas)]
    strategy = tf.distribute.MirroredStrategy(devices)
else:
    ways = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=ways.NCCL if gpus else ways.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
replicas = strategy.num_replicas_in_sync
recorder.ready(f"one of {replicas} replicas' tasks")

# ---- 2. The data: batches of all replicas together. An epoch is a random order of all images.
mnist = load_mnist(flags.data_dir)
joined_size = flags.batch_size * replicas
steps_per_epoch = mnist.train.batches_per_epoch(joined_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch
joined_batches = tf.data.Dataset.from_generator(
    lambda: mnist.train.batches(joined_size, [flags.seed, 1]),
    output_signature=(tf.TensorSpec([joined_size, PIXELS]), tf.TensorSpec([joined_size], tf.int32)),
).repeat()  # Without it the tasks would ask each other in every step if one has no batch left.
# Each task makes the same batches, and DATA gives each replica its own part of every batch. FILE
# would need one file or more for each worker, and OFF would give all workers the same images.
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
batches = iter(strategy.experimental_distribute_dataset(joined_batches.with_options(options)))

# ---- 3. The model: a copy of each variable on each replica. The optimizer adds up the gradients of
# all replicas before it changes the variables: this is the all-reduce.
model = MODELS[flags.model]
with strategy.scope():
    variables = {
        name: tf.Variable(value, name=name)
        for name, value in model.initial_parameters(flags.seed).items()
    }
    # The optimizer of Keras would do the same, but Keras takes a second to import.
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(
        flags.learning_rate or model.synchronous_rate
    )


def replica_step(images, labels):
    """The step of one replica. Its loss is its share of the mean over the batch of all replicas."""
    with tf.GradientTape() as tape:
        loss = model.loss(model.logits(images, variables), labels, variables) / replicas
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients((gradients[name], variables[name]) for name in variables)
    return loss


@tf.function
def step(batches):
    """Make one step on all replicas; return the mean of their losses."""
    losses = strategy.run(replica_step, args=next(batches))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def copies():
    """Return the parameters of every replica, one row each."""

    def gather():
        context = tf.distribute.get_replica_context()
        flat = tf.concat([tf.reshape(variables[name], [-1]) for name in sorted(variables)], 0)
        return context.all_gather(flat[None], axis=0)

    return strategy.experimental_local_results(strategy.run(gather))[0]


# ---- 4. The training.
recorder.begin_training(
    flags, local_steps_per_epoch=steps_per_epoch, examples_per_step=joined_size, last_step=all_steps
)
for number in range(1, all_steps + 1):
    recorder.step(number, number, loss=step(batches))

# ---- 5. The test: are all copies equal, and what is their accuracy?
rows = copies().numpy()
different = sum(not np.array_equal(row, rows[0]) for row in rows)
values = {name: variable.numpy() for name, variable in variables.items()}
accuracy = share_correct(model.logits(mnist.test.images, values), mnist.test.labels).numpy()
if flags.task_index == 0:
    save_trained(flags, all_steps, values)
recorder.write("result", name="replicas compared", value=len(rows), low=replicas, high=replicas)
recorder.write("result", name="replicas that differ", value=different, low=0, high=0)
recorder.finish(accuracy=accuracy)
