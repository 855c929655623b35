"""The parameter server of each variable: a strategy that chooses it, and a text that names it.

TensorFlow's own strategy is round robin.
"""

import tensorflow.compat.v1 as tf


class GreedyByBytes:
    """Places each new variable on the parameter server with the fewest bytes so far.

    A strategy is any function from a variable's operation to the index of a task of job ps. All
    workers must get the same result: they create the same variables in the same order.
    """

    def __init__(self, ps_tasks):
        self.bytes_held = [0] * ps_tasks

    def __call__(self, operation):
        shape = tf.TensorShape(operation.get_attr("shape"))
        size = shape.num_elements() * tf.as_dtype(operation.get_attr("dtype")).size
        ps_task = self.bytes_held.index(min(self.bytes_held))
        self.bytes_held[ps_task] += size
        return ps_task


def ps_strategy(name, ps_tasks):
    """Return the strategy `round_robin` or `greedy` for `tf.train.replica_device_setter`."""
    return GreedyByBytes(ps_tasks) if name == "greedy" else None  # None is round robin.


def places(variables):
    """Return a text that names the device of each variable; `variables` has them by name."""
    return ", ".join(f"{name} on {variable.device}" for name, variable in variables.items())
