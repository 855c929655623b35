"""The known faults of printed synchronous programs: removed from the source, or recognized."""

from __future__ import annotations

import ast
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

PATIENCE_S: Final = 10.0
"""For so long a program may wait at one place before a fault is suspected."""

GIVE_UP_S: Final = 60.0
"""After so long it is given up: it would wait for ever."""

_LOOK_S: Final = 1.0
_FIX: Final = "`lab run --listing --mend` mends it"
_CALLED: Final = re.compile(r"'(Operation|Tensor|SymbolicTensor)' object is not callable")

NEVER_STOPS: Final = (
    "this program waits for the queue runner of SyncReplicasOptimizer, which waits"
    f" for gradients for ever; {_FIX}"
)

ERROR: Final = "KnownFaultError"
"""Begins the last line of a program that ends by one, so that it counts as the reason."""

OPERATIONS: Final = frozenset({"local_step_init_op", "chief_init_op", "ready_for_local_init_op"})
"""What SyncReplicasOptimizer has as attributes, each an operation or what it gives."""

NotifyTask = Callable[[str], None]


def exit_with_known_fault(line: str) -> None:
    """End this process at once, whatever its threads wait for."""
    sys.stdout.flush()
    print(f"{ERROR}: {line}", file=sys.stderr, flush=True)
    os._exit(1)


def worker_ended_message(worker: str) -> str:
    """What to say of a worker that waits for the gradients of one that has ended."""
    return (
        f"{worker} has ended, because each worker counts its own steps, and this one"
        f" waits for its gradients; {_FIX}"
    )


def called_operation_message(error: BaseException, folder: Path) -> str | None:
    """What to say of a program that calls an operation as if it were a function; else None.

    Args:
        error: What has ended the program.
        folder: The program's directory: the fault is in a line of its files.
    """
    if not isinstance(error, TypeError) or not _CALLED.fullmatch(str(error)):
        return None
    own = [each for each in _frames(error.__traceback__) if _lies_in(folder, each.filename)]
    if not own:
        return None
    place = own[-1]
    return (
        f"{Path(place.filename).name}:{place.lineno}: `{place.line}` calls an"
        f" operation as if it were a function; {_FIX}"
    )


def _frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(trace))


def _lies_in(folder: Path, file: str) -> bool:
    return Path(file).resolve().is_relative_to(folder)


class Watch:
    """Looks once a second where the main thread waits, says why it waits in vain, and ends it."""

    def __init__(
        self,
        notify: NotifyTask,
        *,
        is_synchronous: Callable[[], bool],
        ended: Callable[[], Set[str]],
        give_up: NotifyTask = exit_with_known_fault,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is watched before `start`.

        Args:
            notify: Receives a line for each fault.
            is_synchronous: Whether the program has made a SyncReplicasOptimizer by now.
            ended: Names the tasks of the run that have ended.
            give_up: Ends the program with a line that says why.
            clock: Seconds.
        """
        self._notify = notify
        self._is_synchronous = is_synchronous
        self._ended = ended
        self._give_up = give_up
        self._clock = clock
        self._at: FrameType | None = None
        self._since = 0.0
        self._reported: set[str] = set()

    def start(self) -> None:
        """Watch the main thread until the process ends."""
        main = threading.main_thread().ident

        def look() -> None:
            while True:
                time.sleep(_LOOK_S)
                frame = sys._current_frames().get(main) if main is not None else None
                if self._is_synchronous():
                    self.look(frame)

        threading.Thread(target=look, name="known faults", daemon=True).start()

    def look(self, frame: FrameType | None) -> None:
        """Judge by the innermost frame of the main thread."""
        place = _waiting_place(frame)
        if place is not self._at:
            self._at, self._since = place, self._clock()
        waited_s = self._clock() - self._since
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
            gone = sorted(task for task in self._ended() if task.startswith("worker-"))
            return worker_ended_message(gone[0]) if gone else None
        waits = any(_runs_queue(thread) for thread in threading.enumerate())
        return NEVER_STOPS if waits else None


def _waiting_place(frame: FrameType | None) -> FrameType | None:
    """The outermost call in which the main thread waits: a session's, a coordinator's, the end."""
    places = [each for each in _outwards(frame) if _waits(each)]
    return places[-1] if places else None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _waits(frame: FrameType) -> bool:
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    return (
        (name == "run" and file.endswith("tensorflow/python/client/session.py"))
        or (name == "join" and file.endswith("tensorflow/python/training/coordinator.py"))
        or (name == "_shutdown" and file == threading.__file__)
    )


def _runs_queue(thread: threading.Thread) -> bool:
    # As TensorFlow names them, and its queue of tokens.
    return thread.name.startswith("QueueRunnerThread-") and "sync_token_q" in thread.name


def uncall_operations(program: ast.Module, notify: NotifyTask) -> ast.Module:
    """The program with these operations themselves where it calls them.

    Args:
        program: Its syntax tree, which is changed.
        notify: Receives one line for each of them.
    """
    changed: ast.Module = _Uncalled(notify).visit(program)
    return changed


class _Uncalled(ast.NodeTransformer):
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
            what = f"{function.attr} is an operation, called as if it were a function"
            self._notify(f"mended: line {node.lineno}: {what}")
            return function
        return node
