"""Asynchronous training of a two-layer network until a global step; hosts come from flags.

The chief's Supervisor keeps checkpoints and summaries in `logs_async`.
"""

import time

import tensorflow as tf
import two_layers
from tensorflow.contrib.learn.python.learn.datasets import mnist

HOSTS = {"default": "", "help": "HOST:PORT, with commas between them"}
tf.app.flags.DEFINE_string("ps_hosts", **HOSTS)
tf.app.flags.DEFINE_string("worker_hosts", **HOSTS)
tf.app.flags.DEFINE_string("job_name", default="worker", help="ps or worker")
tf.app.flags.DEFINE_integer("task_id", default=0, help="position in that list of hosts")
tf.app.flags.DEFINE_integer("until", default=600, help="the global step at which all stop")
FLAGS = tf.app.flags.FLAGS

LINE = (
    "After {own} training steps ({all} global steps), loss on training batch is {loss:g}."
    "  ({seconds:.3f} sec/batch)"
)


def smoothed(update, counter):
    """The update, and behind it a step of the variables' moving averages."""
    averages = tf.train.ExponentialMovingAverage(0.99, num_updates=counter)
    with tf.control_dependencies([update]):
        return averages.apply(tf.trainable_variables())


def build(counter):
    """The placeholders, the operation that trains, and the loss that it lowers."""
    pixels = tf.placeholder(tf.float32, [None, 784], "pixels")
    digits = tf.placeholder(tf.int32, [None], "digits")
    scores = two_layers.digit_scores(pixels, tf.contrib.layers.l2_regularizer(1e-4))
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=digits, logits=scores)
    loss = tf.reduce_mean(entropy) + tf.losses.get_regularization_loss()
    rate = tf.train.exponential_decay(0.2, counter, decay_steps=550, decay_rate=0.98)
    # The Supervisor writes the summaries by itself, and feeds nothing: so none is of the loss.
    tf.summary.scalar("rate", rate)
    descended = tf.train.GradientDescentOptimizer(rate).minimize(loss, counter)
    return (pixels, digits), smoothed(descended, counter), loss


def follow(supervisor, server, inputs, fetches):
    """Train until the global step is reached; a line at every hundredth step of this worker."""
    images = mnist.read_data_sets("/nowhere/in/particular", validation_size=0).train
    began = time.time()
    own = 0
    with supervisor.managed_session(server.target) as session:
        while not supervisor.should_stop():
            batch = dict(zip(inputs, images.next_batch(128), strict=True))
            _, loss, reached = session.run(fetches, batch)
            if reached >= FLAGS.until:
                supervisor.request_stop()
                break
            own += 1
            if own % 100 == 0:
                seconds = (time.time() - began) / own
                print(LINE.format(own=own, all=reached, loss=loss, seconds=seconds), flush=True)


def main(argv):
    if argv[1:]:
        tf.logging.warn("not understood: %s", argv[1:])
    tf.logging.set_verbosity(tf.logging.ERROR)
    lists = {"ps": FLAGS.ps_hosts, "worker": FLAGS.worker_hosts}
    cluster = tf.train.ClusterSpec({job: hosts.split(",") for job, hosts in lists.items()})
    server = tf.train.Server(cluster, FLAGS.job_name, FLAGS.task_id)
    if FLAGS.job_name != "worker":
        return server.join()

    here = f"/job:worker/task:{FLAGS.task_id}"
    with tf.device(tf.train.replica_device_setter(worker_device=here, cluster=cluster)):
        counter = tf.train.get_or_create_global_step()
        inputs, training, loss = build(counter)
    supervisor = tf.train.Supervisor(
        is_chief=FLAGS.task_id == 0,
        logdir="logs_async",
        saver=tf.train.Saver(max_to_keep=2),
        summary_op=tf.summary.merge_all(),
        save_model_secs=20,
    )
    return follow(supervisor, server, inputs, (training, loss, counter))


if __name__ == "__main__":
    tf.app.run(main)
