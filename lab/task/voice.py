"""What an agent says to people: its standard output, which engines and supervisors keep."""

from __future__ import annotations

import contextlib
import os
import sys

from lab.task.text import visible


class Voice:
    """Writes whole lines, one `write` each, so that lines of two threads do not mix.

    It is a convenience: where nobody reads or the disk is full, lines are dropped in silence,
    because the run must go on. The truth lies on the run volume.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor

    def echo(self, data: bytes) -> None:
        """Write lines that are safe to show."""
        view = memoryview(data)
        with contextlib.suppress(OSError):
            while view:
                view = view[os.write(self._descriptor, view) :]

    def say(self, line: str) -> None:
        """One line of the agent's own."""
        self.echo(f"lab: {visible(line)}\n".encode())
