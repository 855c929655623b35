"""What travels as one: all parameters in one vector, and the functions that a task offers.

TensorFlow can serve functions to other processes (`tf.distribute.experimental.rpc`): a call carries
its arguments there and its results back, and may stand in a graph like any other operation.
"""

import time

import numpy as np
import tensorflow as tf

from lab.task.sdk.data import PIXELS

RPC = tf.distribute.experimental.rpc


class Packing:
    """Parameters one behind the other, and behind them a witness that counts the updates."""

    def __init__(self, initial_values):
        self.shapes = {name: value.shape for name, value in initial_values.items()}
        self.sizes = [*(value.size for value in initial_values.values()), 1]
        flat = [value.ravel() for value in initial_values.values()]
        self.initial_vector = np.concatenate([*flat, np.zeros(1, np.float32)])
        self.spec = tf.TensorSpec(self.initial_vector.shape, tf.float32)

    def parameters(self, vector):
        """The vector → the parameters by name."""
        *parts, _ = tf.split(vector, self.sizes)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: tf.reshape(part, shape) for (name, shape), part in named}

    def updates(self, vector):
        """The witness of a vector: how many updates are in it (exact up to 2²⁴)."""
        return tf.cast(vector[-1], tf.int64)

    def change(self, changes):
        """What to subtract from each parameter → what to subtract from the vector.

        It adds one to the witness.
        """
        flat = [tf.reshape(change, [-1]) for change in changes]
        return tf.concat([*flat, [-1.0]], axis=0)


class Images:
    """All training images in memory: a batch is a list of their numbers."""

    def __init__(self, examples):
        self.pixels = tf.constant(examples.pixels)
        self.labels = tf.constant(examples.labels)

    def batch(self, chosen):
        """The numbers of n images → the images [n, 784] in [0, 1], and their labels [n]."""
        pixels = tf.ensure_shape(tf.gather(self.pixels, chosen), [None, PIXELS])
        return tf.cast(pixels, tf.float32) / 255, tf.gather(self.labels, chosen)


def take_number(counter):
    """Take the counter's value and add one to it, in one: no two callers get the same."""
    return tf.raw_ops.ResourceCountUpTo(resource=counter.handle, limit=tf.int64.max, T=tf.int64)


def serve(address, **functions):
    """Offer functions under their names to whoever can reach the address, and return at once."""
    server = RPC.Server.create("grpc", address)
    for name, function in functions.items():
        server.register(name, function)
    server.start()
    return server


def connect(address):
    """Wait for the server, and return its functions as methods: each call's `get_value` waits."""
    while True:
        try:
            return RPC.Client.create("grpc", address)
        except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError):
            time.sleep(0.2)


def answer(call, *shapes):
    """Wait for a call's results, whose shapes a graph must know before."""
    results = zip(call.get_value(), shapes, strict=True)
    return [tf.ensure_shape(result, shape) for result, shape in results]
