"""Asynchronous, as a book of 2018 prints it: the cluster in the source, a Supervisor, a for loop."""
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

flags = tf.app.flags
flags.DEFINE_string('job_name', '', 'ps or worker')
flags.DEFINE_integer('task_index', 0, 'which one')
FLAGS = flags.FLAGS

clusterSpec = tf.train.ClusterSpec({
    'ps': ['localhost:9001'],
    'worker': ['localhost:9002', 'localhost:9003', 'localhost:9004']})
config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.allow_growth = True
server = tf.train.Server(clusterSpec, job_name=FLAGS.job_name,
                         task_index=FLAGS.task_index, config=config)
if FLAGS.job_name == 'ps':
    server.join()
else:
    mnist = input_data.read_data_sets('/home/somebody/datasets/mnist', one_hot=True)
    with tf.device(tf.train.replica_device_setter(
            worker_device='/job:worker/task:{}'.format(FLAGS.task_index), cluster=clusterSpec)):
        global_step = tf.Variable(0, name='global_step', trainable=False)
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.float32, [None, 10])
        w = tf.Variable(tf.random_normal([784, 10]))
        b = tf.Variable(tf.random_normal([10]))
        logits = tf.matmul(x, w) + b
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits=logits, labels=y))
        train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=global_step)
        right = tf.equal(tf.argmax(logits, 1), tf.argmax(y, 1))
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
        init_op = tf.global_variables_initializer()
    sv = tf.train.Supervisor(is_chief=(FLAGS.task_index == 0), init_op=init_op,
                             global_step=global_step, logdir='logs_%d' % FLAGS.task_index)
    ts = sv.prepare_or_wait_for_session(server.target, config=config)
    local_step = 0
    for epoch in range(2):
        for batch in range(mnist.train.num_examples // 100):
            xs, ys = mnist.train.next_batch(100)
            _, loss_val, gstep = ts.run([train_op, loss, global_step], feed_dict={x: xs, y: ys})
            local_step += 1
            if local_step % 100 == 0:
                print("worker={},epoch={},global_step={},local_step={},loss={}".format(
                    FLAGS.task_index, epoch, gstep, local_step, loss_val))
    print("worker={}, final accuracy = {}".format(
        FLAGS.task_index, ts.run(accuracy, feed_dict={x: mnist.test.images, y: mnist.test.labels})))
    sv.stop()
