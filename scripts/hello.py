"""The smallest cluster: its servers greet each other.

Shows: a session on one task evaluates each operation on the task where it is placed.
Try to break: the end. Leave out the last line of step 4, start a task late, or kill one.

Every task of job `local` starts a server, and then asks every server of the cluster for a greeting.
A greeting is a constant that is placed on one of the tasks. A cluster of one task needs no cluster
spec.
"""

import contextlib

import tensorflow.compat.v1 as tf
from placement import server_config
from traces import as_written, where

from lab.task.sdk import begin

flags, recorder = begin("hello", __doc__)
tf.disable_eager_execution()

# ---- 1. The server makes this process a task of the cluster.
if len(flags.local_hosts) == 1:
    server = tf.train.Server.create_local_server()
    tasks = ["/job:localhost/task:0"]  # TensorFlow's name of the only task.
else:
    tasks = [f"/job:local/task:{index}" for index in range(len(flags.local_hosts))]
    cluster = tf.train.ClusterSpec({"local": flags.local_hosts})
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))

# ---- 2. The graph: on each task a greeting, and a queue for goodbyes.
greetings, goodbyes = [], []
for task in tasks:
    with tf.device(task):
        greetings.append(tf.constant(f"hello from {task}"))
        # Each task has its own graph. The shared name makes all graphs use the same queue.
        goodbyes.append(tf.FIFOQueue(len(tasks), tf.int32, [[]], shared_name=f"goodbyes to {task}"))
say_goodbye = [queue.enqueue(flags.task_index) for queue in goodbyes]
hear_all_goodbyes = goodbyes[flags.task_index].dequeue_many(len(tasks))

# ---- 3. The session runs on this task's server, which connects to the other servers.
recorder.ready(f"serves at {server.target}")
with tf.Session(server.target, config=as_written()) as session:
    for greeting in session.run(greetings):
        print(greeting.decode())
    ran = where(session, greetings)

    # ---- 4. The end: a server that stops too early does not answer the others any more. So each
    # task sends a goodbye to all tasks, and ends when it has received all goodbyes.
    for goodbye in say_goodbye:
        with contextlib.suppress(tf.errors.UnavailableError):  # That task may have ended.
            session.run(goodbye)
    session.run(hear_all_goodbyes)

greeted = sum(
    ran.get(greeting.op.name, "").startswith(f"{task}/")
    for greeting, task in zip(greetings, tasks, strict=True)
)
recorder.write("result", name="tasks that greeted", value=greeted, low=len(tasks), high=len(tasks))
recorder.write("final", status="succeeded")
