"""All parameters in one vector, functions that a task offers to other tasks, one core for a task.

TensorFlow can serve functions to other processes (`tf.distribute.experimental.rpc`). A call sends
its arguments and returns its results. It can be part of a graph, like any other operation.
"""

import os
import time

import numpy as np
import tensorflow as tf

from lab.task.sdk import PIXELS

RPC = tf.distribute.experimental.rpc


class Packing:
    """All parameters in one vector, followed by a probe, which counts the updates."""

    def __init__(self, initial_values):
        self.shapes = {name: value.shape for name, value in initial_values.items()}
        self.sizes = [*(value.size for value in initial_values.values()), 1]
        flat = [value.ravel() for value in initial_values.values()]
        self.initial_vector = np.concatenate([*flat, np.zeros(1, np.float32)])
        self.spec = tf.TensorSpec(self.initial_vector.shape, tf.float32)

    def parameters(self, vector):
        """Return the parameters in a vector by name."""
        *parts, _ = tf.split(vector, self.sizes)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: tf.reshape(part, shape) for (name, shape), part in named}

    def updates(self, vector):
        """Return the probe of a vector: its number of updates (exact up to 2²⁴)."""
        return tf.cast(vector[-1], tf.int64)

    def change(self, changes):
        """Return the change of the vector, to be subtracted, from the changes of each parameter.

        It adds one to the probe.
        """
        flat = [tf.reshape(change, [-1]) for change in changes]
        return tf.concat([*flat, [-1.0]], axis=0)


class Images:
    """All training images in memory; a batch is a list of indices."""

    def __init__(self, examples):
        self.pixels = tf.constant(examples.pixels)
        self.labels = tf.constant(examples.labels)

    def batch(self, chosen):
        """Return the images [n, 784] in [0, 1], and the labels [n], of n indices."""
        pixels = tf.ensure_shape(tf.gather(self.pixels, chosen), [None, PIXELS])
        return tf.cast(pixels, tf.float32) / 255, tf.gather(self.labels, chosen)


def take_number(counter):
    """Read the counter and add one to it atomically: each caller gets a different number."""
    return tf.raw_ops.ResourceCountUpTo(resource=counter.handle, limit=tf.int64.max, T=tf.int64)


def serve(address, **functions):
    """Offer functions by name to all tasks that can reach the address; return at once."""
    server = RPC.Server.create("grpc", address)
    for name, function in functions.items():
        server.register(name, function)
    server.start()
    return server


def connect(address):
    """Wait for the server; return a client with its functions as methods.

    The `get_value` of a call waits for its results.
    """
    while True:
        try:
            return RPC.Client.create("grpc", address)
        except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError):
            time.sleep(0.2)


def answer(call, *shapes):
    """Wait for a call's results; the graph needs their shapes in advance."""
    results = zip(call.get_value(), shapes, strict=True)
    return [tf.ensure_shape(result, shape) for result, shape in results]


def keep_to_one_core(number):
    """Limit this process to core `number`, modulo the cores; call it before TensorFlow computes.

    A step uses a dozen threads, one after another. If each may run on any core, each change of the
    thread wakes another core up, which takes longer than most of the work.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})  # Threads inherit it.
    for threads in ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ.setdefault(threads, "1")
    os.environ.setdefault("TF_GRPC_WORKER_CACHE_THREADS", "2")  # Threads that wait for messages.
