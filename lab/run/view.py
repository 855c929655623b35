"""What a user sees of a run: live, line by line, and as tables at the end.

All that comes from a task is sanitized here, and never read as rich's markup.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lab.run.directory import RunInfo
from lab.run.gpu_use import cards_of
from lab.run.lifecycle import View, explain
from lab.run.progress import TaskProgress
from lab.run.summary import Summary, TaskSummary
from lab.signals import around_a_stop
from lab.task.protocol import TaskStatus
from lab.task.states import State
from lab.task.text import short, visible
from lab.threads import signals_blocked

PLAIN_EVERY_S: Final = 5.0
"""A plain view says at most one line per task in this time, and one at each epoch's end."""

SILENT_S: Final = 3.0
"""A training task that has reported nothing for this long is said to be silent."""

MESSAGE_WIDTH: Final = 20
"""So much of what a task waits for fits beside its row."""

PIPE_WIDTH: Final = 200
"""Columns of a table that goes into a file or a pipe."""

STYLES: Final[Mapping[str, str]] = {
    State.PENDING: "dim",
    State.STARTING: "yellow",
    State.READY: "yellow",
    State.TRAINING: "cyan",
    State.SUCCEEDED: "green",
    State.FAILED: "bold red",
    State.LOST: "bold red",
    State.CANCELLED: "magenta",
}

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

_RESULT: Final = (
    "task", "node", "state", ">epochs", ">local\nsteps", ">global\nstep", ">loss", ">accuracy",
    ">time",
)  # fmt: skip

_RESULT_WITH_GPU: Final = (
    "task", "node", "state", ">epoch", ">local\nsteps", ">global\nstep", ">loss", ">accu-\nracy",
    ">gpu", ">time",
)  # fmt: skip
"""The same where cards were sampled; narrower headings make room for theirs in 80 columns."""

_Cell = str | Text


class _Tasks:
    """What is known of every task, in the cluster's order."""

    def __init__(self, info: RunInfo) -> None:
        self.epochs = info.hyperparameters.get("epochs")
        self.progress = {task: TaskProgress(task) for task in info.task_names()}
        self.statuses = {task: TaskStatus(task, State.PENDING) for task in self.progress}
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
        return _percent(use.get(task)) if time.monotonic() - sampled <= GPU_FRESH_S else ""

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
            return short(self.progress[task].message, MESSAGE_WIDTH)
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
            self._live.console.print(Text(visible(line)))

    def _render(self) -> Group:
        columns = _LIVE_WITH_GPU if self._tasks.holds_cards else _LIVE
        table = _table(*(name for name, _ in columns))
        for column, (_, width) in zip(table.columns, columns, strict=True):
            column.min_width = width
        # Where the table is too wide, the last column alone is cut, and one sees that it is.
        table.columns[-1].no_wrap = False
        for task, progress in self._tasks.progress.items():
            table.add_row(
                Text(visible(task)),
                _state(self._tasks.statuses[task].state),
                self._tasks.epoch(task),
                _whole(progress.local_step),
                _whole(progress.global_step),
                _rate(progress.steps_per_s),
                _loss(progress.loss),
                *([self._tasks.gpu(task)] if self._tasks.holds_cards else []),
                Text(self._tasks.lag(task), no_wrap=True, overflow="ellipsis"),
            )
        seconds = time.monotonic() - self._began
        return Group(Text(visible(f"{self._title}, {seconds:.0f} s")), table)


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

    def status(self, status: TaskStatus) -> None:
        """A task's new state."""
        before = self._tasks.statuses.get(status.task)
        self._tasks.statuses[status.task] = status
        if before is None or before.state is not status.state:
            self.notice(f"{status.task}: {short(explain(status))}")

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
            print(visible(line), file=self._stream, flush=True)

    def _where(self, task: str) -> str:
        progress = self._tasks.progress[task]
        pairs = (
            ("epoch", self._tasks.epoch(task)),
            ("local step", _whole(progress.local_step)),
            ("global step", _whole(progress.global_step)),
            ("loss", _loss(progress.loss)),
        )
        words = [f"{name} {value}" for name, value in pairs if value]
        if rate := _rate(progress.steps_per_s):
            words.append(f"{rate} steps/s")
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


