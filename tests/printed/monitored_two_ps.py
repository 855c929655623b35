"""MonitoredTrainingSession with its hooks, and the variables balanced over two parameter servers."""
import tensorflow as tf

tf.app.flags.DEFINE_string('ps_hosts', '', 'host:port,host:port')
tf.app.flags.DEFINE_string('worker_hosts', '', 'host:port,host:port')
tf.app.flags.DEFINE_string('job_name', '', 'ps or worker')
tf.app.flags.DEFINE_integer('task_index', 0, 'index of the task in its job')
tf.app.flags.DEFINE_integer('last_step', 400, 'the global step to stop at')
FLAGS = tf.app.flags.FLAGS

tf.logging.set_verbosity(tf.logging.INFO)


class FinalAccuracy(tf.train.SessionRunHook):
    def __init__(self, accuracy, feed_dict):
        self.accuracy = accuracy
        self.feed_dict = feed_dict

    def end(self, session):
        value = session.run(self.accuracy, feed_dict=self.feed_dict)
        print("worker=%d, final accuracy = %g" % (FLAGS.task_index, value))


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return

    is_chief = FLAGS.task_index == 0
    mnist = tf.contrib.learn.datasets.load_dataset("mnist")
    greedy = tf.contrib.training.GreedyLoadBalancingStrategy(
        len(ps_hosts), tf.contrib.training.byte_size_load_fn)
    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index,
            ps_strategy=greedy, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.int64, [None])
        w = tf.get_variable("w", [784, 10], initializer=tf.zeros_initializer())
        b = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
        global_step = tf.train.get_or_create_global_step()
        logits = tf.matmul(x, w) + b
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=global_step)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    for variable in (w, b, global_step):
        print("%s lies on %s" % (variable.op.name, variable.device))

    hooks = [
        tf.train.StopAtStepHook(last_step=FLAGS.last_step),
        tf.train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=100),
        FinalAccuracy(accuracy, {x: mnist.test.images, y: mnist.test.labels})]
    chief_hooks = [tf.train.CheckpointSaverHook("monitored_logs", save_steps=200)]
    # This worker needs the parameter servers and itself, and waits for no other worker.
    config = tf.ConfigProto(device_filters=['/job:ps', '/job:worker/task:%d' % FLAGS.task_index])
    with tf.train.MonitoredTrainingSession(master=server.target, is_chief=is_chief, hooks=hooks,
                                           chief_only_hooks=chief_hooks, config=config) as sess:
        local_step = 0
        while not sess.should_stop():
            xs, ys = mnist.train.next_batch(100)
            _, value, step = sess.run([train_op, loss, global_step], feed_dict={x: xs, y: ys})
            local_step += 1
            if local_step % 50 == 0:
                print("worker=%d,global_step=%d,local_step=%d,loss=%g" %
                      (FLAGS.task_index, step, local_step, value))


if __name__ == "__main__":
    tf.app.run()
