"""A separate client: two servers, and a program that trains on one of them.

Shows: the client owns the graph; a server computes it, and need not be the one that it talks to.
Try to break: the line, by a large --learning_rate. Kill each server in turn: which one is needed?

The servers (job worker) only wait for graphs. The client is not a task of TensorFlow's cluster. It
sends the graph to one of the servers, its *master*. The master sends each part of the graph to the
task on which it is placed. Here the master is the last worker, and the whole training is placed on
`/job:worker/task:0`. The model is a line, y = 2x + 10, trained by gradient descent on the mean
squared error.
"""

import numpy as np
import tensorflow.compat.v1 as tf
from placement import server_config
from traces import where

from lab.task.sdk import begin

flags, recorder = begin("linear", __doc__)
tf.disable_eager_execution()

# ---- 1. The servers: they wait for graphs until they are stopped.
if flags.job_name == "worker":
    cluster = tf.train.ClusterSpec({"worker": flags.worker_hosts})
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
    recorder.ready(f"serves at {server.target}")
    server.join()

# ---- 2. The client's graph: data, line, loss and update, all on worker 0.
xs = np.linspace(-1, 1, 100, dtype=np.float32)
ys = 2 * xs + 10

with tf.device("/job:worker/task:0"):
    w = tf.get_variable("w", initializer=0.0)
    b = tf.get_variable("b", initializer=0.0)
    loss = tf.reduce_mean(tf.square(w * xs + b - ys))
    train = tf.train.GradientDescentOptimizer(flags.learning_rate).minimize(loss)
    initialize = tf.global_variables_initializer()

# ---- 3. The session connects to one of the servers; another server may compute.
master = f"grpc://{flags.worker_hosts[-1]}"
recorder.ready(f"its master is {master}")
with tf.Session(master) as session:
    session.run(initialize)
    for step in range(1, flags.steps + 1):
        _, loss_now = session.run([train, loss])
        if step % 50 == 0 or step == flags.steps:
            recorder.write("step", local_step=step, global_step=step, loss=loss_now)
    w_now, b_now = session.run([w, b])

    ran = where(session, [loss, train])

places = ", ".join(f"{name} on {device}" for name, device in ran.items())
recorder.write("event", message=f"ran: {places}")
recorder.write("result", name="w", value=w_now, low=1.95, high=2.05)
recorder.write("result", name="b", value=b_now, low=9.9, high=10.1)
recorder.write("final", global_step=flags.steps, loss=loss_now, status="succeeded")
