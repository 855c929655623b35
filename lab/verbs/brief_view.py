"""One line that shows a run under way, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from lab.base.console import Output
from lab.base.formatting import loss, whole
from lab.base.text import short
from lab.protocol.volume.states import run_state
from lab.runner.program_output import prefixed
from lab.runner.store.run_info import RunInfo
from lab.runner.store.task_progress import TaskProgress
from lab.runner.view import NOW, Clock, TaskView, View

BRIEF_EVERY_S: Final = 0.5
"""Seconds between two changes of the line of a brief view."""


@contextmanager
def brief_view(
    info: RunInfo, clock: Clock = NOW, _title: str = "", *, out: Output, quiet: bool = False
) -> Iterator[View]:
    """Show a run in one line that changes; with `quiet`, show nothing."""
    try:
        yield View() if quiet else BriefView(info, out, clock)
    finally:
        out.draw("")


class BriefView(TaskView):
    """One line for the whole run that changes, and the lines of its programs above it."""

    def __init__(self, info: RunInfo, output: Output, clock: Clock = NOW) -> None:
        """Start the clock of the run.

        Args:
            info: The content of the run's `run.json`.
            output: Receives the line each time that it changes, and the lines of programs.
            clock: The clock of the run.
        """
        super().__init__(info, clock)
        self._run_id = info.run_id
        self._output = output
        self._began = self._drawn = clock.monotonic()

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Show lines of a task's program."""
        for line in lines:
            self._output.print(prefixed(task, self._width, line))

    def tick(self) -> None:
        """Update the line, at most once in `BRIEF_EVERY_S`."""
        now = self._clock.monotonic()
        if now - self._drawn >= BRIEF_EVERY_S:
            self._drawn = now
            self._output.draw(self.line(now - self._began))

    def line(self, elapsed_s: float) -> str:
        """Return the run's state and progress.

        Args:
            elapsed_s: Seconds since the client began to follow the run.
        """
        known = [progress for progress in self._progress.values() if progress.has_trained]
        furthest = max(known, key=_reached, default=None)
        state = run_state(status.state for status in self._statuses.values())
        parts = [f"run {self._run_id}: {state.value}"]
        if furthest is not None:
            if furthest.highest is not None:
                parts.append(f"global step {whole(furthest.highest)}")
            if furthest.epoch is not None:
                of = f" of {self._epochs}" if isinstance(self._epochs, int) else ""
                parts.append(f"epoch {furthest.epoch + 1}{of}")
            if furthest.loss is not None:
                parts.append(f"loss {loss(furthest.loss)}")
        return short(", ".join([*parts, f"{elapsed_s:.0f} s"]))


def _reached(progress: TaskProgress) -> tuple[int, int]:
    """How far a task has come: its highest global step, or else its epoch."""
    return progress.highest or 0, progress.epoch or 0
