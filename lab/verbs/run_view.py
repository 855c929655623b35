"""The views of a run under way: a live table on a terminal, else plain lines; or a single line.

All text from a task is sanitized here, and never interpreted as markup of rich.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO, Final

from rich.console import Console

from lab.base.console import Output, with_command_name
from lab.base.formatting import loss, whole
from lab.base.log import shown_by
from lab.base.signals import on_suspend
from lab.base.tables import show
from lab.base.text import bounded, short
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import run_state
from lab.runner.program_output import prefixed
from lab.runner.result_table import result_table
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import Summary
from lab.runner.view import NOW, Clock, View

PLAIN_EVERY_S: Final = 5.0
"""Seconds between two lines of a task in a plain view; a new epoch always has a line."""


class LineView(View):
    """A view of lines."""

    def _figures(self, task: str) -> str:
        """Return what a task has reached, in words."""
        progress = self._progress[task]
        pairs = (
            ("epoch", self._epoch(task)),
            ("local step", whole(progress.local_step)),
            ("global step", whole(progress.global_step)),
            ("loss", loss(progress.loss)),
        )
        parts = [f"{name} {value}" for name, value in pairs if value]
        if per_s := self._rate(task):
            parts.append(f"{per_s} steps/s")
        if gpu := self._gpu(task):
            parts.append(f"GPU {gpu}")
        return ", ".join(parts)


class PlainView(LineView):
    """Lines for a file or a pipe: each change of a state, and regularly each task's progress.

    Errors of a closed pipe are ignored.
    """

    def __init__(self, info: RunInfo, stream: IO[str], clock: Clock = NOW) -> None:
        super().__init__(info, clock)
        self._stream = stream
        self._printed_at: dict[str, float] = {}
        self._shown_epochs: dict[str, int | None] = {}

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Receive new records of a task."""
        super().records(task, records)
        progress = self._progress[task]
        if not progress.has_trained:
            if progress.message:
                self.report_once(f"{task}: {short(progress.message)}")
            return
        self._report_notices(task, records)
        now = self._clock.monotonic()
        new_epoch = self._shown_epochs.get(task) != progress.epoch
        if new_epoch or now - self._printed_at.get(task, -PLAIN_EVERY_S) >= PLAIN_EVERY_S:
            self._shown_epochs[task], self._printed_at[task] = progress.epoch, now
            self.show(f"{task}: {self._figures(task) or short(progress.message)}")

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Print lines of a task's program."""
        self._print("\n".join(prefixed(task, self._width, line) for line in lines))

    def status(self, status: TaskStatus) -> None:
        """Receive a task's new status."""
        before = self._statuses.get(status.task)
        super().status(status)
        if before is None or before.state is not status.state:
            self.show(f"{status.task}: {status.state}")  # the end of the run gives the reason

    def show(self, line: str) -> None:
        """Print one line."""
        self._print(bounded(with_command_name(line)))

    def _print(self, text: str) -> None:
        with suppress(OSError):
            print(text, file=self._stream, flush=True)


@contextmanager
def view_for_stderr(
    info: RunInfo,
    clock: Clock = NOW,
    title: str = "",
) -> Iterator[View]:
    """Show the view that fits stderr: a live table on a terminal, else plain lines.

    Args:
        info: The content of the run's `run.json`.
        clock: The clock of the run.
        title: The title of the live table; "": the run and its backend.
    """
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        from lab.verbs.live_view import LiveView  # noqa: PLC0415  (only for a terminal)

        with (
            LiveView(info, console, clock, title) as live,
            on_suspend(live.pause, live.resume),
            shown_by(live.show),
        ):
            yield live
    else:
        yield PlainView(info, sys.stderr, clock)


def print_summary(summary: Summary, *, json: bool) -> None:
    """Print a run's table; with `json`, print the table to stderr and JSON to stdout.

    A closed terminal is no error: it does not change the result of the run.
    """
    try:
        # The error below the table has the reason.
        show(result_table(replace(summary, reason="")), to_stderr=json)
        if json:
            print(summary.to_json())
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # Python flushes again at exit, and an error there would change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


BRIEF_EVERY_S: Final = 0.5
"""Seconds between two changes of the line of a brief view."""


def brief_view(
    info: RunInfo, clock: Clock = NOW, _title: str = "", *, out: Output, quiet: bool = False
) -> View:
    """Return the view of a run in one line that changes; with `quiet`, it shows nothing."""
    return View(info) if quiet else BriefView(info, out, clock)


class BriefView(LineView):
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

    def __exit__(self, *_: object) -> None:
        """Erase the line."""
        self._output.draw("")

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
        trained = [task for task, progress in self._progress.items() if progress.has_trained]
        furthest = max(trained, key=self._reached, default=None)
        state = run_state(status.state for status in self._statuses.values())
        figures = self._figures(furthest) if furthest is not None else ""
        parts = [f"run {self._run_id}: {state.value}", figures, f"{elapsed_s:.0f} s"]
        return short(", ".join(filter(None, parts)))

    def _reached(self, task: str) -> tuple[int, int]:
        """How far a task has come: its highest global step, or else its epoch."""
        progress = self._progress[task]
        return progress.highest or 0, progress.epoch or 0
