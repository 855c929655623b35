"""The known faults of printed programs, and data files that they do not find.

Faults of synchronous programs are fixed in the source, or recognized; missing files are reported.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from lab.protocol.records.error_line import CHECKPOINT_PART

PATIENCE_S: Final = 10.0
"""A program may wait this long at one place before `lab` suspects a fault, in seconds."""

GIVE_UP_S: Final = 60.0
"""After this wait `lab` ends the program, in seconds."""

_ALIVE: Final = 0.02
"""The share of a CPU core from which a program computes, and does not wait."""

_POLL_S: Final = 1.0
_CHIEF: Final = "worker-0"
_FIX: Final = "start it with `lab run --listing=mend`"
_CALLED: Final = re.compile(r"'(Operation|Tensor|SymbolicTensor)' object is not callable")

NEVER_STOPS: Final = (
    "this program waits for the queue runner of SyncReplicasOptimizer, which waits"
    f" for gradients forever; {_FIX}"
)

ERROR: Final = "KnownFaultError"
"""The beginning of the program's last line after a known fault; agents read it as the reason."""

MISSING: Final = "MissingFileError"
"""The same after a missing file."""

OPERATIONS: Final = frozenset({"local_step_init_op", "chief_init_op", "ready_for_local_init_op"})
"""Attributes of SyncReplicasOptimizer that are operations, or the outputs of one."""

NotifyTask = Callable[[str], None]

_PRINTING: Final = threading.Lock()

_NOT_FOUND: Final = re.compile(r"(?:.*: )?(\S[^;\n]*); No such file or directory")
_PART: Final = re.compile(rf".*(?:{CHECKPOINT_PART})")
_EMPTY: Final = re.compile(r"\w*Queue '.*' is closed and has insufficient elements")
_RECORDS: Final = frozenset({".tfrecord", ".tfrecords"})


def worker_ended_message(worker: str) -> str:
    """Return the message for a worker that waits for an ended worker, or for the chief."""
    gives = "the chief, which updates the model" if worker == _CHIEF else "whose gradients it needs"
    return f"this worker waits for {worker}, {gives}, but {worker} has ended; {_FIX}"


def called_operation_line(error: BaseException, folder: Path) -> str | None:
    """Return the last line if a program called an operation as if it were a function; else None.

    Args:
        error: The error that ended the program.
        folder: The program's directory; the faulty line is in one of its files.
    """
    if not isinstance(error, TypeError) or not _CALLED.fullmatch(str(error)):
        return None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve().is_relative_to(folder)]
    if not own:
        return None
    place = own[-1]
    return (
        f"{ERROR}: {Path(place.filename).name}:{place.lineno}: `{place.line}` calls an"
        f" operation as if it were a function; {_FIX}"
    )


