"""A training program's interface to its run: its start, its directories, and how it fails."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from lab.base.variables import LAB_RUN_DIR
from lab.protocol.mnist import DataError
from lab.protocol.records.error_line import first_message_line
from lab.protocol.saved_model import Array, SavedModel, save_model
from lab.protocol.volume.layout import LOST_CONTACT
from lab.protocol.volume.status import read_status
from lab.task import lazy_keras, request_ids
from lab.task.sdk.flags import experiment_flags, parse
from lab.task.sdk.gloo_threads import finish_at_exit
from lab.task.sdk.interrupt import leave_on_interrupt
from lab.task.sdk.recorder import Number, Recorder

# Programs import TensorFlow before this module.
lazy_keras.restore_keras(os.environ)
if "tensorflow" in sys.modules:
    # The objects of the import exist until the process ends. Without this call Python searches all
    # of them for garbage at exit, which takes 0.7 s of CPU time instead of 0.08 s.
    gc.freeze()

# TensorFlow raises these when another task of the cluster stops answering.
_PEER_LOST: Final = ("UnavailableError", "AbortedError")
# The same for a call of another task's function: the runtime raises it under another name.
_CALL_LOST: Final = "originally returned UnavailableError"
_NO_SERVER: Final = "Could not start gRPC server"
_TASK: Final = re.compile(r"/job:([a-z]+)/replica:0/task:([0-9]+)")


class ProgramError(Exception):
    """The training cannot continue, for a reason outside the program."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")


def begin(experiment: str, description: str) -> tuple[argparse.Namespace, Recorder]:
    """Begin a task of an experiment: parse its flags, record its start.

    Args:
        experiment: The experiment's name for `lab run`.
        description: The program's description in `--help`.

    Returns:
        The flags of `lab.task.sdk.flags.parse`, and the recorder for all further records.

    Raises:
        SystemExit: A flag is wrong: one line on stderr, exit code 2. Or `--help` was given.
    """
    flags = parse(experiment_flags(experiment, description))
    sizes = {"batch_size": flags.batch_size} if "batch_size" in flags else {}
    return flags, begin_task(flags, **sizes)


def begin_task(flags: argparse.Namespace, **fields: str | Number) -> Recorder:
    """Record the start of a task, and end it well on Ctrl-C and on errors.

    A program of TensorFlow calls it before its first server or session. It then gets request ids of
    its own, because TensorFlow refuses a step with a repeated id; if that is impossible, an event
    says so.

    Args:
        flags: The flags of `lab.task.sdk.flags.parse`.
        **fields: Further fields of the record, such as `batch_size`.
    """
    leave_on_interrupt()
    if "torch.distributed" in sys.modules:
        finish_at_exit()
    recorder = Recorder(flags.job_name, flags.task_index)
    hosts = flags.cluster[flags.job_name]
    report_failure(recorder, hosts[flags.task_index] if hosts else "")
    recorder.write("start", status="starting", **fields)
    if "tensorflow" in sys.modules:
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        place = request_ids.place_in(flags.cluster, flags.job_name, flags.task_index, os.environ)
        request_ids.number_requests(place, lambda line: recorder.write("event", message=line))
    return recorder


def run_directory() -> Path | None:
    """Return the run's directory; None if the user started the program by hand."""
    value = os.environ.get(LAB_RUN_DIR)
    return Path(value) if value else None


def ended_tasks() -> set[str]:
    """Return the names of this run's tasks that have ended; empty if started by hand."""
    directory = run_directory()
    if directory is None:
        return set()
    ended = set()
    for path in directory.glob("status/*.json"):
        with contextlib.suppress(OSError):  # it cannot be read now; the program asks again
            if read_status(path, path.stem).state.ended:
                ended.add(path.stem)
    return ended


def checkpoint_directory(flags: argparse.Namespace) -> Path | None:
    """Return the directory of the checkpoints, and create it: `--checkpoint_dir`, or in the run.

    Returns:
        The directory; None if the user started the program by hand without the flag.

    Raises:
        ProgramError: The directory cannot be created.
    """
    run = run_directory()
    directory: Path | None = flags.checkpoint_dir or (run and run / "checkpoints")
    if directory:
        make_directory(directory)
    return directory


def make_directory(path: Path) -> None:
    """Create a directory and its parents.

    Raises:
        ProgramError: The directory cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProgramError(
            f"{path}: cannot be created ({error.strerror})", "use a directory that you can write to"
        ) from error


def save_trained(
    flags: argparse.Namespace,
    global_step: int,
    parameters: Mapping[str, Array],
    averages: Mapping[str, Array] | None = None,
) -> None:
    """Save a trained model in the run's directory, or in `--checkpoint_dir` without a run.

    Args:
        flags: The program's flags; `model` and `checkpoint_dir` are used if it has them.
        global_step: The number of updates that the parameters received.
        parameters: Parameters by name, float32 arrays.
        averages: Moving averages of the parameters, by the same names.

    Raises:
        OSError: The directory is not writable, or the disk is full.
    """
    run = run_directory()
    directory = run / "model" if run else getattr(flags, "checkpoint_dir", None)
    if directory:
        model = getattr(flags, "model", "softmax")
        save_model(directory, SavedModel(model, global_step, parameters, averages or {}))


def report_failure(recorder: Recorder, address: str = "") -> None:
    """Make a failing program write its error as the last record, and end at once.

    Errors that the user can fix get one line on stderr: a `ProgramError`, a `DataError`, a lost
    connection to another task, or an address that another program uses. Any other error gets its
    traceback. The exit code is 2 for a `DataError`, else 1.

    Args:
        recorder: The recorder of the program.
        address: The address at which the task serves.
    """

    def report(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        known = _message(error, recorder.task, address)
        message = known or f"{kind.__name__}: {first_message_line(str(error))}"
        recorder.write("final", status="failed", message=message)
        if known is None:
            sys.__excepthook__(kind, error, traceback)
        else:
            # In one piece: JAX's threads write to stderr, too, and print writes the newline apart.
            sys.stderr.write(f"error: {message}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        # A normal exit would close the session, which waits without end for a parameter server
        # that has ended.
        os._exit(2 if isinstance(error, DataError) else 1)

    sys.excepthook = report


def _message(error: BaseException, own_task: str, address: str) -> str | None:
    """Return the line for an error outside the program; None for an error of the program."""
    if isinstance(error, (ProgramError, DataError)):
        return first_message_line(str(error))
    if _NO_SERVER in str(error):
        return f"cannot listen on {address or 'its port'}; stop the program that uses it"
    if type(error).__name__ not in _PEER_LOST and _CALL_LOST not in str(error):
        return None
    named = (f"{job}-{index}" for job, index in _TASK.findall(str(error)))
    peer = next((task for task in named if task != own_task), "another task")
    return f"{LOST_CONTACT} {peer}; see how it ended"
