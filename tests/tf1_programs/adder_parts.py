"""What `adder_one` and `adder_ten` have in common; all of it is on the first worker."""

import tensorflow as tf

CLUSTER = tf.train.ClusterSpec({"worker": ["localhost:2222", "localhost:2223"]})


def shared():
    """The sum, and two queues that say when it may be added to, and when all is added."""
    with tf.device("/job:worker/task:0"):
        total = tf.get_variable("total", [], tf.int64, tf.zeros_initializer())
        queues = [tf.FIFOQueue(1, tf.bool, [[]], shared_name=name) for name in ("begun", "done")]
    return total, *queues


def add_often(session, total, number):
    """Add a number a hundred times, a step each."""
    step = tf.assign_add(total, number, use_locking=True)
    for _ in range(100):
        session.run(step)
