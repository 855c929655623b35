"""The two models of the training programs: they compute logits and loss from the parameters.

Nothing here is distributed: the programs place the parameters and the computation.
"""

import mnist_parameters
import tensorflow.compat.v1 as tf


class Softmax(mnist_parameters.Softmax):
    """Softmax regression, 784 → 10."""

    def logits(self, images, parameters):
        """Images [n, 784] → logits [n, 10]."""
        return tf.matmul(images, parameters["weights"]) + parameters["biases"]

    def loss(self, logits, labels, parameters):
        """The mean cross-entropy of a batch."""
        del parameters  # This model has no penalty on large weights.
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )


class Mlp(mnist_parameters.Mlp):
    """One hidden layer, 784 → 500 → 10."""

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