def result(summary: Summary) -> Group:
    """The table of a run, and what the run as a whole came to."""
    with_gpu = any(task.gpu_utilisation is not None for task in summary.tasks)
    table = _table(*(_RESULT_WITH_GPU if with_gpu else _RESULT))
    for task in summary.tasks:
        table.add_row(*_result_row(task, with_gpu=with_gpu))
    return Group(_headline(summary), table, *_footer(summary))


def _result_row(task: TaskSummary, *, with_gpu: bool) -> list[_Cell]:
    return [
        Text(visible(task.task)),
        Text(visible(task.node)),
        _state(State(task.state)),
        "" if task.epoch is None else str(task.epoch + 1),
        _whole(task.local_step),
        _whole(task.global_step),
        _loss(task.loss),
        _share(task.accuracy),
        *([_percent(task.gpu_utilisation)] if with_gpu else []),
        _seconds(task.time_s),
    ]


def _headline(summary: Summary) -> Text:
    line = Text(visible(f"run {summary.run_id}: {summary.experiment} on {summary.backend}, "))
    line.append_text(_state(State(summary.state)))
    if summary.wall_s is not None:
        line.append(f" after {summary.wall_s:.1f} s")
    if summary.reason:
        line.append(f" ({short(summary.reason)})")
    return line


def _footer(summary: Summary) -> Iterator[Text]:
    for name, value, style in _facts(summary):
        yield Text.assemble(f"{name:<35}", (value, style))


def _facts(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Name, value and style of what can be said of the run as a whole."""
    if summary.accuracy is not None:
        yield "accuracy of the final parameters", _share(summary.accuracy), ""
    if summary.global_step is not None:
        rate = "" if summary.steps_per_s is None else f", {_rate(summary.steps_per_s)} a second"
        yield "global step", f"{_whole(summary.global_step)}{rate}", ""
    if summary.first_step_s is not None:
        yield "first step of every worker", f"after {summary.first_step_s:.1f} s", ""
    if summary.updates_conserved is not None:
        bad = "" if summary.updates_conserved else "bold red"
        lost = f": {summary.updates_lost} never made" if summary.updates_lost else ""
        yield "every update counted", "yes" if summary.updates_conserved else f"NO{lost}", bad
    if summary.degraded:
        gone = [task.task for task in summary.tasks if task.state != State.SUCCEEDED]
        yield "without", visible(", ".join(gone)), "bold yellow"
    again = [f"{task.task} {task.attempts - 1}x" for task in summary.tasks if task.attempts > 1]
    if again:
        yield "started again", visible(", ".join(again)), "bold yellow"
    if summary.steps_redone:
        yield "steps made again", f"{_whole(summary.steps_redone)}", "bold yellow"
    if summary.resumed_from:
        yield "goes on from", visible(summary.resumed_from), ""
    if summary.records_lost:
        yield "records lost", f"{summary.records_lost}", "bold red"


def table_of(columns: Sequence[str], rows: Iterable[Sequence[_Cell]]) -> Table:
    """A plain table; a column that begins with `>` is set flush right."""
    table = _table(*columns)
    for row in rows:
        # A text as such would be read as markup, and its brackets with it.
        table.add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in row))
    return table


def show(renderable: Any, *, to_stderr: bool = False) -> None:  # noqa: ANN401  (what rich draws)
    """Print to stdout, or to stderr; a file or a pipe gets wide lines, which wrap nowhere."""
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    Console(file=stream, width=width, highlight=False, soft_wrap=False).print(renderable)


def state_cell(state: str) -> Text:
    """A state in its colour."""
    return _state(State(state))


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if right else "left", no_wrap=True
        )
    return table


def _state(state: State) -> Text:
    return Text(state.value, style=STYLES[state])


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _seconds(value: float | None) -> str:
    """A tenth of a second counts in a short run, and is too wide for a long one."""
    if value is None:
        return ""
    return f"{value:.1f} s" if value < 999.95 else f"{value:,.0f} s"  # noqa: PLR2004


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
