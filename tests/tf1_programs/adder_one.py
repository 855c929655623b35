"""The first of two workers, each with a program of its own. It has the sum, and adds ones.

Its cluster, its job and its number stand in the source.
"""

import adder_parts
import tensorflow as tf

server = tf.train.Server(adder_parts.CLUSTER, "worker", 0)
total, begun, done = adder_parts.shared()
with tf.Session(server.target) as session:
    session.run([total.initializer])
    session.run(begun.enqueue(True))
    adder_parts.add_often(session, total, 1)
    session.run(done.dequeue())
    print("sum", session.run(total))
