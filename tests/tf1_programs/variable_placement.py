"""Where three strategies put the variables of one network on two parameter servers.

Nothing is run: a device is chosen when an operation is made.
"""

import itertools

import tensorflow as tf
from tensorflow.contrib import training

SERVERS = 2
WIDTHS = (64, 32, 128, 16, 256, 8)
"""Of the layers: a matrix and a vector lie between each two of them."""

STRATEGIES = {
    "one after the other": None,
    "by name": training.RandomStrategy(SERVERS, seed=3),
    "by bytes": training.GreedyLoadBalancingStrategy(SERVERS, training.byte_size_load_fn),
}


def stack():
    """A matrix and a vector for each layer, in this order."""
    for depth, (wide, narrow) in enumerate(itertools.pairwise(WIDTHS)):
        with tf.variable_scope(f"layer{depth}"):
            yield tf.get_variable("matrix", (wide, narrow))
            yield tf.get_variable("vector", narrow)


for title, strategy in STRATEGIES.items():
    with tf.Graph().as_default():
        setter = tf.train.replica_device_setter(SERVERS, ps_strategy=strategy)
        with tf.device(setter):
            for variable in stack():
                print(f"{title}: {variable.op.name} {variable.device}")
