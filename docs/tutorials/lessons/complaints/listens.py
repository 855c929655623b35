"""A server, and the addresses at which it answers."""

import json
import os
import socket

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
address = config["cluster"][job][index]
server = tf.distribute.Server(config["cluster"], job_name=job, task_index=index)
print(f"the spec says {address}, the server says {server.target}")

port = int(address.rpartition(":")[2])
for host in ("127.0.0.1", "127.9.9.9", socket.gethostbyname(socket.gethostname())):
    socket.create_connection((host, port)).close()
    print(f"{host}:{port} answers")
