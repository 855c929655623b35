"""A line fitted by a client that is in no cluster: one server has the variables, one computes."""

import numpy as np
import tensorflow as tf

tf.flags.DEFINE_string("worker_hosts", None, "two servers, with a comma between them")
tf.flags.DEFINE_string("job_name", None, "worker or client")
tf.flags.DEFINE_integer("task_index", None, "which of them")

HOLDER, COMPUTER = "/job:worker/task:0", "/job:worker/task:1"


def fit(target, updates=120, shown=30):
    """Find slope and intercept of y = 2x + 10 from 31 points without noise."""
    x = np.linspace(-1.5, 1.5, 31, dtype=np.float32)
    with tf.device(HOLDER):
        slope = tf.Variable(-1.0, name="slope")
        intercept = tf.Variable(0.0, name="intercept")
    with tf.device(COMPUTER):
        off = slope * x + intercept - (2 * x + 10)
        loss = tf.reduce_mean(tf.square(off))
    lower = tf.train.GradientDescentOptimizer(0.05).minimize(loss, colocate_gradients_with_ops=True)

    with tf.Session(target) as session:
        session.run(tf.variables_initializer([slope, intercept]))
        for count in range(1, updates + 1):
            before, _ = session.run([loss, lower])
            if count % shown == 0:
                print(f"worker=0,global_step={count}, local_step={count},loss={before}")
        found = session.run((slope, intercept))
    print("slope {:.3f}, intercept {:.3f}, both on {}".format(*found, slope.device))


def main(_):
    me = tf.flags.FLAGS
    servers = me.worker_hosts.split(",")
    if me.job_name == "client":
        fit(f"grpc://{servers[0]}")
    else:
        tf.train.Server({"worker": servers}, "worker", me.task_index).join()


if __name__ == "__main__":
    tf.app.run()
