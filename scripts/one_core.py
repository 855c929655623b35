"""A task that keeps to one core.

A step passes through a dozen threads, one after the other: one waits for messages, the next one
reads them, the next one computes. Where each of them may run on any core, every passing on wakes
another core up, which takes longer than most of what there is to do.
"""

import os


def keep_to_one_core(number, config):
    """Give this process one core, the tasks in turn; before its server is made.

    `number` counts the tasks of the cluster, `config` is the server's.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})  # Threads inherit it.
    config.inter_op_parallelism_threads = config.intra_op_parallelism_threads = 1
    os.environ.setdefault("TF_GRPC_WORKER_CACHE_THREADS", "2")  # Those that wait for messages.
