"""What the programs of all frameworks share of the two models: parameters, rates, and the accuracy.

Nothing here needs a framework: the initial parameters are NumPy arrays.
"""

import hashlib

import numpy as np

from lab.task.sdk import CLASSES, PIXELS


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


def share_correct(logits, labels):
    """The accuracy: the share of images whose largest logit is that of the label."""
    return np.mean(np.argmax(logits, 1) == labels)


def digest(values):
    """32 bytes that differ if one bit of the parameters differs; values are NumPy arrays."""
    return hashlib.sha256(b"".join(value.tobytes() for value in values.values())).digest()
