"""`tensorflow.examples.tutorials.mnist.mnist`: the tutorial's network with two hidden layers."""

from __future__ import annotations

import math
from typing import Any, Final

import tensorflow.compat.v1 as tf

from lab.protocol.mnist import CLASSES, SIDE

NUM_CLASSES: Final = CLASSES
IMAGE_SIZE: Final = SIDE
IMAGE_PIXELS: Final = SIDE * SIDE


def _layer(name: str, inputs: Any, outputs: int) -> Any:
    """Return `inputs · weights + biases`; the weights begin at random, the biases at 0."""
    size = int(inputs.shape[-1])
    with tf.name_scope(name):
        weights = tf.Variable(
            tf.truncated_normal([size, outputs], stddev=1.0 / math.sqrt(size)), name="weights"
        )
        biases = tf.Variable(tf.zeros([outputs]), name="biases")
        return tf.matmul(inputs, weights) + biases


def inference(images: Any, hidden1_units: int, hidden2_units: int) -> Any:
    """Return the logits [n, 10] of images [n, 784], after two hidden layers with ReLU."""
    hidden1 = tf.nn.relu(_layer("hidden1", images, hidden1_units))
    hidden2 = tf.nn.relu(_layer("hidden2", hidden1, hidden2_units))
    return _layer("softmax_linear", hidden2, NUM_CLASSES)


def loss(logits: Any, labels: Any) -> Any:
    """Return the mean cross-entropy of logits [n, 10] and digits [n]."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.to_int64(labels), logits=logits)


def training(loss: Any, learning_rate: float) -> Any:
    """Return the step of gradient descent; it writes a summary, and counts `global_step`."""
    tf.summary.scalar("loss", loss)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


def evaluation(logits: Any, labels: Any) -> Any:
    """Return the number of images whose largest logit is that of their digit."""
    return tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 1), tf.int32))
