"""The common first lines of the programs: the recorder, and the server's use of GPUs."""

import tensorflow.compat.v1 as tf

from lab.task.sdk.interrupt import leave_on_interrupt
from lab.task.sdk.program import number_requests, report_failure
from lab.task.sdk.recorder import Recorder


def begin(flags, **fields):
    """Record the start of this task; return the recorder for all further records."""
    leave_on_interrupt()
    tf.logging.set_verbosity(tf.logging.ERROR)
    recorder = Recorder(flags.job_name, flags.task_index)
    hosts = getattr(flags, f"{flags.job_name}_hosts")
    report_failure(recorder, hosts[flags.task_index] if hosts else "")
    recorder.write("start", status="starting", **fields)
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
