"""Our own training loop in the shape of the book's, the baseline for the quick listings.

It trains softmax regression like the chapter: a `tf.train.Supervisor`, images fed into each step,
`minimize` with a global step; with --sync also a `tf.train.SyncReplicasOptimizer`. It differs from
the book's program in three points. `lab.protocol.mnist` draws the batches, all workers wait for the
start barrier, and the training ends at a global step instead of a number of local steps. At the end
each worker adds tokens once more: the book's synchronous program hangs there, because the last
workers wait for tokens.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from lab.base.converters import boolean
from lab.protocol.mnist import load_mnist
from lab.task.sdk.flags import argument, experiment_flags, parse
from lab.task.sdk.recorder import Recorder

parser = experiment_flags("async", __doc__)
parser.add_argument(
    "--sync", type=argument(boolean), default=False, help="make one update for all workers"
)
flags = parse(parser)
is_chief = flags.task_index == 0
workers = len(flags.worker_hosts)

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
server = tf.train.Server(cluster, flags.job_name, flags.task_index)
if flags.job_name == "ps":
    server.join()

recorder = Recorder(flags.job_name, flags.task_index)
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + flags.task_index])

worker_device = f"/job:worker/task:{flags.task_index}"
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker_device)):
    global_step = tf.train.get_or_create_global_step()
    images = tf.placeholder(tf.float32, [None, 784])
    labels = tf.placeholder(tf.int32, [None])
    weights = tf.get_variable("weights", [784, 10], initializer=tf.random_normal_initializer())
    biases = tf.get_variable("biases", [10], initializer=tf.random_normal_initializer())
    logits = tf.matmul(images, weights) + biases
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    if flags.sync:
        optimizer = tf.train.SyncReplicasOptimizer(
            optimizer, replicas_to_aggregate=workers, total_num_replicas=workers
        )
    train = optimizer.minimize(loss, global_step=global_step)

starting = {}
if flags.sync:
    starting["local_init_op"] = (
        optimizer.chief_init_op if is_chief else optimizer.local_step_init_op
    )
    starting["ready_for_local_init_op"] = optimizer.ready_for_local_init_op
    chief_queue_runner = optimizer.get_chief_queue_runner()
    tokens = optimizer.get_init_tokens_op(workers)

supervisor = tf.train.Supervisor(
    is_chief=is_chief, global_step=global_step, recovery_wait_secs=1, summary_op=None, **starting
)
config = tf.ConfigProto(device_filters=["/job:ps", worker_device])
session = supervisor.prepare_or_wait_for_session(server.target, config=config)
if flags.sync and is_chief:
    supervisor.start_queue_runners(session, [chief_queue_runner])
    session.run(tokens)

recorder.ready()  # The book has no barrier; here all measured programs start with three workers.

step = np.int64(0)
local_step = 0
while step < flags.global_steps:
    batch_images, batch_labels = next(batches)
    _, step, loss_now = session.run(
        [train, global_step, loss], {images: batch_images, labels: batch_labels}
    )
    local_step += 1
    if local_step % flags.record_every == 0:
        recorder.write("step", local_step=local_step, global_step=step, loss=loss_now)
if flags.sync:
    session.run(tokens)
