"""How most of the programs begin: they say who they are, and their servers share the GPUs.

`mnist_async.py` spells all of it out.
"""

import tensorflow.compat.v1 as tf

from lab.task.sdk.interrupt import leave_on_interrupt
from lab.task.sdk.program import report_failure
from lab.task.sdk.recorder import Recorder


def begin(flags, **fields):
    """Tell that this task starts; return the recorder, which tells everything else."""
    leave_on_interrupt()
    recorder = Recorder(flags.job_name, flags.task_index)
    report_failure(recorder)
    recorder.write("start", status="starting", **fields)
    return recorder


def server_config(flags):
    """Return how this task's server uses GPUs, which no session on it can change any more.

    A parameter server uses none; any other task as much of their memory as it needs, or its share.
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
