"""In-graph replication: one client owns the whole graph, with a replica of the model per worker.

Shows: a step of all replicas is equal to the step of one process with the joined batch.
Try to break: the equality, by another batch size, or more workers. Kill a worker, or the client.

The parameter servers hold the variables. They and the workers only wait for graphs. The client
builds one graph with a replica of the model on every worker, each for its own part of the batch,
and averages their gradients. For the first steps it also trains such a model in its own process,
and reports the largest difference between the two. The client sends all images to the workers.
"""

import tensorflow.compat.v1 as tf
from compare import apart
from mnist_model import MODELS, share_correct
from placement import server_config

from lab.task.sdk import begin, load_mnist

flags, recorder = begin("in-graph", __doc__)
replicas = len(flags.worker_hosts)
tf.disable_eager_execution()

# ---- 1. The servers. The client is not one of them; it sends each a part of the graph.
if flags.job_name != "client":
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
    recorder.ready(f"serves at {server.target}")
    server.join()

# ---- 2. The data: one joined batch for each step; every replica gets an equal part of it.
mnist = load_mnist(flags.data_dir)
joined_size = replicas * flags.batch_size
batches = mnist.train.batches(joined_size, [flags.seed, 1])
steps_per_epoch = mnist.train.batches_per_epoch(joined_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch
model = MODELS[flags.model]
initial_values = model.initial_parameters(flags.seed)
learning_rate = flags.learning_rate or model.synchronous_rate


def training(servers, workers):
    """Build the graph: variables on the servers in turn, and a replica of the model on each worker.

    One of the servers averages the gradients. Without servers, this process has the variables.
    """
    with tf.device(tf.train.replica_device_setter(ps_tasks=servers)):
        variables = {
            name: tf.get_variable(name, initializer=value) for name, value in initial_values.items()
        }
    images = tf.placeholder(tf.float32, [None, 784], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")
    parts = zip(tf.split(images, len(workers)), tf.split(labels, len(workers)), strict=True)
    losses, gradients = [], []
    for worker, (its_images, its_labels) in zip(workers, parts, strict=True):
        with tf.device(worker):
            parameters = {name: variable.read_value() for name, variable in variables.items()}
            loss = model.loss(model.logits(its_images, parameters), its_labels, parameters)
            losses.append(loss)
            gradients.append(tf.gradients(loss, list(parameters.values())))
    with tf.device("/job:ps/task:0" if servers else None):
        loss = tf.add_n(losses) / len(workers)
        means = [tf.add_n(several) / len(workers) for several in zip(*gradients, strict=True)]
        optimizer = tf.train.GradientDescentOptimizer(learning_rate)
        update = optimizer.apply_gradients(zip(means, variables.values(), strict=True))
        accuracy = share_correct(model.logits(images, variables), labels)
    return images, labels, variables, loss, accuracy, update, tf.global_variables_initializer()


# ---- 3. The graph of the cluster, and the same for one process with the joined batch.
with tf.Graph().as_default() as graph:
    devices = [f"/job:worker/task:{index}" for index in range(replicas)]
    images, labels, variables, loss, accuracy, update, initialize = training(
        len(flags.ps_hosts), devices
    )
with tf.Graph().as_default() as alone_graph:
    alone_images, alone_labels, alone, _, _, alone_update, alone_initialize = training(0, [None])

# ---- 4. The training: one `run` makes one step on every replica.
master = f"grpc://{flags.worker_hosts[0]}"
recorder.ready(f"its master is {master}")
furthest_apart = 0.0
recorder.begin_training(
    flags, local_steps_per_epoch=steps_per_epoch, examples_per_step=joined_size, last_step=all_steps
)
with tf.Session(master, graph=graph) as session, tf.Session(graph=alone_graph) as alone_session:
    session.run(initialize)
    alone_session.run(alone_initialize)
    for step in range(1, all_steps + 1):
        its_images, its_labels = next(batches)
        _, loss_now = session.run([update, loss], {images: its_images, labels: its_labels})
        if step <= flags.compare_steps:
            alone_session.run(alone_update, {alone_images: its_images, alone_labels: its_labels})
            values, alone_values = session.run(variables), alone_session.run(alone)
            furthest_apart = max(furthest_apart, apart(values.values(), alone_values.values()))
        recorder.step(step, step, loss=loss_now)

    # ---- 5. The test.
    test = {images: mnist.test.images, labels: mnist.test.labels}
    accuracy_now = session.run(accuracy, test)

recorder.write("result", name="apart from one process", value=furthest_apart, low=0, high=1e-4)
recorder.finish(accuracy=accuracy_now)
