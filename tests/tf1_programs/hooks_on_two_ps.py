"""Asynchronous training by monitored sessions and their hooks, on two parameter servers.

Each variable goes to the server that holds fewer bytes so far.
"""

import time

import tensorflow as tf

define = tf.app.flags
define.DEFINE_string("ps_hosts", "", "parameter servers, with commas between them")
define.DEFINE_string("worker_hosts", "", "workers, with commas between them")
define.DEFINE_string("job_name", "", "ps or worker")
define.DEFINE_integer("task_index", 0, "which one")

KEPT_IN = "monitored_logs"
UPDATES = 400


class Softmax:
    """Linear scores from zeros, a loss, and the share of right answers."""

    def __init__(self):
        self.images = tf.placeholder(tf.float32, [None, 784])
        self.answers = tf.placeholder(tf.int32, [None])
        self.matrix = tf.get_variable("matrix", [784, 10], initializer=tf.zeros_initializer)
        self.added = tf.get_variable("added", [10], initializer=tf.zeros_initializer)
        scores = tf.tensordot(self.images, self.matrix, axes=1) + self.added
        self.loss = tf.losses.sparse_softmax_cross_entropy(logits=scores, labels=self.answers)
        best = tf.argmax(scores, 1, output_type=tf.int32)
        self.right = tf.reduce_mean(tf.cast(tf.equal(best, self.answers), tf.float32))

    def given(self, images, answers):
        return {self.images: images, self.answers: answers}


class Reporter(tf.train.SessionRunHook):
    """A line at every fiftieth step of this worker, and the accuracy when its session ends."""

    def __init__(self, index, model, counter, test):
        self.index, self.model, self.counter, self.test = index, model, counter, test
        self.steps, self.since = 0, time.time()

    def before_run(self, run_context):
        del run_context
        return tf.train.SessionRunArgs({"loss": self.model.loss, "all": self.counter})

    def after_run(self, run_context, run_values):
        del run_context
        self.steps += 1
        if self.steps % 50 == 0:
            seen = run_values.results
            each = (time.time() - self.since) / self.steps
            print(
                f"After {self.steps:4d} training steps ({seen['all']:6d} global steps), loss on"
                f" training batch is {seen['loss']:9.6f}.  ({each:7.3f} sec/batch)"
            )

    def end(self, session):
        right = session.run(self.model.right, self.model.given(self.test.images, self.test.labels))
        print(f"worker={self.index}, final accuracy = {right}")


def placed_by_size(cluster, index):
    """Devices of this worker's graph: variables where there is least, all else here."""
    servers = cluster.num_tasks("ps")
    fewest_bytes = tf.contrib.training.GreedyLoadBalancingStrategy(
        servers, tf.contrib.training.byte_size_load_fn
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
    index = task.task_index

    digits = tf.contrib.learn.datasets.load_dataset("mnist")
    with tf.device(placed_by_size(cluster, index)):
        model = Softmax()
        counter = tf.train.create_global_step()
        step = tf.train.GradientDescentOptimizer(0.1).minimize(model.loss, counter)
    for variable in (model.matrix, model.added, counter):
        print(f"{variable.op.name} is held by {variable.device}")

    saving = tf.train.CheckpointSaverHook(KEPT_IN, save_steps=UPDATES // 2)
    logging = tf.train.LoggingTensorHook({"loss": model.loss}, every_n_iter=25)
    with tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=not index,
        checkpoint_dir=KEPT_IN,
        hooks=[
            tf.train.StopAtStepHook(last_step=UPDATES),
            Reporter(index, model, counter, digits.test),
            logging,
        ],
        chief_only_hooks=[saving],
        save_checkpoint_secs=None,
        save_summaries_steps=None,
        save_summaries_secs=None,
    ) as monitored:
        while not monitored.should_stop():
            monitored.run(step, model.given(*digits.train.next_batch(100)))


if __name__ == "__main__":
    tf.app.run()
