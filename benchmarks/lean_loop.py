"""A fast hand-written asynchronous loop, the hardest comparison for `async-fast`.

It trains like `book_loop.py`, without its slow parts. A MonitoredTrainingSession writes no
checkpoints and no summaries. Reference variables replace resource variables. Batches are slices of
one shuffled float array in memory. A step fetches the loss and the global step only for a record.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from lab.protocol.mnist import load_mnist
from lab.task.sdk.flags import experiment_flags, parse
from lab.task.sdk.recorder import Recorder

flags = parse(experiment_flags("async", __doc__))
is_chief = flags.task_index == 0

tf.disable_v2_behavior()  # no eager execution, and reference variables
tf.logging.set_verbosity(tf.logging.ERROR)
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
server = tf.train.Server(cluster, flags.job_name, flags.task_index)
if flags.job_name == "ps":
    server.join()

recorder = Recorder(flags.job_name, flags.task_index)
train = load_mnist(flags.data_dir).train
order = np.random.default_rng([flags.seed, 1 + flags.task_index]).permutation(len(train))
all_images, all_labels = train.images[order], train.labels[order]
batches = train.batches_per_epoch(flags.batch_size)

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
    update = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=global_step)

config = tf.ConfigProto(device_filters=["/job:ps", worker_device])
with tf.train.MonitoredTrainingSession(
    server.target, is_chief, config=config, max_wait_secs=60,
    save_checkpoint_secs=None, save_summaries_steps=None, log_step_count_steps=None,
) as session:  # fmt: skip
    recorder.ready()  # all measured programs start with three workers
    step = np.int64(0)
    local_step = 0
    while step < flags.global_steps:
        first = local_step % batches * flags.batch_size
        batch = slice(first, first + flags.batch_size)
        feed = {images: all_images[batch], labels: all_labels[batch]}
        local_step += 1
        if local_step % flags.record_every:
            session.run(update, feed)
        else:
            _, step, loss_now = session.run([update, global_step, loss], feed)
            recorder.write("step", local_step=local_step, global_step=step, loss=loss_now)
