"""The threads of PyTorch's Gloo at the end of a program."""

from __future__ import annotations

import atexit
import time


def finish_at_exit() -> None:
    """At exit, let the threads of PyTorch's Gloo take the interpreter's lock for the last time.

    Such a thread frees the tensors of an exchange soon after it. If the interpreter ends before the
    thread has the lock, the process ends with SIGABRT, although the program has succeeded:
    https://github.com/pytorch/pytorch/pull/179291. PyTorch 2.13 keeps these threads after
    `destroy_process_group`, and offers nothing to wait for. So this makes the fault rare, not
    impossible.
    """
    atexit.register(time.sleep, 0.05)
