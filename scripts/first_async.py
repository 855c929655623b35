"""Asynchronous training in TensorFlow, without `lab`: workers fit the line y = 3 x + 2 together.

Start this program once for each task: a parameter server (ps), and any number of workers.
"""

import argparse
import time

import numpy as np
import tensorflow.compat.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
parser.add_argument("--task_index", required=True, type=int, help="0 for the first of its job")
parser.add_argument("--ps_hosts", required=True, help="such as localhost:2222")
parser.add_argument("--worker_hosts", required=True, help="localhost:2223,localhost:2224")
parser.add_argument("--steps", type=int, default=1000, help="steps of each worker")
parser.add_argument("--learning_rate", type=float, default=0.01)
flags = parser.parse_args()
hosts = {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}

# ---- 1. The cluster: all tasks know all addresses. Each starts a server at its own address.
cluster = tf.train.ClusterSpec(hosts)
server = tf.train.Server(cluster, flags.job_name, flags.task_index)
if flags.job_name == "ps":
    server.join()  # Serves the variables until Ctrl-\ ends it. Only workers run the lines below.

# ---- 2. The graph: these lines compute nothing. They describe what the session computes later.
tf.disable_eager_execution()  # TensorFlow 2 would compute each line at once.
this_worker = f"/job:worker/task:{flags.task_index}"
# The setter places variables on the parameter server, and all other operations on this worker.
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=this_worker)):
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)  # Each step feeds them.
    slope = tf.get_variable("slope", initializer=0.0)  # By its name, all workers share it.
    intercept = tf.get_variable("intercept", initializer=0.0)
    global_step = tf.train.get_or_create_global_step()  # Counts the updates of all workers.
    loss = tf.reduce_mean(tf.square(slope * x + intercept - y))
    optimizer = tf.train.GradientDescentOptimizer(flags.learning_rate)
    update = optimizer.minimize(loss, global_step=global_step)

# ---- 3. The session: worker 0, the chief, initializes the variables, and the others wait for it. A
# session connects only to its worker and the ps. So a worker may start late, or end before others.
is_chief = flags.task_index == 0
config = tf.ConfigProto(device_filters=["/job:ps", this_worker])
if not is_chief:  # MonitoredTrainingSession also waits, but it checks only every 30 seconds.
    uninitialized = tf.report_uninitialized_variables(tf.global_variables())
    with tf.Session(server.target, config=config) as session:
        while session.run(uninitialized).size > 0:
            time.sleep(0.1)
random = np.random.default_rng(seed=flags.task_index)  # Each worker draws its own examples.
with tf.train.MonitoredTrainingSession(server.target, is_chief, config=config) as session:
    for own_step in range(1, flags.steps + 1):
        inputs = random.uniform(-1, 1, size=100)
        outputs = 3 * inputs + 2 + random.normal(scale=0.1, size=100)  # The line, and noise.
        _, loss_now = session.run([update, loss], feed_dict={x: inputs, y: outputs})
        if own_step % 100 == 0:
            step = session.run(global_step)
            print(f"worker {flags.task_index}: step {step}, loss {loss_now:.4f}", flush=True)
    a, b = session.run([slope, intercept])
    print(f"worker {flags.task_index}: y = {a:.3f} x + {b:.3f}")
