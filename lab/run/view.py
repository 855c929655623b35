"""What a user sees of a run that is under way: a table that is drawn anew, or lines.

All that comes from a task is sanitized here, and never read as rich's markup.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lab.formatting import loss, percent, rate, whole
from lab.run.cells import state_cell, table
from lab.run.directory import RunInfo
from lab.run.gpu_use import cards_of
from lab.run.lifecycle import View, explain
from lab.run.printed import prefixed
from lab.run.progress import TaskProgress
from lab.signals import around_a_stop
from lab.task.protocol import TaskStatus
from lab.task.states import State
from lab.task.text import LONGEST_REASON, bounded, clipped, short, visible
from lab.threads import signals_blocked

PLAIN_EVERY_S: Final = 5.0
"""A plain view says at most one line per task in this time, and one at each epoch's end."""

SILENT_S: Final = 3.0
"""A training task that has reported nothing for this long is said to be silent."""

MESSAGE_WIDTH: Final = 20
"""So much of what a task waits for fits beside its row."""

GPU_FRESH_S: Final = 3.0
"""What a card did longer ago than this is not what it does now."""

_LIVE: Final = (
    ("task", 9), ("state", 9), (">epoch", 5), (">local\nstep", 7), (">global\nstep", 7),
    (">steps/s", 7), (">loss", 7), ("lag", 10),
)  # fmt: skip
"""Columns of the live table. None gets narrower, so that nothing jumps while numbers grow."""

_LIVE_WITH_GPU: Final = (
    ("task", 8), ("state", 9), (">epoch", 5), (">local\nstep", 6), (">global\nstep", 7),
    (">steps/s", 7), (">loss", 6), (">gpu", 5), ("lag", 10),
)  # fmt: skip
"""The same where tasks hold cards: 79 columns, so that they fit a terminal of 80."""


class _Tasks:
    """What is known of every task, in the cluster's order."""

    def __init__(self, info: RunInfo) -> None:
        self.epochs = info.hyperparameters.get("epochs")
        self.progress = {task: TaskProgress(task) for task in info.task_names()}
        self.statuses = {task: TaskStatus(task, State.PENDING) for task in self.progress}
        self.width = max(map(len, self.progress), default=0)
        self.heard: dict[str, float] = {}
        self.holds_cards = bool(cards_of(info))
        self._gpus: tuple[float, Mapping[str, float]] = (0.0, {})

    def add(self, task: str, records: Iterable[Mapping[str, object]]) -> None:
        progress = self.progress.setdefault(task, TaskProgress(task))
        for record in records:
            progress.add(dict(record))
        self.heard[task] = time.monotonic()

    def forget(self, task: str) -> None:
        self.progress[task] = TaskProgress(task)

    def use(self, use: Mapping[str, float]) -> None:
        """How busy the cards are now; one assignment, since another thread reads it."""
        self._gpus = (time.monotonic(), use)

    def gpu(self, task: str) -> str:
        """How busy its cards are; nothing where the newest sample is old."""
        sampled, use = self._gpus
        return percent(use.get(task)) if time.monotonic() - sampled <= GPU_FRESH_S else ""

    def epoch(self, task: str) -> str:
        """`3/50`: the epoch that it is in, counted from 1."""
        epoch = self.progress[task].epoch
        if epoch is None:
            return ""
        return f"{epoch + 1}/{self.epochs}" if isinstance(self.epochs, int) else f"{epoch + 1}"

    def lag(self, task: str) -> str:
        """What it waits for, how far its gradients are behind, or for how long it is silent."""
        state = self.statuses[task].state
        if state.ended or task not in self.heard:
            return ""
        if state is not State.TRAINING:
            return clipped(self.progress[task].message, MESSAGE_WIDTH)
        silent = time.monotonic() - self.heard[task]
        if silent >= SILENT_S:
            return f"silent {silent:.0f} s"
        staleness = self.progress[task].staleness
        if staleness is None:
            return ""
        return "1 update" if staleness == 1 else f"{staleness} updates"


