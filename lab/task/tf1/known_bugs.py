"""The known faults of printed synchronous programs: fix them in the source, or recognize them."""

from __future__ import annotations

import ast
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from types import FrameType
from typing import Final

from lab.task.tf1.missing import exit_with_line

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

OPERATIONS: Final = frozenset({"local_step_init_op", "chief_init_op", "ready_for_local_init_op"})
"""Attributes of SyncReplicasOptimizer that are operations, or the outputs of one."""

NotifyTask = Callable[[str], None]


def exit_with_known_fault(line: str) -> None:
    """Print a last line and end this process at once, without waiting for its threads."""
    exit_with_line(f"{ERROR}: {line}")


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


class Watch:
    """Watches where the main thread waits, reports a known fault, and ends the program."""

    def __init__(
        self,
        notify: NotifyTask,
        *,
        is_synchronous: Callable[[], bool],
        ended: Callable[[], Set[str]],
        give_up: NotifyTask = exit_with_known_fault,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.process_time,
    ) -> None:
        """Prepare the watch; `start` begins it.

        Args:
            notify: Receives a line for each fault.
            is_synchronous: Returns whether the program has made a SyncReplicasOptimizer.
            ended: Returns the names of the run's tasks that have ended.
            give_up: Ends the program; receives a line with the reason.
            clock: Returns the time in seconds.
            cpu_time: Returns the CPU time of this process in seconds.
        """
        self._notify = notify
        self._is_synchronous = is_synchronous
        self._ended = ended
        self._give_up = give_up
        self._clock = clock
        self._cpu_time = cpu_time
        self._at: FrameType | None = None
        self._since = self._cpu_s = 0.0
        self._reported: set[str] = set()

    def start(self) -> None:
        """Watch the main thread until the process ends."""
        main = threading.main_thread().ident

        def look() -> None:
            while True:
                time.sleep(_POLL_S)
                frame = sys._current_frames().get(main) if main is not None else None
                if self._is_synchronous():
                    self.look(frame)

        threading.Thread(target=look, name="known faults", daemon=True).start()

    def look(self, frame: FrameType | None) -> None:
        """Check for a known fault from the innermost frame of the main thread."""
        place = _waiting_place(frame)
        waited_s = self._clock() - self._since
        computed_s = self._cpu_time() - self._cpu_s
        if place is not self._at or (waited_s >= PATIENCE_S and computed_s >= _ALIVE * waited_s):
            self._at, self._since, self._cpu_s = place, self._clock(), self._cpu_time()
            return
        fault = None if place is None or waited_s < PATIENCE_S else self._fault(place)
        if fault is None:
            return
        if fault not in self._reported:
            self._reported.add(fault)
            self._notify(f"known fault: {fault}")
        if waited_s >= GIVE_UP_S:
            self._give_up(fault)

    def _fault(self, place: FrameType) -> str | None:
        if place.f_code.co_name == "run":
            ended = sorted(task for task in self._ended() if task.startswith("worker-"))
            return worker_ended_message(ended[0]) if ended else None
        waits = any(_runs_queue(thread) for thread in threading.enumerate())
        return NEVER_STOPS if waits else None


def _waiting_place(frame: FrameType | None) -> FrameType | None:
    """Return the outermost call in which the main thread waits: session, coordinator or exit."""
    places = [place for place in _outwards(frame) if _waits(place)]
    return places[-1] if places else None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


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


def _runs_queue(thread: threading.Thread) -> bool:
    # These are TensorFlow's names of the thread and of the token queue.
    return thread.name.startswith("QueueRunnerThread-") and "sync_token_q" in thread.name


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
        if (
            isinstance(function, ast.Attribute)
            and function.attr in OPERATIONS
            and not node.args
            and not node.keywords
        ):
            fault = f"{function.attr} is an operation, called as if it were a function"
            self._notify(f"fixed: line {node.lineno}: {fault}")
            return function
        return node
