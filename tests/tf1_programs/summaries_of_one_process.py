"""A small network in one process: layers of `contrib`, a rate that decays, summaries in files."""

import tensorflow as tf
from tensorflow.contrib.layers import fully_connected, l2_regularizer, xavier_initializer

tf.app.flags.DEFINE_string("logs", "logs", "where the summaries go; what lies there is removed")
tf.app.flags.DEFINE_integer("steps", 200, "updates")
tf.flags.DEFINE_float("rate", 0.5, "of the first update")
WANTED = tf.flags.FLAGS


def empty(folder):
    """Make a folder, without what an earlier run has left there."""
    if tf.gfile.Exists(folder):
        tf.gfile.DeleteRecursively(folder)
    tf.gfile.MakeDirs(folder)


def scores_of(pixels):
    """784 pixels, 50 hidden units, ten scores; both matrices are penalized."""
    layer = {
        "weights_regularizer": l2_regularizer(1e-4),
        "weights_initializer": xavier_initializer(),
    }
    hidden = fully_connected(pixels, 50, scope="first", **layer)
    tf.summary.histogram("hidden", hidden)
    return fully_connected(hidden, 10, activation_fn=None, scope="second", **layer)


def main(_):
    tf.set_random_seed(20)
    empty(WANTED.logs)
    mnist = tf.contrib.learn.datasets.mnist.load_mnist()

    pixels, digits = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int64, [None])
    scores = scores_of(pixels)
    loss = tf.losses.sparse_softmax_cross_entropy(digits, scores)
    whole = tf.add(loss, tf.losses.get_regularization_loss(), name="whole")
    updates = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(WANTED.rate, updates, 100, 0.99)
    improve = tf.train.GradientDescentOptimizer(rate).minimize(whole, global_step=updates)
    agree, renew = tf.metrics.accuracy(digits, tf.argmax(scores, 1))
    for name, value in {"loss": loss, "rate": rate}.items():
        tf.summary.scalar(name, value)
    summed_up = tf.summary.merge_all()

    with tf.Session() as session, tf.summary.FileWriter(WANTED.logs, session.graph) as writer:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for number in range(1, WANTED.steps + 1):
            rows, truth = mnist.train.next_batch(100)
            value, event, _ = session.run(
                [loss, summed_up, improve], feed_dict={pixels: rows, digits: truth}
            )
            writer.add_summary(event, number)
            if number in {1, WANTED.steps}:
                print(f"update {number}: loss {value:.4f}")
        session.run(renew, {pixels: mnist.test.images, digits: mnist.test.labels})
        print(f"{mnist.test.num_examples} tested, right: {session.run(agree):.4f}")


if __name__ == "__main__":
    tf.app.run(main)
