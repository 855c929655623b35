"""The common first lines of the programs of TensorFlow: the recorder, and the use of GPUs."""

import tensorflow.compat.v1 as tf
from begin_task import begin_task

from lab.task.sdk.program import number_requests


def begin(flags, **fields):
    """Record the start of this task; return the recorder for all further records."""
    tf.logging.set_verbosity(tf.logging.ERROR)
    recorder = begin_task(flags, **fields)
    number_requests(flags, recorder)
    return recorder


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