@dataclass(eq=False)
class Watch:
    """Watches where the main thread waits, reports a known fault, and ends the program.

    Attributes:
        notify: Receives a line for each fault.
        is_synchronous: Returns whether the program has made a SyncReplicasOptimizer.
        ended: Returns the names of the run's tasks that have ended.
    """

    notify: NotifyTask
    is_synchronous: Callable[[], bool]
    ended: Callable[[], Set[str]]
    _at: FrameType | None = None
    _since: float = 0.0
    _cpu_s: float = 0.0
    _reported: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Watch the main thread until the process ends."""
        main = threading.main_thread().ident

        def look() -> None:
            while True:
                time.sleep(_POLL_S)
                frame = sys._current_frames().get(main) if main is not None else None
                if self.is_synchronous():
                    self.look(frame)

        threading.Thread(target=look, name="known faults", daemon=True).start()

    def look(self, frame: FrameType | None) -> None:
        """Check for a known fault from the innermost frame of the main thread."""
        place = _waiting_place(frame)
        waited_s = time.monotonic() - self._since
        computed_s = time.process_time() - self._cpu_s
        if place is not self._at or (waited_s >= PATIENCE_S and computed_s >= _ALIVE * waited_s):
            self._at, self._since, self._cpu_s = place, time.monotonic(), time.process_time()
            return
        fault = None if place is None or waited_s < PATIENCE_S else self._fault(place)
        if fault is None:
            return
        if fault not in self._reported:
            self._reported.add(fault)
            self.notify(f"known fault: {fault}")
        if waited_s >= GIVE_UP_S:
            exit_with_line(f"{ERROR}: {fault}")

    def _fault(self, place: FrameType) -> str | None:
        if place.f_code.co_name == "run":
            ended = sorted(task for task in self.ended() if task.startswith("worker-"))
            return worker_ended_message(ended[0]) if ended else None
        # These are TensorFlow's names of the thread and of the token queue.
        names = [thread.name for thread in threading.enumerate() if "sync_token_q" in thread.name]
        waits = any(name.startswith("QueueRunnerThread-") for name in names)
        return NEVER_STOPS if waits else None


def _waiting_place(frame: FrameType | None) -> FrameType | None:
    """Return the outermost call in which the main thread waits: session, coordinator or exit."""
    stack = traceback.walk_stack(frame) if frame else ()  # without a frame it walks its own
    places = [place for place, _ in stack if _waits(place)]
    return places[-1] if places else None


def _waits(frame: FrameType) -> bool:
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    return (
        (name == "run" and file.endswith("tensorflow/python/client/session.py"))
        or (
            name == "join"
            and file.endswith("tensorflow/python/training/coordinator.py")
            # TensorFlow ends this wait by itself, without an error.
            and not frame.f_locals.get("ignore_live_threads")
        )
        or (name == "_shutdown" and file == threading.__file__)
    )


def uncall_operations(program: ast.Module, notify: NotifyTask) -> ast.Module:
    """Replace each call of one of `OPERATIONS` by the operation itself.

    Args:
        program: The program's syntax tree; the function changes it.
        notify: Receives one line for each replaced call.
    """
    changed: ast.Module = _CallRemover(notify).visit(program)
    return changed


class _CallRemover(ast.NodeTransformer):
    def __init__(self, notify: NotifyTask) -> None:
        self._notify = notify

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        name = getattr(function, "attr", "")
        if name in OPERATIONS and not (node.args or node.keywords):
            fault = f"{name} is an operation, called as if it were a function"
            self._notify(f"fixed: line {node.lineno}: {fault}")
            return function
        return node


# ---- missing files


def record_missing_files(program: str) -> list[str]:
    """Record the missing files of all later TensorFlow errors.

    A queue runner reads files in its own thread; the main thread gets only the error that the queue
    is closed. Without a coordinator the main thread would wait for the queue forever: if a missing
    file ends a thread, the process ends, too.

    Args:
        program: The program's name.

    Returns:
        A list that grows with each error; it has the files as the program names them.
    """
    from tensorflow.python.framework.errors_impl import NotFoundError  # noqa: PLC0415

    noted: list[str] = []
    original_init, original_hook = NotFoundError.__init__, threading.excepthook

    @functools.wraps(original_init)
    def init_and_record(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        noted.extend(_files_in(self))

    def leave(ended: threading.ExceptHookArgs) -> None:
        with _PRINTING:
            original_hook(ended)
        if line := missing_file_line(ended.exc_value, noted, program):
            exit_with_line(line)

    NotFoundError.__init__ = init_and_record
    threading.excepthook = leave
    return noted


def missing_file_line(
    error: BaseException | None, noted: Sequence[str], program: str
) -> str | None:
    """Return the last line for a program that a missing data file has ended; else None.

    Args:
        error: The error that ended the program.
        noted: The files that TensorFlow did not find.
        program: The program's name.
    """
    files: Sequence[str] = ()
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        files = (error.filename,)
    elif type(error).__name__ == "NotFoundError":
        files = _files_in(error)
    elif type(error).__name__ == "OutOfRangeError" and _EMPTY.search(str(error)):
        files = noted
    missing = [file for file in files if not Path(file).exists()]
    if not missing:
        return None
    file = Path(missing[-1])
    if file.is_absolute():
        hint = "put it there"
    elif file.suffix in _RECORDS:
        command = f"lab data tfrecords {shlex.quote(str(file))}"
        hint = f"in the directory of {program}, run `{command}`"
    else:
        hint = f"put it beside {program}, and use its name in the program"
    return f"{MISSING}: {file} is missing; {hint}"


def exit_with_line(line: str) -> NoReturn:
    """Print a last line and end the process before another thread prints a traceback."""
    with _PRINTING:
        sys.stdout.flush()
        print(line, file=sys.stderr, flush=True)
        os._exit(1)


def _files_in(error: object) -> Sequence[str]:
    files = [match[1] for match in _NOT_FOUND.finditer(str(error))]
    return [file for file in files if not _PART.fullmatch(file)]  # TensorFlow writes these
