"""The lines that programs print, in the form that users see.

A run's logs keep every byte. TensorFlow's own lines are hidden here, and one notice says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.base.errors import LabError
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.text import LONGEST_MESSAGE, printed, short
from lab.protocol.records.echo import TensorFlowLines
from lab.protocol.records.error_line import HEADER, RANK
from lab.protocol.volume.files import open_regular

MOST_PER_S: Final = 500
"""Maximum lines of a task that are shown in one second."""

_LONGEST: Final = 1 << 16  # bytes of a line that are read at once; agents write shorter lines

_WRAPPER: Final = re.compile(
    rb"During handling of the above exception|The above exception was the direct cause"
    rb"|Detected at node |Node: '|Original stack trace for |    File \"|  File \""
    rb"|\s+\[\[|Recent warning and error logs:|  [IWE]\d{4} "
)
"""The lines around an exception and, in TensorFlow's exceptions, around the message."""

_ERROR: Final = re.compile(rb"(?:\d{4}-\d\d-\d\d [\d:.]+: )?E(?:\d{4} [\d:.]+ | tensorflow/)")
"""The beginning of an error that TensorFlow logs."""

# The characters of an exception that fit into 80 columns beside the name of its task. The reason of
# a failed task has all of them.
_EXCEPTION_WIDTH: Final = 66

_MESSAGE_LINES: Final = 4
"""The lines after the exception's line within which such lines are hidden."""


def readable(line: bytes) -> str:
    """Return one line of a log, safe for a terminal; a long line is cut and its length named."""
    return short(printed(line), LONGEST_MESSAGE)


def prefixed(task: str, width: int, line: str) -> str:
    """Return `worker-0  | line`, in the form of `docker compose`.

    Args:
        task: The task whose program printed the line.
        width: The length of the longest task name.
        line: Safe text.
    """
    return f"{task:<{width}}  | {line}"


@dataclass(slots=True)
class _Task:
    rest: bytes = b""  # an incomplete line
    second: int = -1
    shown: int = 0
    left_out: int = 0
    in_traceback: bool = False
    message_lines: int = 0  # further lines of an exception's own message that may follow
    was_hidden: bool = False  # whether the line above belongs to a traceback
    of_tensorflow: TensorFlowLines = field(default_factory=TensorFlowLines)

    def in_traceback_of(self, line: bytes) -> bool:
        """Whether a line belongs to a traceback, but is not a line of the exception's own message.

        Such lines are hidden: the reason of a failed task has the message and its place.
        """
        line = RANK.sub(b"", line)
        if line == HEADER or (self.in_traceback and line[:1] in b" "):
            self.in_traceback = self.was_hidden = True
            return True
        if self.in_traceback:  # the line that names the exception
            self.in_traceback, self.message_lines = False, _MESSAGE_LINES
            return False
        is_wrapper = self.message_lines > 0 and (
            _WRAPPER.match(line) is not None or (self.was_hidden and not line)
        )
        self.was_hidden = is_wrapper
        self.message_lines -= not is_wrapper and self.message_lines > 0
        return is_wrapper

    @property
    def limit(self) -> int:
        """The characters of the last line that are shown."""
        return _EXCEPTION_WIDTH if self.message_lines == _MESSAGE_LINES else LONGEST_MESSAGE


def own_lines(lines: Iterable[bytes]) -> list[bytes]:
    """Return the program's own lines of a log and TensorFlow's errors, without tracebacks."""
    state = _Task()
    return [
        line
        for line in lines
        if (not state.of_tensorflow.has(line) and not state.in_traceback_of(line))
        or _ERROR.match(line)
    ]


class PrintedLines:
    """Splits the log data of a run into lines, and limits the number of shown lines."""

    def __init__(
        self,
        run_id: str,
        show: Callable[[str, Sequence[str]], None],
        report_once: Callable[[str], None],
    ) -> None:
        """Start with empty logs.

        Args:
            run_id: The run.
            show: Receives a task and its lines, in order.
            report_once: Receives a message for each hidden line; reports the first one.
        """
        self._run_id, self._show, self._report_once = run_id, show, report_once
        self._tasks: dict[str, _Task] = {}

    def feed(self, task: str, data: bytes) -> None:
        """Process the next bytes of a task's log."""
        state = self._tasks.setdefault(task, _Task())
        *lines, state.rest = (state.rest + data).split(b"\n")
        own = [(line, state.limit) for line in lines if not self._is_hidden(state, line)]
        second = int(time.monotonic())
        if second != state.second:
            self._report_left_out(task, state)
            state.second, state.shown = second, 0
        room = MOST_PER_S - state.shown
        if own[:room]:
            self._show(task, [short(printed(line), limit) for line, limit in own[:room]])
        state.shown += len(own[:room])
        state.left_out += len(own[room:])

    def forget(self, task: str) -> None:
        """Forget a task's log: all of it is fed again, from the first byte."""
        self._tasks.pop(task, None)

    def close(self) -> None:
        """Show incomplete last lines, and report the lines that were left out."""
        for task, state in self._tasks.items():
            if state.rest:
                self.feed(task, b"\n")
            self._report_left_out(task, state)

    def _is_hidden(self, state: _Task, line: bytes) -> bool:
        if not state.of_tensorflow.has(line):
            return state.in_traceback_of(line)
        self._report_once(tensorflow_notice(self._run_id))
        return True

    def _report_left_out(self, task: str, state: _Task) -> None:
        if state.left_out:
            lines = counted(state.left_out, "more line")
            LOG.info(f"{task} printed {lines}: `lab logs {self._run_id} --task {task}`")
            state.left_out = 0


def tensorflow_notice(run_id: str) -> str:
    """Return the notice that replaces TensorFlow's own lines."""
    return f"TensorFlow's own lines are hidden; see them with `lab logs {run_id} --tensorflow`"


def lines_of(log: Path) -> Iterator[bytes]:
    """Yield the lines of a log in the run store, without line ends; none if the log is missing.

    Raises:
        LabError: The log is not a regular file.
        OSError: The log cannot be read.
    """
    try:
        file = open_regular(log)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise LabError(
            f"{log}: {error}", "collect the run again into another --runs-dir"
        ) from error
    with file:
        while line := file.readline(_LONGEST):
            yield line.removesuffix(b"\n")
