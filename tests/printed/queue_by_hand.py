"""A queue, four threads that fill it, and a Coordinator: a line y = 3x - 1 is learnt from it."""
import threading
import numpy as np
import tensorflow as tf

tf.set_random_seed(42)
xs = tf.random_uniform([8], -1, 1)
queue = tf.FIFOQueue(100, [tf.float32, tf.float32], shapes=[[], []])
enqueue_op = queue.enqueue_many([xs, 3 * xs - 1])
qr = tf.train.QueueRunner(queue, [enqueue_op] * 4)
tf.train.add_queue_runner(qr)
x, y = queue.dequeue_many(20)

a = tf.Variable(tf.zeros([]))
b = tf.Variable(tf.zeros([]))
loss = tf.reduce_mean(tf.square(a * x + b - y))
train_op = tf.train.GradientDescentOptimizer(0.2).minimize(loss)


def my_loop(coord, seen):
    while not coord.should_stop():
        seen.append(threading.current_thread().name)
        if len(seen) > 10:
            coord.request_stop()
        coord.wait_for_stop(0.01)


with tf.Session() as sess:
    tf.global_variables_initializer().run()
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    print("threads: %d" % len(threads))
    try:
        for step in range(200):
            if coord.should_stop():
                break
            _, value = sess.run([train_op, loss])
            if step % 50 == 0:
                print("step %d: loss %.6f" % (step, value))
    except tf.errors.OutOfRangeError:
        print("the queue is at its end")
    finally:
        coord.request_stop()
        coord.join(threads)
    print("a = %.3f, b = %.3f" % tuple(sess.run([a, b])))

seen = []
coord = tf.train.Coordinator()
hands = [threading.Thread(target=my_loop, args=(coord, seen)) for _ in range(3)]
for t in hands:
    t.start()
coord.join(hands)
print("all of %d threads have stopped: %s" % (len(hands), coord.should_stop()))
print("mean: %.1f" % np.mean([t.is_alive() for t in hands]))
