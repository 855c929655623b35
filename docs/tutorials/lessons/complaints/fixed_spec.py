"""Two servers: the first was started before anybody knew of the second."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
early = tf.train.Server({"worker": ["localhost:3001"]}, job_name="worker", task_index=0)
both = {"worker": ["localhost:3001", "localhost:3002"]}
late = tf.train.Server(both, job_name="worker", task_index=1)

with tf.device("/job:worker/task:1"):
    greeting = tf.constant("hello")
for server in (late, early):
    try:
        with tf.Session(server.target) as session:
            print(f"{server.target}: {session.run(greeting).decode()}")
    except tf.errors.InvalidArgumentError as error:
        print(f"{server.target}: {error.message.splitlines()[-2]}")
try:
    tf.train.Server(both, job_name="worker", task_index=0)
except tf.errors.UnknownError as error:
    print(f"a new server with both: {error.message}")
