"""Asynchronous training by monitored sessions and their hooks, on two parameter servers.

Each variable goes to the server that holds fewer bytes so far.
"""

import tensorflow as tf

define = tf.app.flags
define.DEFINE_string("ps_hosts", "", "parameter servers, with commas between them")
define.DEFINE_string("worker_hosts", "", "workers, with commas between them")
define.DEFINE_string("job_name", "", "ps or worker")
define.DEFINE_integer("task_index", 0, "which one")

KEPT_IN = "monitored_logs"
UPDATES = 400


class Accuracy(tf.train.SessionRunHook):
    """Prints the accuracy when its worker's session ends."""

    def __init__(self, index, right, fed):
        self.index, self.right, self.fed = index, right, fed

    def end(self, session):
        print(f"worker={self.index}, final accuracy = {session.run(self.right, self.fed)}")


def placed_by_size(cluster, index):
    """Devices of this worker's graph: variables where there is least, all else here."""
    fewest_bytes = tf.contrib.training.GreedyLoadBalancingStrategy(
        cluster.num_tasks("ps"), tf.contrib.training.byte_size_load_fn
    )
    return tf.train.replica_device_setter(
        ps_strategy=fewest_bytes, cluster=cluster, worker_device=f"/job:worker/task:{index}"
    )


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    task = define.FLAGS
    hosts = {"ps": task.ps_hosts.split(","), "worker": task.worker_hosts.split(",")}
    cluster = tf.train.ClusterSpec(hosts)
    server = tf.train.Server(cluster, job_name=task.job_name, task_index=task.task_index)
    if task.job_name == "ps":
        server.join()

    digits = tf.contrib.learn.datasets.load_dataset("mnist")
    with tf.device(placed_by_size(cluster, task.task_index)):
        images = tf.placeholder(tf.float32, [None, 784])
        answers = tf.placeholder(tf.int32, [None])
        matrix = tf.get_variable("matrix", [784, 10], initializer=tf.zeros_initializer)
        added = tf.get_variable("added", [10], initializer=tf.zeros_initializer)
        scores = tf.tensordot(images, matrix, axes=1) + added
        loss = tf.losses.sparse_softmax_cross_entropy(logits=scores, labels=answers)
        best = tf.argmax(scores, 1, output_type=tf.int32)
        right = tf.reduce_mean(tf.cast(tf.equal(best, answers), tf.float32))
        counter = tf.train.create_global_step()
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, counter)
    for variable in (matrix, added, counter):
        print(f"{variable.op.name} is held by {variable.device}")

    tested = {images: digits.test.images, answers: digits.test.labels}
    with tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=not task.task_index,
        checkpoint_dir=KEPT_IN,
        hooks=[
            tf.train.StopAtStepHook(last_step=UPDATES),
            Accuracy(task.task_index, right, tested),
            tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=25),
        ],
        chief_only_hooks=[tf.train.CheckpointSaverHook(KEPT_IN, save_steps=UPDATES // 2)],
        save_checkpoint_secs=None,
        save_summaries_steps=None,
        save_summaries_secs=None,
    ) as monitored:
        while not monitored.should_stop():
            pixels, labels = digits.train.next_batch(100)
            monitored.run(step, {images: pixels, answers: labels})


if __name__ == "__main__":
    tf.app.run()
