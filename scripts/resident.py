"""What makes a step cheap: images that stay in the worker, and parameters that travel as one.

A step of the plain listing moves its batch into the session, and each parameter in a message of
its own. Here a worker holds all images, so that a batch is a list of their numbers; and the
parameter server holds all parameters in one vector, so that a step is one message down and one up.
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
        """Move them there, once and for all."""
        feed = {self.new_pixels: self.examples.pixels, self.new_labels: self.examples.labels}
        session.run([self.pixels.initializer, self.labels.initializer], feed)

    def batch(self, chosen):
        """The numbers of n images → the images [n, 784] in [0, 1], and their labels [n]."""
        pixels = tf.gather(self.pixels, chosen)
        return tf.cast(pixels, tf.float32) / 255, tf.gather(self.labels, chosen)


class Apart:
    """Parameters as the plain listing has them: a variable each, and a witness beside them."""

    def __init__(self, initial_values):
        self.names = list(initial_values)
        self.variables = [
            tf.get_variable(name, initializer=value, use_resource=True)
            for name, value in initial_values.items()
        ]
        self.probe = tf.get_variable("probe", initializer=np.float32(0), use_resource=True)

    def read(self):
        """The parameters by name, each in a message of its own."""
        values = (variable.read_value() for variable in self.variables)
        return dict(zip(self.names, values, strict=True))

    def send(self, changes):
        """Move a change of each parameter to where it is held, each in a message of its own."""
        moved = []
        for name, variable in zip(self.names, self.variables, strict=True):
            with tf.device(variable.device):
                moved.append(tf.identity(changes[name]))
        return moved

    def subtract(self, moved):
        """Subtract what was sent, and add one to the witness."""
        with tf.device(self.probe.device):
            updates = [self.probe.assign_add(1, read_value=False)]
        for change, variable in zip(moved, self.variables, strict=True):
            updates.append(variable.assign_sub(change, read_value=False))
        return tf.group(*updates)


class Packed:
    """The same in one vector: the parameters one behind the other, and the witness at its end."""

    def __init__(self, initial_values):
        self.shapes = {name: value.shape for name, value in initial_values.items()}
        self.sizes = [*(value.size for value in initial_values.values()), 1]
        flat = [value.ravel() for value in initial_values.values()]
        initial_vector = np.concatenate([*flat, np.zeros(1, np.float32)])
        self.vector = tf.get_variable("packed", initializer=initial_vector, use_resource=True)

    @property
    def probe(self):
        """The witness: every update adds exactly one to it."""
        return self.vector.read_value()[-1]

    def read(self):
        """The parameters by name, in one message for all."""
        *parts, _ = tf.split(self.vector.read_value(), self.sizes)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: tf.reshape(part, shape) for (name, shape), part in named}

    def send(self, changes):
        """Move a change of each parameter, and one of the witness, in one message."""
        flat = [tf.reshape(changes[name], [-1]) for name in self.shapes]
        joined = tf.concat([*flat, [-1.0]], axis=0)
        with tf.device(self.vector.device):
            return [tf.identity(joined)]

    def subtract(self, moved):
        """Subtract what was sent."""
        return self.vector.assign_sub(moved[0], read_value=False)


def take_number(counter):
    """Take the counter's value and add one to it, in one: no two steps get the same."""
    return tf.raw_ops.ResourceCountUpTo(resource=counter.handle, limit=tf.int64.max, T=tf.int64)
