"""A small convolutional network: save it, restore it in another graph, test it there."""
import os
import tensorflow as tf
from tensorflow.contrib.learn.python.learn.datasets.mnist import read_data_sets

flags = tf.flags
flags.DEFINE_integer("steps", 120, "training steps")
flags.DEFINE_string("model_dir", "lenet_model", "where the model is saved")
flags.DEFINE_float("keep_prob", 0.7, "share of the units that dropout keeps")
FLAGS = flags.FLAGS

CHANNELS1 = 8
CHANNELS2 = 16


def inference(images, keep_prob):
    xavier = tf.contrib.layers.xavier_initializer()
    lasso = tf.contrib.layers.l1_regularizer(1e-5)
    with tf.variable_scope("conv1"):
        kernel = tf.get_variable("kernel", [5, 5, 1, CHANNELS1], initializer=xavier)
        bias = tf.get_variable("bias", [CHANNELS1], initializer=tf.constant_initializer(0.0))
        conv = tf.nn.conv2d(images, kernel, strides=[1, 2, 2, 1], padding='SAME')
        conv1 = tf.nn.relu(tf.nn.bias_add(conv, bias))
    with tf.variable_scope("conv2"):
        kernel = tf.get_variable("kernel", [5, 5, CHANNELS1, CHANNELS2], initializer=xavier)
        bias = tf.get_variable("bias", [CHANNELS2], initializer=tf.constant_initializer(0.0))
        conv = tf.nn.conv2d(conv1, kernel, strides=[1, 1, 1, 1], padding='SAME')
        conv2 = tf.nn.relu(tf.nn.bias_add(conv, bias))
        pool2 = tf.nn.max_pool(conv2, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='SAME')
    shape = pool2.get_shape().as_list()
    nodes = shape[1] * shape[2] * shape[3]
    flat = tf.nn.dropout(tf.reshape(pool2, [-1, nodes]), keep_prob=keep_prob)
    with tf.variable_scope("out"):
        weights = tf.get_variable("weights", [nodes, 10], initializer=xavier)
        tf.add_to_collection("losses", lasso(weights))
        biases = tf.get_variable("biases", [10], initializer=tf.zeros_initializer())
        return tf.matmul(flat, weights) + biases


def train(mnist):
    x = tf.placeholder(tf.float32, [None, 28, 28, 1])
    y_ = tf.placeholder(tf.float32, [None, 10])
    keep_prob = tf.placeholder(tf.float32)
    y = inference(x, keep_prob)
    cross_entropy = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(logits=y, labels=y_))
    penalty = tf.add_n(tf.get_collection("losses"))
    train_op = tf.train.AdamOptimizer(0.003).minimize(cross_entropy + penalty)
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(1, FLAGS.steps + 1):
            xs, ys = mnist.train.next_batch(64)
            feed = {x: xs, y_: ys, keep_prob: FLAGS.keep_prob}
            _, value, l1 = sess.run([train_op, cross_entropy, penalty], feed_dict=feed)
            if step % 40 == 0:
                print("step %d, loss %g, penalty %g" % (step, value, l1))
        saver.save(sess, os.path.join(FLAGS.model_dir, "lenet.ckpt"), global_step=FLAGS.steps)


def evaluate():
    test = tf.contrib.learn.datasets.mnist.load_mnist("MNIST-data").test
    x = tf.placeholder(tf.float32, [None, 784])
    y = inference(tf.reshape(x, [-1, 28, 28, 1]), 1.0)
    labels = tf.placeholder(tf.int64, [None])
    right = tf.equal(tf.argmax(y, 1), labels)
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
    saver = tf.train.Saver()
    with tf.Session() as sess:
        ckpt = tf.train.get_checkpoint_state(FLAGS.model_dir)
        if not (ckpt and ckpt.model_checkpoint_path):
            print("No checkpoint file found")
            return
        saver.restore(sess, ckpt.model_checkpoint_path)
        step = ckpt.model_checkpoint_path.split('/')[-1].split('-')[-1]
        score = sess.run(accuracy, feed_dict={x: test.images, labels: test.labels})
        print("After %s training step(s), test accuracy = %g" % (step, score))


def main(argv):
    tf.logging.set_verbosity(tf.logging.INFO)
    if tf.gfile.Exists(FLAGS.model_dir):
        tf.logging.warn("%s is there already, it is deleted", FLAGS.model_dir)
        tf.gfile.DeleteRecursively(FLAGS.model_dir)
    tf.gfile.MakeDirs(FLAGS.model_dir)
    mnist = read_data_sets("MNIST-data", one_hot=True, reshape=False)
    with tf.Graph().as_default():
        train(mnist)
    with tf.Graph().as_default():
        evaluate()
    with tf.gfile.GFile(os.path.join(FLAGS.model_dir, "checkpoint")) as index:
        print(index.readline().strip())


if __name__ == '__main__':
    tf.app.run()
