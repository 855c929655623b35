"""The two models of the training programs: they compute logits and loss from the parameters.

Nothing here is distributed: the programs place the parameters and the computation.
"""

import numpy as np
import tensorflow.compat.v1 as tf

PIXELS = 28 * 28
CLASSES = 10


class Softmax:
    """Softmax regression, 784 → 10, as in the book: one matrix and one bias."""

    asynchronous_rate = 0.01
    synchronous_rate = 0.01
    decay = 1.0
    moving_average = None

    def initial_parameters(self, seed):
        """Draw from a standard normal by NumPy, so that other programs draw the same values."""
        random = np.random.default_rng(seed)
        return {
            "weights": random.standard_normal((PIXELS, CLASSES), np.float32),
            "biases": random.standard_normal(CLASSES, np.float32),
        }

    def logits(self, images, parameters):
        """Images [n, 784] → logits [n, 10]."""
        return tf.matmul(images, parameters["weights"]) + parameters["biases"]

    def loss(self, logits, labels, parameters):
        """The mean cross-entropy of a batch."""
        del parameters  # This model has no penalty on large weights.
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )


class Mlp:
    """One hidden layer, 784 → 500 → 10, as in the blog: ReLU, L2, decay, moving average."""

    hidden = 500
    asynchronous_rate = 0.01
    synchronous_rate = 0.8
    decay = 0.99  # of the learning rate, every 600 global steps
    moving_average = 0.99
    l2 = 1e-4

    def initial_parameters(self, seed):
        """Draw weights from a normal with deviation 0.1, truncated at 0.2; biases are 0."""
        random = np.random.default_rng(seed)

        def truncated_normal(shape):
            values = random.standard_normal(shape, np.float32)
            while (outside := np.abs(values) > 2).any():
                values[outside] = random.standard_normal(outside.sum(), np.float32)
            return np.float32(0.1) * values

        return {
            "weights1": truncated_normal((PIXELS, self.hidden)),
            "biases1": np.zeros(self.hidden, np.float32),
            "weights2": truncated_normal((self.hidden, CLASSES)),
            "biases2": np.zeros(CLASSES, np.float32),
        }

    def logits(self, images, parameters):
        """Images [n, 784] → logits [n, 10]."""
        hidden = tf.nn.relu(tf.matmul(images, parameters["weights1"]) + parameters["biases1"])
        return tf.matmul(hidden, parameters["weights2"]) + parameters["biases2"]

    def loss(self, logits, labels, parameters):
        """The mean cross-entropy of a batch, and a penalty on large weights."""
        cross_entropy = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        penalty = tf.nn.l2_loss(parameters["weights1"]) + tf.nn.l2_loss(parameters["weights2"])
        return cross_entropy + self.l2 * penalty


MODELS = {"softmax": Softmax(), "mlp": Mlp()}


def share_correct(logits, labels):
    """The accuracy: the share of images whose largest logit is that of the label."""
    hits = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels)
    return tf.reduce_mean(tf.cast(hits, tf.float32))


class MovingAverages:
    """The chief's moving averages of the parameters, for a model that uses them; else none.

    In an asynchronous training they change only after the chief's own updates.

    Attributes:
        follower: TensorFlow's object that creates and updates the averages, or None.
    """

    def __init__(self, model, variables, global_step, is_chief):
        self.model, self.variables, self.global_step = model, variables, global_step
        self.follower = None
        if is_chief and model.moving_average:
            self.follower = tf.train.ExponentialMovingAverage(model.moving_average, global_step)

    def updated_after(self, update):
        """Return an operation that updates the averages after an update of the parameters."""
        if not self.follower:
            return update
        with tf.control_dependencies([update]):
            return self.follower.apply(list(self.variables.values()))

    def all_variables(self):
        """Return the variables of the parameters and of their averages."""
        return [*self.variables.values(), *self.values().values()]

    def values(self):
        """Return the average of each parameter by name; empty without averages."""
        if not self.follower:
            return {}
        return {name: self.follower.average(variable) for name, variable in self.variables.items()}

    def test(self, session, recorder, images, labels, examples):
        """Record the accuracy of the averages; return their values by name."""
        values, step = session.run([self.values(), self.global_step])
        if values:
            accuracy = share_correct(self.model.logits(images, values), labels)
            recorder.write(
                "eval",
                global_step=step,
                accuracy=session.run(accuracy, {images: examples.images, labels: examples.labels}),
                message="moving averages of the parameters",
            )
        return values
