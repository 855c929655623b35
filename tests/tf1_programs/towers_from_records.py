"""Towers that share their variables, average their gradients, and read images from record files.

Each tower has half of a batch, on a GPU of its own where there is one.
"""

import datetime
import time

import numpy as np
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

TOWERS, OF_A_TOWER = 2, 50
FOLDER, FILE = "tower_checkpoints", "digits.tfrecord"
LAST = 100


def write_validation_images():
    """Put 5,000 images, a byte a pixel, into one file of records."""
    part = input_data.read_data_sets("any", dtype=tf.uint8).validation

    def as_bytes(array):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()]))

    with tf.python_io.TFRecordWriter(FILE) as writer:
        for image, digit in zip(part.images, part.labels, strict=True):
            both = {"image": as_bytes(image), "digit": as_bytes(np.uint8(digit))}
            whole = tf.train.Example(features=tf.train.Features(feature=both))
            writer.write(whole.SerializeToString())


def shuffled():
    """One tower's images [50, 784] from 0 to 1, and their digits [50]."""
    reader = tf.TFRecordReader()
    _, text = reader.read(tf.train.string_input_producer([FILE]))
    raw = tf.FixedLenFeature([], tf.string)
    parts = tf.parse_single_example(text, features={"image": raw, "digit": raw})
    image = tf.cast(tf.decode_raw(parts["image"], tf.uint8), tf.float32) / 255
    digit = tf.cast(tf.decode_raw(parts["digit"], tf.uint8), tf.int32)
    image.set_shape([784])
    digit.set_shape([1])
    images, digits = tf.train.shuffle_batch(
        [image, digit], OF_A_TOWER, capacity=3000, min_after_dequeue=2000
    )
    return images, digits[:, 0]


def layer(name, values, width):
    """A layer with an L2 penalty; its variables are those of the first tower that made it."""
    with tf.variable_scope(name), tf.device("/cpu:0"):
        matrix = tf.get_variable(
            "matrix",
            [int(values.shape[1]), width],
            initializer=tf.truncated_normal_initializer(stddev=0.1),
        )
        added = tf.get_variable("added", [width], initializer=tf.constant_initializer(0.0))
    return values @ matrix + added, 1e-4 * tf.nn.l2_loss(matrix)


def tower_loss():
    """Cross-entropy and penalties of one tower's own images."""
    with tf.device("/cpu:0"):
        images, digits = shuffled()
    hidden, first = layer("hidden", images, 100)
    scores, second = layer("scores", tf.nn.relu(hidden), 10)
    wrong = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=scores, labels=digits)
    return tf.reduce_mean(wrong) + first + second


def mean_of(towers):
    """One gradient for each variable, from a list of gradients and variables for each tower."""
    for of_one_variable in zip(*towers, strict=True):
        gradients, variables = zip(*of_one_variable, strict=True)
        yield tf.add_n(gradients) / len(gradients), variables[0]


def all_towers(optimizer):
    """Losses and gradients of each tower, each on its device."""
    losses, found = [], []
    for number in range(TOWERS):
        scope = tf.variable_scope(tf.get_variable_scope(), reuse=number > 0)
        with scope, tf.device(f"/gpu:{number}"), tf.name_scope(f"tower{number}"):
            losses.append(tower_loss())
            found.append(optimizer.compute_gradients(losses[-1]))
    return losses, found


def main(_):
    tf.set_random_seed(8)
    write_validation_images()
    with tf.device("/cpu:0"):
        number = tf.train.get_or_create_global_step()
        rate = tf.train.exponential_decay(0.05, number, 600, 0.99)
        optimizer = tf.train.GradientDescentOptimizer(rate)
        losses, found = all_towers(optimizer)
        applied = optimizer.apply_gradients(mean_of(found), global_step=number)
        averages = tf.train.ExponentialMovingAverage(0.99, number)
        train = tf.group(applied, averages.apply(tf.trainable_variables()))
        loss = tf.add_n(losses) / TOWERS
        tf.summary.scalar("loss", loss)
        summary = tf.summary.merge_all()
    saver = tf.train.Saver()

    anywhere = tf.ConfigProto(allow_soft_placement=True)
    with tf.Session(config=anywhere) as session:
        session.run(tf.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        events = tf.summary.FileWriter(FOLDER, session.graph)
        for step in range(LAST + 1):
            began = time.perf_counter()
            value, _ = session.run((loss, train))
            seconds = time.perf_counter() - began
            if step % 10 == 0 and step:
                rates = f"{TOWERS * OF_A_TOWER / seconds:.1f} examples/sec; {seconds:.3f} sec/batch"
                print(f"{datetime.datetime.now()}: step {step}, loss = {value:.4f} ({rates})")
                events.add_summary(session.run(summary), step)
            if step % LAST == 0:
                saved = saver.save(session, f"{FOLDER}/towers", global_step=step)
        coordinator.request_stop()
        coordinator.join(threads)
        events.close()
    print("saved as", saved)


if __name__ == "__main__":
    tf.app.run()
