"""Cheaper steps: the images stay in the worker, and all parameters are sent in one message.

A step of mnist_async.py moves its batch into the session, and each parameter in its own message.
Here a worker holds all images, so a batch is only a list of indices. The parameter server holds all
parameters in one vector, so a step is one message in each direction.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from lab.task.sdk.data import PIXELS


class Images:
    """The training images, in the memory of one worker."""

    def __init__(self, examples, device):
        self.examples = examples
        with tf.device(device):
            self.new_pixels = tf.placeholder(tf.uint8, [len(examples), PIXELS])
            self.new_labels = tf.placeholder(tf.int32, [len(examples)])
            local = {"collections": [tf.GraphKeys.LOCAL_VARIABLES], "trainable": False}
            self.pixels = tf.get_variable("pixels", initializer=self.new_pixels, **local)
            self.labels = tf.get_variable("labels", initializer=self.new_labels, **local)

    def load(self, session):
        """Copy the images into the worker's variables; called once."""
        feed = {self.new_pixels: self.examples.pixels, self.new_labels: self.examples.labels}
        session.run([self.pixels.initializer, self.labels.initializer], feed)

    def batch(self, chosen):
        """Return the images [n, 784] in [0, 1], and the labels [n], of n indices."""
        pixels = tf.gather(self.pixels, chosen)
        return tf.cast(pixels, tf.float32) / 255, tf.gather(self.labels, chosen)


class Apart:
    """Parameters as in mnist_async.py: a variable each, and the probe."""

    def __init__(self, initial_values):
        self.names = list(initial_values)
        self.variables = [
            tf.get_variable(name, initializer=value, use_resource=True)
            for name, value in initial_values.items()
        ]
        self.probe = tf.get_variable("probe", initializer=np.float32(0), use_resource=True)

    def read(self):
        """Return the parameters by name, each in its own message."""
        values = (variable.read_value() for variable in self.variables)
        return dict(zip(self.names, values, strict=True))

    def send(self, changes):
        """Send the change of each parameter to its server, each in its own message."""
        moved = []
        for name, variable in zip(self.names, self.variables, strict=True):
            with tf.device(variable.device):
                moved.append(tf.identity(changes[name]))
        return moved

    def subtract(self, moved):
        """Subtract the sent changes, and add one to the probe."""
        with tf.device(self.probe.device):
            updates = [self.probe.assign_add(1, read_value=False)]
        for change, variable in zip(moved, self.variables, strict=True):
            updates.append(variable.assign_sub(change, read_value=False))
        return tf.group(*updates)


class Packed:
    """The same in one vector: all parameters, and the probe at the end."""

    def __init__(self, initial_values):
        self.shapes = {name: value.shape for name, value in initial_values.items()}
        self.sizes = [*(value.size for value in initial_values.values()), 1]
        flat = [value.ravel() for value in initial_values.values()]
        initial_vector = np.concatenate([*flat, np.zeros(1, np.float32)])
        self.vector = tf.get_variable("packed", initializer=initial_vector, use_resource=True)

    @property
    def probe(self):
        """The probe: every update adds exactly one to it."""
        return self.vector.read_value()[-1]

    def read(self):
        """Return the parameters by name, all in one message."""
        *parts, _ = tf.split(self.vector.read_value(), self.sizes)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: tf.reshape(part, shape) for (name, shape), part in named}

    def send(self, changes):
        """Send the changes of all parameters, and of the probe, in one message."""
        flat = [tf.reshape(changes[name], [-1]) for name in self.shapes]
        joined = tf.concat([*flat, [-1.0]], axis=0)
        with tf.device(self.vector.device):
            return [tf.identity(joined)]

    def subtract(self, moved):
        """Subtract the sent change."""
        return self.vector.assign_sub(moved[0], read_value=False)


def take_number(counter):
    """Read the counter and add one to it atomically: each step gets a different number."""
    return tf.raw_ops.ResourceCountUpTo(resource=counter.handle, limit=tf.int64.max, T=tf.int64)
