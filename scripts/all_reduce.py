"""All-reduce: no parameter servers; every replica holds all parameters, and all step together.

Each replica computes the gradients of its own batch. An all-reduce gives every replica the mean of
these gradients. All replicas make the same update, so their parameters stay equal, bit by bit. With
`mirrored` the replicas are the GPUs of one task (without GPUs: several logical devices of one CPU).
With `multiworker` they are the GPUs or CPUs of all workers. The gradients are then exchanged in a
ring over the network, or by NCCL between GPUs. The program is the same for both strategies.
"""

import numpy as np
import tensorflow as tf
from begin import begin
from mnist_model import MODELS, share_correct

from lab.task.sdk.data import load_mnist
from lab.task.sdk.flags import one_of, parse, positive, training_flags
from lab.task.sdk.model import SavedModel, save_model
from lab.task.sdk.program import run_directory, wait_for_start

parser = training_flags(__doc__, jobs=["worker"])
parser.add_argument(
    "--strategy", type=one_of("mirrored", "multiworker"), default="multiworker", help="the strategy"
)
parser.add_argument(
    "--cpu_replicas", type=positive, default=2, help="replicas if there is no GPU (default: 2)"
)
flags = parse(parser)
is_chief = flags.task_index == 0

recorder = begin(flags, batch_size=flags.batch_size)

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
recorder.write("event", status="ready", message=f"one of {replicas} replicas' tasks")
wait_for_start()

# ---- 2. The data: every replica draws its own batches.
mnist = load_mnist(flags.data_dir)
tasks = 1 if flags.strategy == "mirrored" else len(flags.worker_hosts)
local_replicas = replicas // tasks
own_batches = [
    mnist.train.batches(
        flags.batch_size, [flags.seed, 1 + flags.task_index * local_replicas + index]
    )
    for index in range(local_replicas)
]
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size * replicas)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch


def next_batches():
    """A batch for each replica of this task, in the form that the strategy needs."""
    drawn = [next(batches) for batches in own_batches]

    def each(part):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                drawn[context.replica_id_in_sync_group % local_replicas][part]
            )
        )

    return each(0), each(1)


# ---- 3. The model: a copy of each variable on each replica. A change of a variable is first
# averaged over all replicas: this is the all-reduce.
model = MODELS[flags.model]
learning_rate = flags.learning_rate or model.synchronous_rate
with strategy.scope():
    variables = {
        name: tf.Variable(value, name=name, aggregation=tf.VariableAggregation.MEAN)
        for name, value in model.initial_parameters(flags.seed).items()
    }


def replica_step(images, labels):
    """The step of one replica."""
    with tf.GradientTape() as tape:
        loss = model.loss(model.logits(images, variables), labels, variables)
    gradients = tape.gradient(loss, variables)
    for name, variable in variables.items():
        variable.assign_sub(learning_rate * gradients[name])
    return loss


@tf.function
def step(images, labels):
    """Make one step on all replicas; return the mean of their losses."""
    losses = strategy.run(replica_step, args=(images, labels))
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)


@tf.function
def copies():
    """Return the parameters of every replica, one row each."""

    def gather():
        context = tf.distribute.get_replica_context()
        flat = tf.concat([tf.reshape(variables[name], [-1]) for name in sorted(variables)], 0)
        return context.all_gather(flat[None], axis=0)

    return strategy.experimental_local_results(strategy.run(gather))[0]


# ---- 4. The training.
for now in range(1, all_steps + 1):
    loss_now = step(*next_batches())
    if now % flags.record_every == 0 or now % steps_per_epoch == 0 or now in {1, all_steps}:
        recorder.write(
            "epoch" if now % steps_per_epoch == 0 else "step",
            epoch=(now - 1) // steps_per_epoch,
            local_step=now,
            global_step=now,
            loss=float(loss_now),
            examples=now * flags.batch_size * replicas,
        )

# ---- 5. The test: are all copies equal, and what is their accuracy?
rows = copies().numpy()
different = sum(not np.array_equal(row, rows[0]) for row in rows)
values = {name: variable.numpy() for name, variable in variables.items()}
accuracy = share_correct(model.logits(mnist.test.images, values), mnist.test.labels).numpy()
if is_chief and (run_dir := run_directory()):
    save_model(run_dir / "model", SavedModel(flags.model, all_steps, values, {}))
recorder.write("result", name="replicas compared", value=len(rows), low=replicas, high=replicas)
recorder.write("result", name="replicas that differ", value=different, low=0, high=0)
recorder.write("final", global_step=all_steps, accuracy=accuracy, status="succeeded")
