"""The client of `shelf_server`: it is in no cluster, and computes on the server alone."""

import tensorflow as tf

with tf.device("/job:shelf/task:0"):
    kept = tf.get_variable("kept", initializer=tf.constant([1.0, 2.0]))
    doubled = tf.assign(kept, 2 * kept)

with tf.Session("grpc://localhost:2222") as there:
    there.run(kept.initializer)
    for _ in range(3):
        there.run(doubled)
    print("kept", *there.run(kept), "on", kept.device)
