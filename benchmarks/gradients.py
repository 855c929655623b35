"""Print the CPU seconds that the gradients of an image take on this host.

It is a separate program, because it imports TensorFlow. It needs scripts/ on its path. The batch
and the parameters are variables, so that a step draws, feeds and sends nothing: it only computes.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import tensorflow.compat.v1 as tf
from mnist_model import MODELS

BATCH = 1_000  # with 100 images the call itself takes most of the time
STEPS = 300
REPEATS = 5


def once(session: tf.Session, gradients: list[tf.Tensor]) -> float:
    """Return the CPU seconds of a step, of all threads.

    The step fetches the gradients, because TensorFlow computes only what is fetched.
    """
    began = time.process_time()
    for _ in range(STEPS):
        session.run(gradients)
    return (time.process_time() - began) / STEPS


def of_a_batch(size: int) -> list[tf.Tensor]:
    """Return the gradients of softmax regression for a batch of this size."""
    model = MODELS["softmax"]
    random = np.random.default_rng(0)
    parameters = {
        name: tf.Variable(value).read_value() for name, value in model.initial_parameters(0).items()
    }
    images = tf.Variable(random.random((size, 784), np.float32), trainable=False)
    labels = tf.Variable(random.integers(0, 10, size, np.int32), trainable=False)
    loss = model.loss(model.logits(images.read_value(), parameters), labels, parameters)
    return tf.gradients(loss, list(parameters.values()))


if __name__ == "__main__":
    tf.disable_eager_execution()
    small, large = of_a_batch(1), of_a_batch(BATCH)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        once(session, small)
        once(session, large)
        found = [once(session, large) - once(session, small) for _ in range(REPEATS)]
    print(statistics.median(found) / (BATCH - 1))
