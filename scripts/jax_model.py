"""The two models of `mnist_model.py` in JAX: pure functions of the parameters and a batch."""

import jax
import jax.numpy as jnp
import mnist_parameters


def cross_entropy(logits, labels):
    """The mean of the negative logarithms of the labels' probabilities."""
    logarithms = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logarithms, labels[:, None], axis=1))


class Softmax(mnist_parameters.Softmax):
    """Softmax regression, 784 → 10."""

    def logits(self, parameters, images):
        """Images [n, 784] → logits [n, 10]."""
        return images @ parameters["weights"] + parameters["biases"]

    def loss(self, parameters, images, labels):
        """The mean cross-entropy of a batch."""
        return cross_entropy(self.logits(parameters, images), labels)


class Mlp(mnist_parameters.Mlp):
    """One hidden layer, 784 → 500 → 10."""

    def logits(self, parameters, images):
        """Images [n, 784] → logits [n, 10]."""
        hidden = jax.nn.relu(images @ parameters["weights1"] + parameters["biases1"])
        return hidden @ parameters["weights2"] + parameters["biases2"]

    def loss(self, parameters, images, labels):
        """The mean cross-entropy of a batch, and a penalty on large weights."""
        squares = [jnp.sum(parameters[name] ** 2) for name in ("weights1", "weights2")]
        return cross_entropy(self.logits(parameters, images), labels) + self.l2 * sum(squares) / 2


MODELS = {"softmax": Softmax(), "mlp": Mlp()}
