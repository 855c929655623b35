"""A task that keeps to one core.

A step passes through a dozen threads, one after the other: one reads a message, the next one
computes, a third one sends. Where each of them may run on any core, every passing on wakes another
core up, which takes longer than most of what there is to do.
"""

import os


def keep_to_one_core(number):
    """Give this process one core, the tasks of the cluster in turn; before TensorFlow computes."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})  # Threads inherit it.
    for threads in ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ.setdefault(threads, "1")
    os.environ.setdefault("TF_GRPC_WORKER_CACHE_THREADS", "2")  # Those that wait for messages.
