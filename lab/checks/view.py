"""Print outcomes to stdout, grouped by area, each as soon as it is known."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.text import Text

from lab.backends.checks import Outcome, Status
from lab.base.console import with_command_name
from lab.base.text import visible, wrapped
from lab.checks.report import Report

STYLES: Final[Mapping[Status, str]] = {
    Status.OK: "green",
    Status.WARNING: "yellow",
    Status.FAILED: "bold red",
    Status.SKIPPED: "dim",
}
_STATUS: Final = max(map(len, Status))
_NAME: Final = 18
_NARROWEST: Final = 20


class View:
    """Prints to stdout. On a terminal, a last line shows the running check."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._area = ""

    @contextmanager
    def watching(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that shows the name of the running check below the outcomes."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            yield lambda _: None
            return
        with self._console.status("checking") as status:
            yield lambda what: status.update(Text(f"checking {what}"))

    def show(self, outcome: Outcome) -> None:
        """Print an outcome, below the name of its area."""
        if outcome.area != self._area:
            if self._area:
                self._console.print()
            self._console.print(Text(outcome.area, style="bold"))
            self._area = outcome.area
        width = self._console.width if self._console.is_terminal else None
        for line in lines(outcome, width):
            self._console.print(line)

    def end(self, report: Report) -> None:
        """Print the summary."""
        self._console.print()
        self._console.print(Text(visible(report.sentence()), style="bold"))


def lines(outcome: Outcome, width: int | None) -> Iterator[Text]:
    """Yield the lines of an outcome: what was found, and below it the fix.

    Args:
        outcome: What to show.
        width: The columns of the terminal; None to leave lines unwrapped.
    """
    indent = " " * (2 + _STATUS + 1 + _NAME + 1)
    status = Text(f"  {outcome.status:<{_STATUS}} ", style=STYLES[outcome.status])
    faint = "dim" if outcome.status is Status.SKIPPED else ""
    begin = status.append(f"{visible(outcome.where):<{_NAME}} ", style="default")
    for line in _wrapped(visible(outcome.what), width, len(indent)):
        yield begin.append(line, style=faint or "default")
        begin = Text(indent)
    if outcome.fix:
        begin = Text(f"{indent}→ ", style="cyan")
        for line in _wrapped(visible(with_command_name(outcome.fix)), width, len(indent) + 2):
            yield begin.append(line)
            begin = Text(f"{indent}  ", style="cyan")


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    return [text] if width is None else wrapped(text, max(_NARROWEST, width - indent))
