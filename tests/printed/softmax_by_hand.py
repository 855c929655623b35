"""Single process: feed dictionaries, name scopes, a summary, as a tutorial of 2017 would have it."""
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data
from tensorflow.contrib.layers import fully_connected

flags = tf.app.flags
flags.DEFINE_integer("steps", 200, "training steps")
flags.DEFINE_string("logs", "softmax_logs", "summaries")
FLAGS = flags.FLAGS


def main(_):
    mnist = input_data.read_data_sets("/no/such/MNIST_data", one_hot=True)
    tf.logging.set_verbosity(tf.logging.INFO)
    x = tf.placeholder(tf.float32, shape=[None, 784], name="x-input")
    y_ = tf.placeholder(tf.float32, shape=[None, 10], name="y-input")
    hidden = fully_connected(x, 50, weights_regularizer=tf.contrib.layers.l2_regularizer(1e-4))
    y = tf.contrib.layers.fully_connected(hidden, 10, activation_fn=None)
    cross_entropy = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(labels=y_, logits=y))
    loss = cross_entropy + tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
    global_step = tf.Variable(0, trainable=False)
    rate = tf.train.exponential_decay(0.5, global_step, 100, 0.99)
    train = tf.train.GradientDescentOptimizer(rate).minimize(loss, global_step=global_step)
    averages = tf.train.ExponentialMovingAverage(0.99, global_step)
    with tf.control_dependencies([train]):
        train_op = averages.apply(tf.trainable_variables())
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1)), tf.float32))
    tf.summary.scalar("loss", loss)
    merged = tf.summary.merge_all()
    with tf.Session() as sess:
        tf.global_variables_initializer().run()
        writer = tf.summary.FileWriter(FLAGS.logs, sess.graph)
        for step in range(FLAGS.steps):
            xs, ys = mnist.train.next_batch(100)
            _, summary, value = sess.run([train_op, merged, loss], feed_dict={x: xs, y_: ys})
            writer.add_summary(summary, step)
            if step % 100 == 0:
                print("After %d training steps (%d global steps), loss on training batch is %g.  (%.3f sec/batch)"
                      % (step, step, value, 0.0))
        writer.close()
        print("worker=0, final accuracy =", sess.run(
            accuracy, feed_dict={x: mnist.test.images, y_: mnist.test.labels}))


if __name__ == "__main__":
    tf.app.run()
