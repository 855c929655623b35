"""The live table of a run under way.

All text from a task is sanitized here, and never interpreted as markup of rich.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lab.base.console import with_command_name
from lab.base.formatting import about, loss, percent, whole
from lab.base.tables import Cell, table_of
from lab.base.text import bounded, visible, wrapped
from lab.base.threads import signals_blocked
from lab.runner.program_output import prefixed
from lab.runner.result_table import state_cell
from lab.runner.store.run_info import RunInfo
from lab.runner.view import NOW, Clock, RunProgress, View

BAR_WIDTH: Final = 60
"""The maximum width of the progress bar, in characters."""

BESIDE_BAR: Final = 30
"""The width of the text beside the progress bar: `34 %, about 2 min left`."""

_LIVE: Final[Sequence[tuple[str, int]]] = (
    ("task", 8), ("state", 9), (">epoch", 5), (">local\nstep", 6), (">global\nstep", 7),
    (">steps/s", 7), (">loss", 6), (">gpu", 5), ("staleness", 10),
)  # fmt: skip
"""The columns of the live table with their minimum widths, so that the table stays steady.

They have 79 characters, to fit a terminal of 80. Tasks without GPUs have no column `gpu`.
"""

_GAP: Final = 2
"""The space between two columns, in characters."""

_LEFT_OUT: Final = (">steps/s", ">epoch", ">gpu")
"""The columns that a narrow terminal does not show, in this order."""


class LiveView(View):
    """A table that is updated in place: a row for each task, in fixed order.

    A thread of rich draws it four times a second. Errors of a closed terminal are ignored.
    """

    def __init__(
        self,
        info: RunInfo,
        console: Console,
        clock: Clock = NOW,
        title: str = "",
    ) -> None:
        """Start the clock of the run.

        Args:
            info: The content of the run's `run.json`.
            console: The terminal.
            clock: The clock of the run.
            title: What is shown; "": the run and its backend.
        """
        super().__init__(info, clock, title)
        self._began = clock.monotonic()
        self._clock_offset_s = clock.unix() - self._began
        self._console = console
        self._info = info
        self._run_progress = RunProgress(info)
        self._live = self._drawn()

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Receive new records of a task."""
        super().records(task, records)
        for record in records:
            self._run_progress.add(task, record)
        self._report_notices(task, records)

    def __enter__(self) -> Self:
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def pause(self) -> None:
        """Erase the table, and show the cursor."""
        with suppress(OSError):
            self._live.stop()

    def resume(self) -> None:
        """Draw the table at the cursor."""
        # The old `Live` would erase the lines at the old position of its table.
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

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Show lines of a task's program above the table."""
        text = Text("\n").join(
            Text.assemble((prefixed(task, self._width, ""), "dim"), line) for line in lines
        )
        with suppress(OSError):
            self._live.console.print(text)

    def show(self, line: str) -> None:
        """Show one line above the table."""
        with suppress(OSError):
            line = bounded(with_command_name(line))
            lines = wrapped(line, self._console.width, indent="  ")
            self._live.console.print(Text("\n".join(lines)), soft_wrap=True)

    def _render(self) -> Group:
        elapsed_s = self._clock.monotonic() - self._began
        head: list[RenderableType] = [Text(visible(f"{self._title}, {elapsed_s:.0f} s"))]
        # Whether a line is shown does not depend on the records, so the rows below stay in place.
        if self._run_progress.has_end or self._info.spec.max_time_s > 0:
            head.append(self._progress_line())
        return Group(*head, self._rows())

    def _progress_line(self) -> RenderableType:
        """Return the bar of the whole run, its per cent, and the time left."""
        share = self._run_progress.share(self._statuses)
        text = Text(self._time_left(share), no_wrap=True, overflow="crop")
        if share is None:
            return text
        width = max(min(BAR_WIDTH, self._console.width - BESIDE_BAR), 1)
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(ProgressBar(total=1, completed=share, width=width), text)
        return line

    def _time_left(self, share: float | None) -> str:
        """Return the share in per cent and the time to the end of the run: `34 %, 40 s left`."""
        parts = [percent(math.floor(100 * share) / 100)] if share is not None else []
        left_s = self._run_progress.left_s(self._statuses)
        limit_s = self._limit_s()
        if limit_s is not None and (left_s is None or limit_s < left_s):
            parts.append(f"time limit in {about(limit_s)}")
        elif share is None:
            parts.append("time left unknown until the first epoch ends")
        elif share == 0:  # no step is made: importing TensorFlow takes a minute on a small host
            parts.append("starting TensorFlow")
        elif left_s is not None and share < 1:
            parts.append(f"about {about(left_s)} left")
        return ", ".join(parts)

    def _limit_s(self) -> float | None:
        """Return the seconds until the time limit of the run; None without a limit."""
        limit_s, submitted = self._info.spec.max_time_s, self._info.submitted_unix
        if limit_s <= 0:
            return None
        # A run that this client submits begins with the view.
        began = submitted - self._clock_offset_s if submitted else self._began
        return max(limit_s - (self._clock.monotonic() - began), 0)

    def _rows(self) -> Table:
        columns = _fitting(
            [each for each in _LIVE if self._holds_gpus or each[0] != ">gpu"], self._console.width
        )
        names = [name for name, _ in columns]
        names[-1] = self._last_title
        rows = table_of(names)
        rows.expand = True
        for column, (_, width) in zip(rows.columns, columns, strict=True):
            column.min_width = width
        # If the table is too wide, only the last column is cut, and an ellipsis shows it. It also
        # takes the width that the others leave.
        rows.columns[-1].no_wrap = False
        rows.columns[-1].ratio = 1
        cut: OverflowMethod = "crop" if self._console.options.ascii_only else "ellipsis"
        for task, progress in self._progress.items():
            cells: dict[str, Cell] = {
                "task": Text(visible(task)),
                "state": state_cell(self._statuses[task].state),
                ">epoch": self._epoch(task),
                ">local\nstep": whole(progress.local_step),
                ">global\nstep": whole(progress.global_step),
                ">steps/s": self._rate(task),
                ">loss": loss(progress.loss),
                ">gpu": self._gpu(task),
                "staleness": Text(self._last(task), no_wrap=True, overflow=cut),
            }
            rows.add_row(*(cells[name] for name, _ in columns))
        return rows


def _fitting(columns: Sequence[tuple[str, int]], width: int) -> Sequence[tuple[str, int]]:
    """Return the columns of the live table that fit a terminal of this width."""
    shown = list(columns)
    for name in _LEFT_OUT:
        if sum(least for _, least in shown) + _GAP * (len(shown) - 1) <= width:
            break
        shown = [each for each in shown if each[0] != name]
    return shown
