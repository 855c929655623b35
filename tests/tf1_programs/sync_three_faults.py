"""Synchronous softmax regression that does not reach its end: it has three faults on purpose.

`docs/reference/printed-programs.md` describes them. Nothing here is to be corrected:
`lab run --listing=mend` is tested with it.
"""

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

WORKERS = ["localhost:9002", "localhost:9003", "localhost:9004"]
ROUNDS = 550
REPORT_EVERY = 110

tf.flags.DEFINE_enum("job_name", "worker", enum_values=["ps", "worker"], help="of this task")
tf.flags.DEFINE_integer("task_index", default=0, help="0 is the chief among the workers")


def averaging(rate):
    """Gradient descent on the mean of one gradient from each worker."""
    return tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(rate),
        total_num_replicas=len(WORKERS),
        replicas_to_aggregate=len(WORKERS),
    )


def initial_operation(rounds, chief):
    """The first fault: both are operations, and neither can be called."""
    operation = rounds.local_step_init_op()
    if chief:
        operation = rounds.chief_init_op()
    return operation


def train(server, cluster, index):
    chief = index == 0
    setter = {"worker_device": f"/job:worker/task:{index}", "cluster": cluster}
    with tf.device(tf.train.replica_device_setter(**setter)):
        round_number = tf.Variable(0, trainable=False, name="round_number", dtype=tf.int64)
        image_rows = tf.placeholder(tf.float32, [None, 784])
        truth = tf.placeholder(tf.int64, [None])
        with tf.variable_scope("regression", initializer=tf.random_normal_initializer()):
            scores = tf.matmul(image_rows, tf.get_variable("matrix", [784, 10]))
            scores += tf.get_variable("vector", [10])
        mistake = tf.losses.sparse_softmax_cross_entropy(truth, scores)
        share_right = tf.reduce_mean(tf.cast(tf.nn.in_top_k(scores, truth, 1), tf.float32))
        rounds = averaging(0.1)
        contribute = rounds.minimize(mistake, global_step=round_number)

    # The second fault: stop() waits for this runner, which waits for gradients.
    runner, tokens = rounds.get_chief_queue_runner(), rounds.get_init_tokens_op()
    keeper = tf.train.Supervisor(
        is_chief=chief,
        global_step=round_number,
        local_init_op=initial_operation(rounds, chief),
        ready_for_local_init_op=rounds.ready_for_local_init_op,
        init_op=tf.global_variables_initializer(),
    )
    session = keeper.prepare_or_wait_for_session(server.target)
    if chief:
        keeper.start_queue_runners(session, [runner])
        session.run(tokens)

    mnist = input_data.read_data_sets("elsewhere")
    # The third fault: steps of this worker are counted, not rounds of all.
    for own in range(1, ROUNDS + 1):
        rows, digits = mnist.train.next_batch(100)
        reached, value, _ = session.run(
            (round_number, mistake, contribute), {image_rows: rows, truth: digits}
        )
        if own % REPORT_EVERY == 0:
            print(f"worker={index},epoch=0,global_step={reached},  local_step={own},loss={value}")
    tested = {image_rows: mnist.test.images, truth: mnist.test.labels}
    print(f"worker={index}, final accuracy = {share_right.eval(tested, session)}")
    keeper.stop()


def main(_):
    cluster = tf.train.ClusterSpec({"worker": WORKERS, "ps": ["localhost:9001"]})
    job, index = tf.flags.FLAGS.job_name, tf.flags.FLAGS.task_index
    server = tf.train.Server(cluster, job, index)
    train(server, cluster, index) if job == "worker" else server.join()


if __name__ == "__main__":
    tf.app.run()