class LiveView:
    """A table that is drawn anew in place: a row for each task, in fixed order."""

    def __init__(self, info: RunInfo, console: Console) -> None:
        self._title = f"run {info.run_id} on {info.backend}"
        self._tasks = _Tasks(info)
        self._began = time.monotonic()
        self._console = console
        self._live = self._drawn()

    def __enter__(self) -> LiveView:
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def pause(self) -> None:
        """Take the table away, and give the cursor back."""
        with suppress(OSError):  # the terminal was closed
            self._live.stop()

    def resume(self) -> None:
        """Draw the table where the cursor is now."""
        # Another one: this one remembers where its table stood, and would erase what is there.
        self._live = self._drawn()
        with signals_blocked():
            self._live.start()

    def _drawn(self) -> Live:
        return Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """New records of a task."""
        self._tasks.add(task, records)

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Lines of a task's program, above the table; a terminal that was closed ends nothing."""
        text = Text("\n").join(
            Text.assemble((prefixed(task, self._tasks.width, ""), "dim"), line) for line in lines
        )
        with suppress(OSError):
            self._live.console.print(text)

    def status(self, status: TaskStatus) -> None:
        """A task's new state."""
        self._tasks.statuses[status.task] = status

    def forget(self, task: str) -> None:
        """The task's records come again from the first."""
        self._tasks.forget(task)

    def gpus(self, use: Mapping[str, float]) -> None:
        """How busy each task's cards are now."""
        self._tasks.use(use)

    def tick(self) -> None:
        """Nothing: a thread of rich's draws four times a second."""

    def notice(self, line: str) -> None:
        """One line above the table; a terminal that was closed ends nothing."""
        with suppress(OSError):
            self._live.console.print(Text(bounded(line)))

    def _render(self) -> Group:
        columns = _LIVE_WITH_GPU if self._tasks.holds_cards else _LIVE
        rows = table(*(name for name, _ in columns))
        for column, (_, width) in zip(rows.columns, columns, strict=True):
            column.min_width = width
        # Where the table is too wide, the last column alone is cut, and one sees that it is.
        rows.columns[-1].no_wrap = False
        for task, progress in self._tasks.progress.items():
            rows.add_row(
                Text(visible(task)),
                state_cell(self._tasks.statuses[task].state),
                self._tasks.epoch(task),
                whole(progress.local_step),
                whole(progress.global_step),
                rate(progress.steps_per_s),
                loss(progress.loss),
                *([self._tasks.gpu(task)] if self._tasks.holds_cards else []),
                Text(self._tasks.lag(task), no_wrap=True, overflow="ellipsis"),
            )
        elapsed_s = time.monotonic() - self._began
        return Group(Text(visible(f"{self._title}, {elapsed_s:.0f} s")), rows)


class PlainView:
    """Lines for a file or a pipe: states as they change, and now and then where a task stands."""

    def __init__(self, info: RunInfo, stream: IO[str]) -> None:
        self._tasks = _Tasks(info)
        self._stream = stream
        self._said: dict[str, float] = {}
        self._epochs: dict[str, int | None] = {}
        self._messages: dict[str, str] = {}

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """New records of a task."""
        self._tasks.add(task, records)
        progress = self._tasks.progress[task]
        if progress.local_step is None:
            if progress.message != self._messages.get(task, ""):
                self._messages[task] = progress.message
                self.notice(f"{task}: {short(progress.message)}")
            return
        now = time.monotonic()
        new_epoch = self._epochs.get(task) != progress.epoch
        if new_epoch or now - self._said.get(task, -PLAIN_EVERY_S) >= PLAIN_EVERY_S:
            self._epochs[task], self._said[task] = progress.epoch, now
            self.notice(f"{task}: {self._where(task)}")

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Lines of a task's program; a reader who has gone ends nothing."""
        text = "\n".join(prefixed(task, self._tasks.width, line) for line in lines)
        with suppress(OSError):
            print(text, file=self._stream, flush=True)

    def status(self, status: TaskStatus) -> None:
        """A task's new state."""
        before = self._tasks.statuses.get(status.task)
        self._tasks.statuses[status.task] = status
        if before is None or before.state is not status.state:
            self.notice(f"{status.task}: {short(explain(status), LONGEST_REASON)}")

    def forget(self, task: str) -> None:
        """The task's records come again from the first."""
        self._tasks.forget(task)

    def gpus(self, use: Mapping[str, float]) -> None:
        """How busy each task's cards are now; said with the next line of the task."""
        self._tasks.use(use)

    def tick(self) -> None:
        """Nothing: lines come with what they report."""

    def notice(self, line: str) -> None:
        """One line; a reader who has gone ends nothing."""
        with suppress(OSError):
            print(bounded(line), file=self._stream, flush=True)

    def _where(self, task: str) -> str:
        progress = self._tasks.progress[task]
        pairs = (
            ("epoch", self._tasks.epoch(task)),
            ("local step", whole(progress.local_step)),
            ("global step", whole(progress.global_step)),
            ("loss", loss(progress.loss)),
        )
        words = [f"{name} {value}" for name, value in pairs if value]
        if per_s := rate(progress.steps_per_s):
            words.append(f"{per_s} steps/s")
        if gpu := self._tasks.gpu(task):
            words.append(f"GPU {gpu}")
        return ", ".join(words)


@contextmanager
def watching(run: Callable[[], RunInfo]) -> Iterator[View]:
    """The view that fits stderr; `run` reads `run.json` when the view is entered."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        with LiveView(run(), console) as live, around_a_stop(live.pause, live.resume):
            yield live
    else:
        with PlainView(run(), sys.stderr) as plain:
            yield plain
