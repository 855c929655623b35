"""In-graph replication: one client owns the whole graph, with a replica of the model per worker.

The parameter servers hold the variables. They and the workers only wait for graphs. The client
builds one graph with a replica of the model on every worker, each for its own part of the batch,
and averages their gradients. So all replicas step together, and a step is equal to the step of one
process with the joined batch. To show this, the client also trains such a model in its own process
for the first steps, and reports the largest difference between the two.

The client sends all images to the workers. The training ends with the client.
"""

import tensorflow.compat.v1 as tf
from begin import begin, server_config
from compare import apart
from mnist_model import MODELS, share_correct

from lab.task.sdk.data import load_mnist
from lab.task.sdk.flags import parse, positive, training_flags
from lab.task.sdk.program import wait_for_start

parser = training_flags(__doc__, jobs=["ps", "worker", "client"])
parser.add_argument("--compare_steps", type=positive, default=100, help="steps (default: 100)")
flags = parse(parser)
replicas = len(flags.worker_hosts)

recorder = begin(flags, batch_size=flags.batch_size)
tf.disable_eager_execution()

# ---- 1. The servers. The client is not one of them; it sends each a part of the graph.
if flags.job_name != "client":
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
    recorder.write("event", status="ready", message=f"serves at {server.target}")
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


def new_variables():
    return {
        name: tf.get_variable(name, initializer=value) for name, value in initial_values.items()
    }


def descend(variables, gradients):
    optimizer = tf.train.GradientDescentOptimizer(learning_rate)
    return optimizer.apply_gradients([(gradients[name], variables[name]) for name in variables])


# ---- 3. The graph: variables on the parameter servers, in turn; a replica on each worker.
with tf.Graph().as_default() as graph:
    with tf.device(tf.train.replica_device_setter(ps_tasks=len(flags.ps_hosts))):
        variables = new_variables()
    images = tf.placeholder(tf.float32, [None, 784], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")
    parts = zip(tf.split(images, replicas), tf.split(labels, replicas), strict=True)

    losses, gradients_of_replicas = [], []
    for replica, (its_images, its_labels) in enumerate(parts):
        with tf.device(f"/job:worker/task:{replica}"):
            parameters = {name: variable.read_value() for name, variable in variables.items()}
            loss = model.loss(model.logits(its_images, parameters), its_labels, parameters)
            gradients = tf.gradients(loss, list(parameters.values()))
            gradients_of_replicas.append(dict(zip(parameters, gradients, strict=True)))
            losses.append(loss)
    with tf.device("/job:ps/task:0"):
        loss = tf.add_n(losses) / replicas
        mean_gradients = {
            name: tf.add_n([gradients[name] for gradients in gradients_of_replicas]) / replicas
            for name in variables
        }
        update = descend(variables, mean_gradients)
        accuracy = share_correct(model.logits(images, variables), labels)
    initialize = tf.global_variables_initializer()

# ---- 4. The same without a cluster: one process, one replica, the joined batch.
with tf.Graph().as_default() as alone_graph:
    alone = new_variables()
    alone_images = tf.placeholder(tf.float32, [None, 784])
    alone_labels = tf.placeholder(tf.int32, [None])
    alone_loss = model.loss(model.logits(alone_images, alone), alone_labels, alone)
    alone_gradients = tf.gradients(alone_loss, list(alone.values()))
    alone_update = descend(alone, dict(zip(alone, alone_gradients, strict=True)))
    alone_initialize = tf.global_variables_initializer()

# ---- 5. The training: one `run` makes one step on every replica.
master = f"grpc://{flags.worker_hosts[0]}"
recorder.write("event", status="ready", message=f"its master is {master}")
wait_for_start()
furthest_apart = 0.0
with (
    tf.Session(master, graph=graph) as session,
    tf.Session(graph=alone_graph) as alone_session,
):
    session.run(initialize)
    alone_session.run(alone_initialize)
    for step in range(1, all_steps + 1):
        its_images, its_labels = next(batches)
        _, loss_now = session.run([update, loss], {images: its_images, labels: its_labels})
        if step <= flags.compare_steps:
            alone_session.run(alone_update, {alone_images: its_images, alone_labels: its_labels})
            values, alone_values = session.run(variables), alone_session.run(alone)
            furthest_apart = max(furthest_apart, apart(values.values(), alone_values.values()))

        if step % flags.record_every == 0 or step % steps_per_epoch == 0 or step in {1, all_steps}:
            recorder.write(
                "epoch" if step % steps_per_epoch == 0 else "step",
                epoch=(step - 1) // steps_per_epoch,
                local_step=step,
                global_step=step,
                loss=loss_now,
                examples=step * joined_size,
            )

    # ---- 6. The test.
    test = {images: mnist.test.images, labels: mnist.test.labels}
    accuracy_now = session.run(accuracy, test)

recorder.write("result", name="apart from one process", value=furthest_apart, low=0, high=1e-4)
recorder.write("final", global_step=all_steps, accuracy=accuracy_now, status="succeeded")
