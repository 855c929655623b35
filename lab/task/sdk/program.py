"""What a training program shares with its run: where it keeps things, and how it fails."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from lab.task.protocol import LOST_CONTACT, lazy_keras
from lab.task.protocol.error_line import first_message_line
from lab.task.protocol.statuses import read_status
from lab.task.sdk.data import DataError
from lab.task.sdk.recorder import Recorder

FAILED: Final = 1
WRONG_INPUT: Final = 2

_LOOK_S: Final = 0.02

# Programs import TensorFlow before this module.
lazy_keras.restore_keras(os.environ)
if "tensorflow" in sys.modules:
    # What the import has made lives as long as the process. On its way out Python would look
    # through all of it for garbage: each program's end took 0.7 s of CPU time, and so takes 0.08.
    gc.freeze()

# What TensorFlow raises when another task of the cluster does not answer any more.
_PEER_LOST: Final = ("UnavailableError", "AbortedError")
# The same, of a call to another task's function: the runtime passes it on under another name.
_CALL_LOST: Final = "originally returned UnavailableError"
_TASK: Final = re.compile(r"/job:([a-z]+)/replica:0/task:([0-9]+)")


class ProgramError(Exception):
    """The training cannot go on, for a reason outside of the program."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")


def run_directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """The directory of the run that this program belongs to; None when it was started by hand."""
    value = (os.environ if environment is None else environment).get("LAB_RUN_DIR")
    return Path(value) if value else None


def wait_for_start(
    global_step: Callable[[], int] | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Wait until the task agent gives the word to train; by hand there is nothing to wait for.

    Args:
        global_step: Asks for the global step, where the program may have to wait for one: the
            word then names the step at which this task joins (`joins_at_step` of an experiment).
        environment: The variables; the process's own by default.
    """
    argument = (os.environ if environment is None else environment).get("LAB_START")
    while argument and not Path(argument).exists():
        time.sleep(_LOOK_S)
    joins_at = Path(argument).read_text() if argument and global_step else ""
    while joins_at and global_step and global_step() < int(joins_at):
        time.sleep(_LOOK_S)


def ended_tasks(environment: Mapping[str, str] | None = None) -> set[str]:
    """Names of the tasks of this run that have ended; by hand nobody knows of any."""
    directory = run_directory(environment)
    if directory is None:
        return set()
    states = {path.stem: read_status(path, path.stem) for path in directory.glob("status/*.json")}
    return {task for task, status in states.items() if status.state.ended}


def make_directory(path: Path) -> None:
    """Make a directory to write into, with all above it.

    Raises:
        ProgramError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProgramError(
            f"{path}: cannot be made ({error.strerror})", "give a directory that you may write"
        ) from error


def report_failure(recorder: Recorder) -> None:
    """Let a program that fails say why in a last record, and end at once.

    What the user can mend (a `ProgramError`, a `DataError`, another task that is gone) gives one
    line on stderr; everything else keeps its traceback. The exit code is 2 for a `DataError`,
    else 1.
    """

    def report(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        message = _message(error, recorder.task)
        if message is None:
            message = f"{kind.__name__}: {first_message_line(str(error))}"
            recorder.write("final", status="failed", message=message)
            sys.__excepthook__(kind, error, traceback)
        else:
            recorder.write("final", status="failed", message=message)
            print(f"error: {message}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by returning: on its way out Python would close the session, which waits without end
        # for a parameter server that is gone.
        os._exit(WRONG_INPUT if isinstance(error, DataError) else FAILED)

    sys.excepthook = report


def _message(error: BaseException, myself: str) -> str | None:
    """The line for a failure that is not the program's own; None for one that is."""
    if isinstance(error, (ProgramError, DataError)):
        return first_message_line(str(error))
    if type(error).__name__ not in _PEER_LOST and _CALL_LOST not in str(error):
        return None
    named = (f"{job}-{index}" for job, index in _TASK.findall(str(error)))
    peer = next((task for task in named if task != myself), "another task")
    return f"{LOST_CONTACT} {peer}; see how it ended"
