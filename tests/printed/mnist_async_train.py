# -*- coding: utf-8 -*-
"""Asynchronous, as a blog of 2017 has it: host flags, a task id, a Supervisor that saves."""
import time
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

import mnist_inference

BATCH_SIZE = 100
LEARNING_RATE_BASE = 0.01
LEARNING_RATE_DECAY = 0.99
REGULARIZATION_RATE = 0.0001
MOVING_AVERAGE_DECAY = 0.99
TRAINING_STEPS = 600
MODEL_SAVE_PATH = "logs_async"
DATA_PATH = "/home/somebody/MNIST_data"

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string('job_name', 'worker', ' "ps" or "worker" ')
tf.app.flags.DEFINE_string('ps_hosts', 'tf-ps0:2222', 'comma-separated list of hosts')
tf.app.flags.DEFINE_string('worker_hosts', 'tf-worker0:2222', 'comma-separated list of hosts')
tf.app.flags.DEFINE_integer('task_id', 0, 'task id of this process')


def build_model(x, y_, is_chief):
    regularizer = tf.contrib.layers.l2_regularizer(REGULARIZATION_RATE)
    y = mnist_inference.inference(x, regularizer)
    global_step = tf.Variable(0, trainable=False)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=y, labels=tf.argmax(y_, 1))
    loss = tf.reduce_mean(cross_entropy) + tf.add_n(tf.get_collection('losses'))
    learning_rate = tf.train.exponential_decay(
        LEARNING_RATE_BASE, global_step, 60000 / BATCH_SIZE, LEARNING_RATE_DECAY)
    tf.summary.scalar('learning_rate', learning_rate)
    train_op = tf.train.GradientDescentOptimizer(learning_rate).minimize(
        loss, global_step=global_step)
    if is_chief:
        variable_averages = tf.train.ExponentialMovingAverage(MOVING_AVERAGE_DECAY, global_step)
        variables_averages_op = variable_averages.apply(tf.trainable_variables())
        with tf.control_dependencies([variables_averages_op, train_op]):
            train_op = tf.no_op()
    return global_step, loss, train_op


def main(argv=None):
    ps_hosts = FLAGS.ps_hosts.split(',')
    worker_hosts = FLAGS.worker_hosts.split(',')
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_id)
    if FLAGS.job_name == 'ps':
        server.join()

    is_chief = (FLAGS.task_id == 0)
    mnist = input_data.read_data_sets(DATA_PATH, one_hot=True)
    device_setter = tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d/gpu:0" % FLAGS.task_id, cluster=cluster)
    with tf.device(device_setter):
        x = tf.placeholder(tf.float32, [None, mnist_inference.INPUT_NODE], name='x-input')
        y_ = tf.placeholder(tf.float32, [None, mnist_inference.OUTPUT_NODE], name='y-input')
        global_step, loss, train_op = build_model(x, y_, is_chief)
        saver = tf.train.Saver()
        summary_op = tf.summary.merge_all()
        init_op = tf.global_variables_initializer()

    sv = tf.train.Supervisor(is_chief=is_chief, logdir=MODEL_SAVE_PATH, init_op=init_op,
                             summary_op=summary_op, saver=saver, global_step=global_step,
                             save_model_secs=60, save_summaries_secs=60)
    sess_config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    sess = sv.prepare_or_wait_for_session(server.target, config=sess_config)

    step = 0
    start_time = time.time()
    while not sv.should_stop():
        xs, ys = mnist.train.next_batch(BATCH_SIZE)
        _, loss_value, global_step_value = sess.run(
            [train_op, loss, global_step], feed_dict={x: xs, y_: ys})
        if global_step_value >= TRAINING_STEPS:
            break
        if step > 0 and step % 100 == 0:
            sec_per_batch = (time.time() - start_time) / global_step_value
            format_str = "After %d training steps (%d global steps), " + \
                         "loss on training batch is %g. (%.3f sec/batch)"
            print(format_str % (step, global_step_value, loss_value, sec_per_batch))
        step += 1
    sv.stop()


if __name__ == "__main__":
    tf.app.run()
