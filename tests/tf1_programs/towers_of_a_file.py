"""Softmax regression by three towers, which read the images from a record file beside the program.

The file comes through queues: of file names, of examples, of batches. Histograms of variables and
of gradients are written for TensorBoard.
"""

from datetime import datetime
from time import time

import tensorflow as tf

DEVICES = ["/gpu:0", "/gpu:1", "/gpu:2"]
EXAMPLES = 64
UPDATES = 60


def pipeline(path):
    """A batch of images [64, 784] from 0 to 1, with digits [64]."""
    names = tf.train.string_input_producer([path])
    _, record = tf.TFRecordReader().read(names)
    number = tf.FixedLenFeature([], tf.int64)
    wanted = {"image_raw": tf.FixedLenFeature([], tf.string), "label": number, "pixels": number}
    example = tf.parse_single_example(record, features=wanted)
    pixels = tf.decode_raw(example["image_raw"], tf.uint8)
    pixels.set_shape([784])
    # The file itself says how long an image is.
    right_size = tf.assert_equal(tf.to_int64(tf.size(pixels)), example["pixels"])
    with tf.control_dependencies([right_size]):
        image = tf.to_float(pixels) / 255
    return tf.train.shuffle_batch(
        [image, tf.to_int32(example["label"])],
        batch_size=EXAMPLES,
        num_threads=2,
        capacity=1500,
        min_after_dequeue=1000,
    )


def loss_of(images, digits):
    """The cross-entropy of one tower's batch; all towers have the same variables."""
    with tf.variable_scope("softmax", reuse=tf.AUTO_REUSE), tf.device("/cpu:0"):
        matrix = tf.get_variable("matrix", [784, 10], initializer=tf.zeros_initializer())
        offset = tf.get_variable("offset", [10], initializer=tf.zeros_initializer())
    scores = tf.matmul(images, matrix) + offset
    return tf.losses.sparse_softmax_cross_entropy(labels=digits, logits=scores)


def average(of_towers):
    """Pairs of gradient and variable, from such pairs of each tower."""
    for pairs in zip(*of_towers):  # noqa: B905  (there was no `strict` then)
        stacked = tf.stack([gradient for gradient, _ in pairs])
        yield tf.reduce_mean(stacked, 0), pairs[0][1]


def main(_):
    with tf.device("/cpu:0"):
        steps = tf.train.get_or_create_global_step()
        descent = tf.train.GradientDescentOptimizer(0.3)
        losses, of_towers = [], []
        for tower, device in enumerate(DEVICES):
            with tf.device(device), tf.name_scope(f"part{tower}"):
                with tf.device("/cpu:0"):
                    images, digits = pipeline("output.tfrecords")
                losses.append(loss_of(images, digits))
                of_towers.append(descent.compute_gradients(losses[-1]))
        means = list(average(of_towers))
        for gradient, variable in means:
            tf.summary.histogram(variable.op.name, variable)
            tf.summary.histogram(variable.op.name + "/gradient", gradient)
        train = descent.apply_gradients(means, global_step=steps)
        mean_loss = tf.reduce_mean(losses)
        histograms = tf.summary.merge_all()

    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        session.run(tf.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        runners = tf.train.start_queue_runners(sess=session, coord=coordinator)
        writer = tf.summary.FileWriter("histograms", session.graph)
        for step in range(1, UPDATES + 1):
            started = time()
            _, loss = session.run([train, mean_loss])
            took = time() - started
            if step % 10 == 0:
                rate = len(DEVICES) * EXAMPLES / took
                line = "{}: step {}, loss = {:.3f} ({:.1f} examples/sec; {:.4f} sec/batch)"
                print(line.format(datetime.now(), step, loss, rate, took / len(DEVICES)))
                writer.add_summary(session.run(histograms), step)
        writer.close()
        coordinator.request_stop()
        coordinator.join(runners)


if __name__ == "__main__":
    tf.app.run()
