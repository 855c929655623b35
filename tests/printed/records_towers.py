# -*- coding: utf-8 -*-
"""One host with two GPUs: TFRecords, queues, a tower on each card and averaged gradients."""
from datetime import datetime
import os
import time

import numpy as np
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

BATCH_SIZE = 100
LEARNING_RATE_BASE = 0.05
LEARNING_RATE_DECAY = 0.99
REGULARIZATION_RATE = 0.0001
MOVING_AVERAGE_DECAY = 0.99
TRAINING_STEPS = 101
N_GPU = 2
MODEL_SAVE_PATH = "towers_model"
DATA_PATH = "towers_data"


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def write_records():
    mnist = input_data.read_data_sets("/data/mnist", dtype=tf.uint8, one_hot=True)
    if not tf.gfile.Exists(DATA_PATH):
        tf.gfile.MakeDirs(DATA_PATH)
    writer = tf.python_io.TFRecordWriter(os.path.join(DATA_PATH, "output.tfrecords"))
    for i in range(5000):
        example = tf.train.Example(features=tf.train.Features(feature={
            'pixels': _int64_feature(mnist.train.images.shape[1]),
            'label': _int64_feature(int(np.argmax(mnist.train.labels[i]))),
            'image_raw': _bytes_feature(mnist.train.images[i].tobytes())}))
        writer.write(example.SerializeToString())
    writer.close()


def get_input():
    filename_queue = tf.train.string_input_producer([os.path.join(DATA_PATH, "output.tfrecords")])
    reader = tf.TFRecordReader()
    _, serialized_example = reader.read(filename_queue)
    features = tf.parse_single_example(serialized_example, features={
        'image_raw': tf.FixedLenFeature([], tf.string),
        'pixels': tf.FixedLenFeature([], tf.int64),
        'label': tf.FixedLenFeature([], tf.int64)})
    image = tf.reshape(tf.cast(tf.decode_raw(features['image_raw'], tf.uint8), tf.float32), [784])
    label = tf.cast(features['label'], tf.int32)
    min_after_dequeue = 1000
    return tf.train.shuffle_batch([image / 255.0, label], batch_size=BATCH_SIZE,
                                  capacity=min_after_dequeue + 3 * BATCH_SIZE,
                                  min_after_dequeue=min_after_dequeue)


def inference(images):
    regularizer = tf.contrib.layers.l2_regularizer(REGULARIZATION_RATE)
    with tf.variable_scope('layer1'):
        weights = tf.get_variable("weights", [784, 100], regularizer=regularizer,
                                  initializer=tf.truncated_normal_initializer(stddev=0.1))
        biases = tf.get_variable("biases", [100], initializer=tf.constant_initializer(0.0))
        hidden = tf.nn.relu(tf.matmul(images, weights) + biases)
    with tf.variable_scope('layer2'):
        weights = tf.get_variable("weights", [100, 10], regularizer=regularizer,
                                  initializer=tf.truncated_normal_initializer(stddev=0.1))
        biases = tf.get_variable("biases", [10], initializer=tf.constant_initializer(0.0))
        return tf.matmul(hidden, weights) + biases


def get_loss(images, labels, reuse_variables=None):
    with tf.variable_scope(tf.get_variable_scope(), reuse=reuse_variables):
        y = inference(images)
    cross_entropy = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(logits=y, labels=labels))
    # The penalties come into being with the variables, in the first tower.
    return cross_entropy + tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))


def average_gradients(tower_grads):
    average_grads = []
    for grad_and_vars in zip(*tower_grads):
        grads = [tf.expand_dims(g, 0) for g, _ in grad_and_vars]
        grad = tf.reduce_mean(tf.concat(grads, 0), 0)
        average_grads.append((grad, grad_and_vars[0][1]))
    return average_grads


def main(argv=None):
    write_records()
    with tf.Graph().as_default(), tf.device('/cpu:0'):
        images, labels = get_input()
        global_step = tf.get_variable('global_step', [], trainable=False,
                                      initializer=tf.constant_initializer(0))
        learning_rate = tf.train.exponential_decay(
            LEARNING_RATE_BASE, global_step, 600, LEARNING_RATE_DECAY)
        opt = tf.train.GradientDescentOptimizer(learning_rate)
        tower_grads = []
        reuse_variables = None
        for i in range(N_GPU):
            with tf.device('/gpu:%d' % i):
                with tf.name_scope('GPU_%d' % i):
                    cur_loss = get_loss(images, labels, reuse_variables)
                    reuse_variables = True
                    tower_grads.append(opt.compute_gradients(cur_loss))
        grads = average_gradients(tower_grads)
        for grad, var in grads:
            if grad is not None:
                tf.summary.histogram('gradients_on_average/%s' % var.op.name, grad)
        apply_gradient_op = opt.apply_gradients(grads, global_step=global_step)
        variable_averages = tf.train.ExponentialMovingAverage(MOVING_AVERAGE_DECAY, global_step)
        variables_averages_op = variable_averages.apply(tf.trainable_variables())
        train_op = tf.group(apply_gradient_op, variables_averages_op)

        saver = tf.train.Saver(tf.global_variables())
        summary_op = tf.summary.merge_all()
        init = tf.global_variables_initializer()
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True,
                                              log_device_placement=False)) as sess:
            init.run()
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess=sess, coord=coord)
            summary_writer = tf.summary.FileWriter(MODEL_SAVE_PATH, sess.graph)
            for step in range(TRAINING_STEPS):
                start_time = time.time()
                _, loss_value = sess.run([train_op, cur_loss])
                duration = time.time() - start_time
                if step != 0 and step % 10 == 0:
                    num_examples_per_step = BATCH_SIZE * N_GPU
                    format_str = '%s: step %d, loss = %.2f (%.1f examples/sec; %.3f sec/batch)'
                    print(format_str % (datetime.now(), step, loss_value,
                                        num_examples_per_step / duration, duration / N_GPU))
                    summary_writer.add_summary(sess.run(summary_op), step)
                if step == 0 or (step + 1) == TRAINING_STEPS:
                    saver.save(sess, os.path.join(MODEL_SAVE_PATH, "model.ckpt"), global_step=step)
            coord.request_stop()
            coord.join(threads)
            print("checkpoint: %s" % tf.train.latest_checkpoint(MODEL_SAVE_PATH))


if __name__ == '__main__':
    tf.app.run()
