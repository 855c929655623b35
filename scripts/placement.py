"""Where things are: the parameter server of each variable, and which servers use GPUs.

TensorFlow's own strategy for variables is round robin.
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


def server_config(flags):
    """Return the GPU settings of this task's server; sessions on it cannot change them.

    A parameter server uses no GPU. Any other task uses as much GPU memory as it needs, or its
    share.
    """
    config = tf.ConfigProto()
    share = getattr(flags, "gpu_memory_fraction", None)
    if flags.job_name == "ps":
        config.device_count["GPU"] = 0
    elif share:
        config.gpu_options.per_process_gpu_memory_fraction = share
    else:
        config.gpu_options.allow_growth = True
    return config
