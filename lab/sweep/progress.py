"""What a user sees of a sweep that is under way: a line for each run, and how much is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from lab.backends import Say
from lab.formatting import number
from lab.run.lifecycle import NoView
from lab.sweep.made import Made
from lab.task.text import LONGEST_REASON, short, visible


class Watcher(NoView):
    """A view that passes on what is to be noticed, and nothing else."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def notice(self, line: str) -> None:
        """One line for the user."""
        self._say(line)


class Counter:
    """Counts the runs that have ended, and says what each came to."""

    def __init__(self, of: int, say: Say, bar: Progress | None) -> None:
        self.say = say
        self._of = of
        self._done = 0
        self._bar = bar
        self._row = None if bar is None else bar.add_task("", total=of)

    def begin(self, line: str) -> None:
        """Say which run comes."""
        if self._bar is not None and self._row is not None:
            self._bar.update(self._row, description=visible(line))

    def end(self, made: Made) -> None:
        """Say what it came to."""
        self._done += 1
        if self._bar is not None and self._row is not None:
            self._bar.advance(self._row)
        figures = made.figures() if made.succeeded else {}
        told = ", ".join(f"{name} {number(round(value, 4))}" for name, value in figures.items())
        reason = f" ({short(made.summary.reason, LONGEST_REASON)})" if made.summary.reason else ""
        came = (
            told if made.succeeded else f"{made.summary.state}{reason}, see {made.summary.run_id}"
        )
        self.say(f"{self._done}/{self._of} {made.point.line()}: {came}")


@contextmanager
def counting(of: int, say: Say) -> Iterator[Counter]:
    """A counter of so many runs; on a terminal a bar stays below the lines."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield Counter(of, say, None)
        return
    columns = (
        MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        yield Counter(of, lambda line: console.print(Text(visible(line))), bar)
