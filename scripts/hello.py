"""Servers that greet: the smallest cluster there is.

Every task of job `local` starts a server, and then asks every server of the cluster for a
greeting. A greeting is a constant with a device of its own: the session belongs to one task, and
each constant is evaluated on the task that it is placed on. A cluster of one task needs no cluster
spec.
"""

import contextlib

import tensorflow.compat.v1 as tf
from begin import begin, server_config
from traces import as_written, where

from lab.task.sdk.flags import parse, task_flags
from lab.task.sdk.program import wait_for_start

flags = parse(task_flags(__doc__, jobs=["local"]))

recorder = begin(flags)
tf.disable_eager_execution()

# ---- 1. The server: it makes this process one task of the cluster.
if len(flags.local_hosts) == 1:
    server = tf.train.Server.create_local_server()
    tasks = ["/job:localhost/task:0"]  # Its name for the only job.
else:
    tasks = [f"/job:local/task:{index}" for index in range(len(flags.local_hosts))]
    cluster = tf.train.ClusterSpec({"local": flags.local_hosts})
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))

# ---- 2. The graph: a greeting on each task, and a queue in which goodbyes arrive.
greetings, goodbyes = [], []
for task in tasks:
    with tf.device(task):
        greetings.append(tf.constant(f"hello from {task}"))
        # The tasks have a graph each; by its shared name they all mean the same queue.
        goodbyes.append(tf.FIFOQueue(len(tasks), tf.int32, [[]], shared_name=f"goodbyes to {task}"))
say_goodbye = [queue.enqueue(flags.task_index) for queue in goodbyes]
hear_all_goodbyes = goodbyes[flags.task_index].dequeue_many(len(tasks))

# ---- 3. The session: it runs on this task's server, and reaches the others through it.
recorder.write("event", status="ready", message=f"serves at {server.target}")
wait_for_start()
with tf.Session(server.target, config=as_written()) as session:
    for greeting in session.run(greetings):
        print(greeting.decode())
    ran = where(session, greetings)

    # ---- 4. The end: a server that goes too soon leaves the others without an answer. So each says
    # goodbye to all, and goes when it has heard the goodbye of all.
    for goodbye in say_goodbye:
        with contextlib.suppress(tf.errors.UnavailableError):  # Who has heard all may be gone.
            session.run(goodbye)
    session.run(hear_all_goodbyes)

greeted = sum(
    ran.get(greeting.op.name, "").startswith(f"{task}/")
    for greeting, task in zip(greetings, tasks, strict=True)
)
recorder.write("result", name="tasks that greeted", value=greeted, low=len(tasks), high=len(tasks))
recorder.write("final", status="succeeded")
