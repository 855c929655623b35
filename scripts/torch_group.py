"""What the programs of PyTorch share beside the model: the device, and reports of lost ranks."""

import os
import sys

import torch

from lab.task.sdk import LOST_CONTACT
from lab.task.sdk.program import ProgramError, report_failure


def own_device():
    """This process's GPU, or the CPU. A task sees only its own GPUs; each has a process."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda")


def report_lost_ranks(recorder):
    """Report a lost connection in one line: without the other rank no step is possible.

    Call it after `init_process_group`, which replaces the program's report of errors by its own.
    """
    report_failure(recorder)
    report = sys.excepthook

    def report_in_one_line(kind, error, traceback):
        of_connection = any(each in str(error) for each in ("gloo", "NCCL", "Connection"))
        if isinstance(error, RuntimeError) and of_connection:
            error = ProgramError(f"{LOST_CONTACT} another rank", "see how it ended")
        report(type(error), error, traceback)

    sys.excepthook = report_in_one_line
