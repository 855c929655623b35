"""TensorFlow 2's own parameter servers: a coordinator sends each step to a free worker.

Shows: the training survives the end of a worker, because another worker makes its step.
Try to break: the count of steps. Kill a worker, then two; kill the parameter server.

Only the chief runs the program. It defines the step once, and computes no steps itself. It keeps a
queue of steps, and sends the next step to the next free worker. The variables are on the parameter
servers. Parameter servers and workers only serve.
"""

import os
import time

import tensorflow as tf
from mnist_model import MODELS, share_correct

from lab.task.sdk import PIXELS, begin, load_mnist, save_trained, train_files

flags, recorder = begin("coordinator", __doc__)

# ---- 1. This task: parameter servers and workers only serve.
cluster = tf.train.ClusterSpec(
    {"chief": flags.chief_hosts, "ps": flags.ps_hosts, "worker": flags.worker_hosts}
)
if flags.job_name != "chief":
    # A call to a stopped task fails at once, instead of waiting.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(cluster, flags.job_name, flags.task_index, protocol="grpc")
    recorder.ready(f"serves at {server.target}")
    server.join()

# ---- 2. The coordinator. Its creation connects to all servers.
recorder.ready(f"coordinates {len(flags.worker_hosts)} workers")
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    cluster, task_type="chief", task_id=0, rpc_layer="grpc"
)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)


# ---- 3. The data: each worker reads the files itself. All run the same function, which cannot tell
# the workers apart: with a seed for the order of the images, all would draw the same batches.
mnist = load_mnist(flags.data_dir)
images_file, labels_file = train_files(flags.data_dir)


def items(file, size, header):
    """The items of a file after its header."""
    compression = "GZIP" if file.suffix == ".gz" else ""
    return tf.data.FixedLengthRecordDataset(str(file), size, header, compression_type=compression)


def dataset():
    both = tf.data.Dataset.zip((items(images_file, PIXELS, 16), items(labels_file, 1, 8)))
    count = len(mnist.train)
    both = both.take(count).cache().shuffle(count).repeat()
    return both.batch(flags.batch_size, drop_remainder=True).map(decode)


def decode(images, labels):
    pixels = tf.cast(tf.io.decode_raw(images, tf.uint8), tf.float32) / 255
    return pixels, tf.cast(tf.io.decode_raw(labels, tf.uint8)[:, 0], tf.int32)


batches = iter(coordinator.create_per_worker_dataset(dataset))

# ---- 4. The model: its variables are created on the parameter servers.
model = MODELS[flags.model]
learning_rate = flags.learning_rate or model.asynchronous_rate
with strategy.scope():
    variables = {
        name: tf.Variable(value, name=name)
        for name, value in model.initial_parameters(flags.seed).items()
    }
    global_step = tf.Variable(0, dtype=tf.int64, name="global_step")
    last_loss = tf.Variable(0.0, name="last_loss")


@tf.function
def step(batches):
    """The step of a worker: read the parameters, compute, apply, count."""

    def compute(images, labels):
        with tf.GradientTape() as tape:
            loss = model.loss(model.logits(images, variables), labels, variables)
        gradients = tape.gradient(loss, variables)
        changes = [
            variable.assign_sub(learning_rate * gradients[name], read_value=False)
            for name, variable in variables.items()
        ]
        with tf.control_dependencies([*changes, last_loss.assign(loss)]):  # Count it after them.
            global_step.assign_add(1)

    strategy.run(compute, args=next(batches))


# ---- 5. The training: keep the queue filled, and read from the server how many steps have ended.
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch
scheduled = made = 0
recorder.begin_training(flags, global_steps_per_epoch=steps_per_epoch, last_step=all_steps)
while scheduled < all_steps or not coordinator.done():
    ahead = 100 if made else 1  # The first step is recorded, too.
    while scheduled < min(made + ahead, all_steps):
        coordinator.schedule(step, args=(batches,))
        scheduled += 1
    time.sleep(0.02)
    counted = min(int(global_step.numpy()), all_steps - 1)  # The last step is recorded below.
    if counted > made:
        made = counted
        recorder.step(made, made, loss=last_loss.numpy())
counted = int(global_step.numpy())
recorder.step(all_steps, counted, loss=last_loss.numpy())

# ---- 6. The test.
test = mnist.test
values = {name: variable.numpy() for name, variable in variables.items()}
accuracy = share_correct(model.logits(test.images, values), test.labels).numpy()
save_trained(flags, counted, values)
# A step whose worker failed may be made twice: the coordinator guarantees at least once.
recorder.write("result", name="steps counted", value=counted, low=all_steps)
recorder.finish(accuracy=accuracy)
