"""Asynchronous softmax regression with its cluster in the source, which counts its steps.

One parameter server and three workers on fixed ports, a Supervisor, a feed dictionary. Each worker
counts its own steps in Python. Each step also adds one to the shared global step, and one to a
variable that only this worker changes.
"""

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

HOSTS = {
    "ps": ["localhost:9001"],
    "worker": ["localhost:9002", "localhost:9003", "localhost:9004"],
}
BATCH_SIZE = 100

tf.flags.DEFINE_string("job_name", None, "ps or worker")
tf.flags.DEFINE_integer("task_index", None, "number of this task in its job")
tf.flags.DEFINE_integer("epochs", 2, "passes over the images, for each worker")
FLAGS = tf.flags.FLAGS


def train(cluster: tf.train.ClusterSpec, index: int) -> None:
    """Train, test, and compare the counts."""
    server = tf.train.Server(cluster, "worker", index)
    mnist = input_data.read_data_sets("mnist", one_hot=True)
    steps_per_epoch = mnist.train.num_examples // BATCH_SIZE

    worker = f"/job:worker/task:{index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        global_step = tf.train.create_global_step()
        images = tf.placeholder(tf.float32, [None, 784])
        labels = tf.placeholder(tf.float32, [None, 10])
        weights = tf.get_variable("weights", [784, 10], initializer=tf.random_normal_initializer())
        biases = tf.get_variable("biases", [10], initializer=tf.random_normal_initializer())
        counters = [tf.Variable(0, trainable=False) for _ in HOSTS["worker"]]

        logits = tf.nn.bias_add(tf.matmul(images, weights), biases)
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses)
        optimizer = tf.train.GradientDescentOptimizer(0.01)
        update = optimizer.minimize(loss, global_step=global_step)
        with tf.control_dependencies([update]):
            step = tf.assign_add(counters[index], 1).op
        right = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
        initialize = tf.global_variables_initializer()

    supervisor = tf.train.Supervisor(
        is_chief=index == 0, init_op=initialize, global_step=global_step, summary_op=None
    )
    session = supervisor.prepare_or_wait_for_session(server.target)
    made = 0
    for epoch in range(FLAGS.epochs):
        for _ in range(steps_per_epoch):
            batch, answers = mnist.train.next_batch(BATCH_SIZE)
            fed = {images: batch, labels: answers}
            _, value, reached = session.run([step, loss, global_step], fed)
            made += 1
        place = f"epoch={epoch},global_step={reached}, local_step={made}"
        print(f"worker={index},{place}, loss = {value}")
    tests = {images: mnist.test.images, labels: mnist.test.labels}
    print(f"worker={index}, final accuracy = {session.run(accuracy, tests)}")
    # Whichever worker ends last reads the final global step.
    own, reached = session.run([counters[index], global_step])
    print(f"counts: local_step={made} counted={own} global_step={reached}")
    supervisor.stop()


def main(_: list[str]) -> None:
    """Serve the variables, or train."""
    cluster = tf.train.ClusterSpec(HOSTS)
    if FLAGS.job_name == "ps":
        tf.train.Server(cluster, "ps", FLAGS.task_index).join()
    else:
        train(cluster, FLAGS.task_index)


if __name__ == "__main__":
    tf.app.run()
