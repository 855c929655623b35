"""A convolutional network, trained, saved, and restored into another graph by its averages."""

import tensorflow as tf
from tensorflow.examples.tutorials.mnist.input_data import read_data_sets

FILTERS = (8, 16)
UPDATES = 120
NAME = "convolution.ckpt"
averaged = tf.train.ExponentialMovingAverage(0.9)


def pooled(images, filters):
    """Filters of 5 by 5, and the largest of each four neighbours."""
    depth = images.shape[-1]
    kernel = tf.get_variable(
        "kernel",
        [5, 5, depth, filters],
        initializer=tf.truncated_normal_initializer(stddev=0.1),
        regularizer=tf.contrib.layers.l1_regularizer(1e-5),
    )
    start = tf.get_variable("start", [filters], initializer=tf.constant_initializer(0.1))
    found = tf.nn.conv2d(images, kernel, strides=(1, 1, 1, 1), padding="SAME")
    window = [1, 2, 2, 1]
    return tf.nn.max_pool(tf.nn.relu(found + start), window, window, padding="VALID")


def network(keep):
    """Placeholders for images and digits, and ten scores; a share of what is found is kept."""
    images = tf.placeholder(tf.float32, [None, 28, 28, 1], name="images")
    digits = tf.placeholder(tf.int32, [None], name="digits")
    seen = images
    for number, filters in enumerate(FILTERS):
        with tf.variable_scope(f"convolution{number}"):
            seen = pooled(seen, filters)
    flat = tf.nn.dropout(tf.reshape(seen, [-1, 7 * 7 * FILTERS[-1]]), keep_prob=keep)
    scores = tf.contrib.layers.fully_connected(flat, 10, activation_fn=None, scope="scores")
    return images, digits, scores


def train(mnist):
    """Save the network and its averages; print what the regularizer finds of each layer."""
    images, digits, scores = network(keep=0.8)
    penalties = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    wrong = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=scores, labels=digits)
    loss = tf.add_n([tf.reduce_mean(wrong), *penalties])
    better = tf.train.AdamOptimizer(0.003).minimize(loss)
    with tf.control_dependencies([better]):
        update = averaged.apply(tf.trainable_variables())
    saver = tf.train.Saver()
    with tf.Session() as session:
        tf.global_variables_initializer().run()
        for _ in range(UPDATES):
            rows, truth = mnist.train.next_batch(100)
            update.run({images: rows, digits: truth})
        for penalty in penalties:
            print(f"{penalty.op.name}: {penalty.eval():.5f}")
        saver.save(session, NAME, global_step=UPDATES)


def test(mnist):
    """Accuracy of the averages, from the newest checkpoint."""
    images, digits, scores = network(keep=1.0)
    saver = tf.train.Saver(averaged.variables_to_restore())
    right = tf.nn.in_top_k(scores, digits, 1)
    state = tf.train.get_checkpoint_state(".")
    with tf.Session() as session:
        saver.restore(session, state.model_checkpoint_path)
        part = {images: mnist.test.images, digits: mnist.test.labels}
        found = session.run(right, part)
    steps = state.model_checkpoint_path.rpartition("-")[2]
    print(f"restored after {steps} updates, right: {found.mean():.4f}")


if __name__ == "__main__":
    shaped = read_data_sets("nowhere", reshape=False)
    for task in (train, test):
        with tf.Graph().as_default():
            task(shaped)
    print("newest:", tf.train.latest_checkpoint("."))
    with tf.gfile.GFile("checkpoint") as file:
        print(file.readline().strip())
