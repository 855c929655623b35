"""A parameter server that joins, and workers that have nothing to do."""

import json
import os

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
server = tf.distribute.Server(config["cluster"], job_name=job, task_index=index)
if job == "ps":
    server.join()
print(f"{job}-{index} is done")
