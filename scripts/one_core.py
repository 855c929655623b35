"""Run a task on one core.

A step uses a dozen threads, one after another: one reads a message, the next one computes, a third
one sends. If each thread may run on any core, each change of the thread wakes another core up. This
takes longer than most of the work.
"""

import os


def keep_to_one_core(number):
    """Limit this process to core `number`, modulo the cores; call it before TensorFlow computes."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})  # Threads inherit it.
    for threads in ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ.setdefault(threads, "1")
    os.environ.setdefault("TF_GRPC_WORKER_CACHE_THREADS", "2")  # Threads that wait for messages.
