"""What the programs of PyTorch share beside the model: device, lost ranks, and waiting times."""

import contextlib
import os
import time

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from lab.task.sdk import LOST_CONTACT, ProgramError


def own_device():
    """This process's GPU, or the CPU. A task sees only its own GPUs; each has a process."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda")


@contextlib.contextmanager
def lost_ranks_reported():
    """End the program with one line if another rank is lost: alone, this one can make no step."""
    try:
        yield
    except RuntimeError as error:
        if not any(each in str(error) for each in ("gloo", "NCCL", "Connection")):
            raise
        raise ProgramError(f"{LOST_CONTACT} another rank", "see how it ended") from None


class Waiting:
    """Adds up for how long this rank waits for the others. On CPUs only: GPUs work on their own.

    Use `all_reduce` as DDP's communication hook, or `with waiting:` around an exchange.
    """

    def __init__(self):
        self._seconds, self._began = 0.0, 0.0

    def __enter__(self):
        self._began = time.monotonic()

    def __exit__(self, *error):
        self._seconds += time.monotonic() - self._began

    def all_reduce(self, group, bucket):
        """Average a bucket of gradients, as DDP does without a hook.

        When DDP sends the last bucket, this rank has computed all of its gradients. From then on
        it waits for the other ranks, and for the network.
        """
        future = allreduce_hook(group, bucket)
        if not bucket.is_last():
            return future
        self._began = time.monotonic()
        return future.then(self._received)

    def _received(self, future):
        self._seconds += time.monotonic() - self._began
        return future.value()

    def take(self):
        """Return the seconds since the last call; None on a GPU, where they are not known."""
        seconds, self._seconds = self._seconds, 0.0
        return None if torch.cuda.is_available() else seconds
