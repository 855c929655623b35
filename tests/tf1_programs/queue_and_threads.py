"""A queue that TensorFlow's own runner fills, and threads of the program under a coordinator."""

import threading

import tensorflow as tf

FILLERS = 4
COUNTERS = 3
ENOUGH = 50


def points():
    """A queue of points on y = 3x - 1, and the runner that fills it by several threads."""
    queue = tf.FIFOQueue(100, [tf.float32, tf.float32], shapes=[(), ()], name="points")
    x = tf.random_uniform((10,), -1, 1)
    runner = tf.train.QueueRunner(queue, [queue.enqueue_many((x, 3 * x - 1))] * FILLERS)
    tf.train.add_queue_runner(runner)
    return queue


def fitted(queue):
    """Slope and offset after 300 updates by points of the queue, and the number of threads."""
    x, y = queue.dequeue_many(20)
    with tf.variable_scope("line"):
        slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
        offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer())
    update = tf.train.GradientDescentOptimizer(0.3).minimize(
        tf.losses.mean_squared_error(y, slope * x + offset)
    )
    filling = tf.train.Coordinator()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        fillers = tf.train.start_queue_runners(sess=session, coord=filling)
        for _ in range(300):
            session.run(update)
        filling.request_stop()
        line = session.run({"slope": slope, "offset": offset})
        session.run(queue.close(cancel_pending_enqueues=True))
        filling.join(fillers, stop_grace_period_secs=20)
    return line, len(fillers)


def counted_together():
    """What threads have counted when the first of them has enough, and whether all have ended."""
    coordinator, counts = tf.train.Coordinator(), [0] * COUNTERS

    def count(mine):
        while not coordinator.should_stop():
            counts[mine] += 1
            if counts[mine] == ENOUGH:
                coordinator.request_stop()

    threads = [threading.Thread(target=count, args=(each,)) for each in range(COUNTERS)]
    for each in threads:
        each.start()
    coordinator.join(threads)
    return counts, not any(each.is_alive() for each in threads)


line, fillers = fitted(points())
print("threads that fill the queue:", fillers)
print("slope {slope:.3f}, offset {offset:.3f}".format(**line))
counts, ended = counted_together()
print("the first has counted to", max(counts))
print("all have ended:", ended)
