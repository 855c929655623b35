"""The doctor's findings on a terminal: a line each as they come, grouped by area."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import wrap
from typing import Final

from rich.console import Console
from rich.text import Text

from lab.doctor.model import Finding, Report, Verdict
from lab.task.text import visible

STYLES: Final[Mapping[Verdict, str]] = {
    Verdict.OK: "green",
    Verdict.WARNING: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.SKIPPED: "dim",
}
_VERDICT: Final = max(map(len, Verdict))
_NAME: Final = 18
_NARROWEST: Final = 20


class View:
    """Writes to stdout; on a terminal a last line says what is looked at now."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._area = ""

    @contextmanager
    def watching(self) -> Iterator[Callable[[str], None]]:
        """While this lasts, what it is told is shown below the findings."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            yield lambda _: None
            return
        with self._console.status("looking") as status:
            yield lambda what: status.update(Text(f"looking at {what}"))

    def show(self, findings: Iterable[Finding]) -> list[Finding]:
        """Show findings as they come, and return them all."""
        shown = []
        for finding in findings:
            if finding.area != self._area:
                if self._area:
                    self._console.print()
                self._console.print(Text(finding.area, style="bold"))
                self._area = finding.area
            width = self._console.width if self._console.is_terminal else None
            for line in lines(finding, width):
                self._console.print(line)
            shown.append(finding)
        return shown

    def end(self, report: Report) -> None:
        """Show what they come to."""
        self._console.print()
        self._console.print(Text(visible(report.sentence()), style="bold"))


def lines(finding: Finding, width: int | None) -> Iterator[Text]:
    """A finding, and below it its mend.

    Args:
        finding: What to show.
        width: Columns of the terminal; None where nothing is to be wrapped.
    """
    indent = " " * (2 + _VERDICT + 1 + _NAME + 1)
    verdict = Text(f"  {finding.verdict:<{_VERDICT}} ", style=STYLES[finding.verdict])
    faint = "dim" if finding.verdict is Verdict.SKIPPED else ""
    begin = verdict.append(f"{visible(finding.name):<{_NAME}} ", style="default")
    for line in _wrapped(visible(finding.what), width, len(indent)):
        yield begin.append(line, style=faint or "default")
        begin = Text(indent)
    if finding.mend:
        begin = Text(f"{indent}→ ", style="cyan")
        for line in _wrapped(visible(finding.mend), width, len(indent) + 2):
            yield begin.append(line)
            begin = Text(f"{indent}  ", style="cyan")


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    """Words are never broken, so that a path or a word of a command can be copied."""
    if width is None:
        return [text]
    room = max(_NARROWEST, width - indent)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
