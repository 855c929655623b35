"""Two servers and a client, which is none of them: it trains y = 2x + 10 on the first."""
from datetime import datetime
import time
import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("job_name", "client", "worker or client")
flags.DEFINE_integer("task_index", 0, "which worker")
flags.DEFINE_string("worker_hosts", "localhost:2222,localhost:2223", "both servers")
FLAGS = flags.FLAGS


def train(workers):
    train_x = np.linspace(-1, 1, 100)
    train_y = 2 * train_x + 10
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32)
        y = tf.placeholder(tf.float32)
        w = tf.Variable(0.0, name="weight")
        b = tf.Variable(0.0, name="bias")
        loss = tf.reduce_mean(tf.square(y - x * w - b))
        train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    sess = tf.Session("grpc://" + workers[0])
    sess.run(tf.global_variables_initializer())
    for step in range(1, 201):
        start_time = time.time()
        _, value = sess.run([train_op, loss], feed_dict={x: train_x, y: train_y})
        duration = time.time() - start_time
        if step % 40 == 0:
            print("%s: step %d, loss = %.4f (%.1f examples/sec; %.3f sec/batch)" % (
                datetime.now(), step, value, 100 / duration, duration))
    print("w = %.3f, b = %.3f on %s" % (sess.run(w), sess.run(b), w.device))


def main(_):
    workers = FLAGS.worker_hosts.split(",")
    if FLAGS.job_name == "worker":
        cluster = tf.train.ClusterSpec({"worker": workers})
        server = tf.train.Server(cluster, job_name="worker", task_index=FLAGS.task_index)
        server.join()
    else:
        train(workers)


if __name__ == "__main__":
    tf.app.run()
