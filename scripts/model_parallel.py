"""One model on two tasks: they exchange activations and their gradients.

Shows: no task holds the whole model, so it may be as large as both memories together.
Try to break: the speed. Limit the network of one worker, or use larger batches.

The first worker holds and computes the hidden layer, the second one the output layer. In each step
the hidden layer's activations (500 numbers an image) and their gradients are sent over the network;
the parameters are not. The tasks take turns: while one computes, the other waits. The client owns
the graph. For the first steps it also trains the same model in its own process, and reports the
largest difference between the two.
"""

import tensorflow.compat.v1 as tf
from compare import apart
from mnist_model import MODELS, share_correct
from placement import server_config
from traces import where

from lab.task.sdk import ProgramError, begin, load_mnist

flags, recorder = begin("model-parallel", __doc__)
tf.disable_eager_execution()

# ---- 1. The servers.
if len(flags.worker_hosts) != 2:
    raise ProgramError("the model needs two workers", "give job worker two tasks")
if flags.job_name == "worker":
    cluster = tf.train.ClusterSpec({"worker": flags.worker_hosts})
    server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
    recorder.ready(f"serves at {server.target}")
    server.join()

# ---- 2. The data.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch
model = MODELS["mlp"]
initial_values = model.initial_parameters(flags.seed)
learning_rate = flags.learning_rate or 0.1


def training(hidden_device, output_device):
    """Build the model with its parts on two devices, and operations to train and test it."""
    images = tf.placeholder(tf.float32, [None, 784])
    labels = tf.placeholder(tf.int32, [None])
    with tf.device(hidden_device):
        weights1 = tf.get_variable("weights1", initializer=initial_values["weights1"])
        biases1 = tf.get_variable("biases1", initializer=initial_values["biases1"])
        hidden = tf.nn.relu(tf.matmul(images, weights1) + biases1)
        penalty1 = model.l2 * tf.nn.l2_loss(weights1)
    with tf.device(output_device):
        weights2 = tf.get_variable("weights2", initializer=initial_values["weights2"])
        biases2 = tf.get_variable("biases2", initializer=initial_values["biases2"])
        logits = tf.matmul(hidden, weights2) + biases2
        each_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each_loss) + penalty1 + model.l2 * tf.nn.l2_loss(weights2)
        accuracy = share_correct(logits, labels)
    variables = [weights1, biases1, weights2, biases2]
    # Each gradient is computed on the device of its operation.
    gradients = tf.gradients(loss, variables, colocate_gradients_with_ops=True)
    update = tf.train.GradientDescentOptimizer(learning_rate).apply_gradients(
        zip(gradients, variables, strict=True)
    )
    return images, labels, variables, loss, accuracy, update, tf.global_variables_initializer()


# ---- 3. The model on two tasks, and the same model in this process.
with tf.Graph().as_default() as graph:
    first, second = "/job:worker/task:0", "/job:worker/task:1"
    images, labels, variables, loss, accuracy, update, initialize = training(first, second)
with tf.Graph().as_default() as alone_graph:
    alone_images, alone_labels, alone, _, _, alone_update, alone_initialize = training(None, None)

# ---- 4. The training.
master = f"grpc://{flags.worker_hosts[0]}"
places = ", ".join(f"{variable.op.name} on {variable.device}" for variable in variables)
recorder.ready(places)
furthest_apart = 0.0
recorder.begin_training(flags, local_steps_per_epoch=steps_per_epoch, last_step=all_steps)
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
            furthest_apart = max(furthest_apart, apart(values, alone_values))
        recorder.step(step, step, loss=loss_now)

    # ---- 5. The test, and the devices that computed the products of the two layers.
    test = {images: mnist.test.images, labels: mnist.test.labels}
    accuracy_now = session.run(accuracy, test)
    products = [graph.get_operation_by_name(name) for name in ("MatMul", "MatMul_1")]
    ran = where(session, products, {images: mnist.test.images[:1]})

places = ", ".join(f"{name} on {device}" for name, device in ran.items())
recorder.write("event", message=f"ran: {places}")
recorder.write("result", name="apart from one process", value=furthest_apart, low=0, high=1e-4)
recorder.finish(accuracy=accuracy_now)
