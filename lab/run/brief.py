"""A run that is under way, in one line that changes: for notebooks, and for whoever wants few."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

from lab.backends import Say
from lab.formatting import loss, whole
from lab.run.directory import RunInfo
from lab.run.lifecycle import NoView
from lab.run.printed import prefixed
from lab.run.progress import TaskProgress
from lab.task.protocol import TaskStatus
from lab.task.states import State, run_state
from lab.task.text import clipped, short

EVERY_S: Final = 0.5
"""So often the line changes, in seconds."""

Draw = Callable[[str], None]
"""Puts a line into the place of the one before; an empty one makes room for others."""


class BriefView(NoView):
    """One line for the whole run; what is to be noticed gets a line of its own."""

    def __init__(
        self,
        info: RunInfo,
        draw: Draw,
        say: Say,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            info: The run.
            draw: Receives the line, each time that it changes.
            say: Receives what is to be noticed.
            monotonic: Seconds that never run back.
        """
        self._run_id = info.run_id
        self._epochs = info.hyperparameters.get("epochs")
        self._progress = {task: TaskProgress(task) for task in info.task_names()}
        self._states = dict.fromkeys(info.task_names(), State.PENDING)
        self._draw, self._say, self._monotonic = draw, say, monotonic
        self._began = self._drawn = monotonic()

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """New records of a task."""
        progress = self._progress.setdefault(task, TaskProgress(task))
        for record in records:
            progress.add(dict(record))

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Lines of a task's program."""
        width = max(map(len, self._states), default=0)
        for line in lines:
            self.notice(prefixed(task, width, line))

    def status(self, status: TaskStatus) -> None:
        """A task's new state."""
        self._states[status.task] = status.state

    def forget(self, task: str) -> None:
        """The task's records come again from the first."""
        self._progress[task] = TaskProgress(task)

    def tick(self) -> None:
        """Draw the line anew, where the last time is long enough ago."""
        now = self._monotonic()
        if now - self._drawn >= EVERY_S:
            self._drawn = now
            self._draw(self.line(now - self._began))

    def notice(self, line: str) -> None:
        """One line for the user."""
        self._draw("")
        self._say(line)

    def line(self, elapsed_s: float) -> str:
        """Where the run is.

        Args:
            elapsed_s: For how long it has been followed, in seconds.
        """
        known = [each for each in self._progress.values() if each.highest is not None]
        furthest = max(known, key=_highest, default=None)
        words = [f"run {self._run_id}: {run_state(self._states.values()).value}"]
        if furthest is not None:
            words.append(f"global step {whole(furthest.highest)}")
            if furthest.epoch is not None:
                of = f" of {self._epochs}" if isinstance(self._epochs, int) else ""
                words.append(f"epoch {furthest.epoch + 1}{of}")
            if furthest.loss is not None:
                words.append(f"loss {loss(furthest.loss)}")
        return short(", ".join([*words, f"{elapsed_s:.0f} s"]))


@contextmanager
def watching(info: RunInfo, say: Say) -> Iterator[BriefView]:
    """A view in which stderr, or the notebook, shows the line."""
    draw = _drawing(sys.stderr)
    try:
        yield BriefView(info, draw, say)
    finally:
        draw("")


def _drawing(stream: IO[str]) -> Draw:
    """How a line is put into the place of the one before, here.

    In a notebook its output changes; on a terminal the line does. A file or a pipe gets none.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        return _InNotebook()
    return _OnTerminal(stream) if stream.isatty() else _nothing


class _InNotebook:
    """A piece of a cell's output that is changed in place: what is saved is the last line."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, line: str) -> None:
        from IPython.display import display  # noqa: PLC0415  (it is there: it runs this)

        if not line:  # what others say has a place of its own
            return
        shown = {"text/plain": line}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown, raw=True)


class _OnTerminal:
    """The terminal's last line."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, line: str) -> None:
        with suppress(OSError):  # the terminal was closed
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{clipped(line, width)}")
            self._stream.flush()


def _nothing(_line: str) -> None:
    """Nobody sees lines that change."""


def _highest(progress: TaskProgress) -> int:
    return progress.highest or 0
