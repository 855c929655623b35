"""What an agent says to people: its standard output, which engines and supervisors keep."""

from __future__ import annotations

import contextlib
import sys
import time
from datetime import UTC, datetime

from lab.task.protocol.files import write_all
from lab.task.text import bounded


def stamp(unix: float) -> str:
    """A time in seconds since the epoch as `2026-11-21T14:25:14.123456Z`, which sorts as text."""
    at = datetime.fromtimestamp(unix, UTC)
    return at.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class AgentLog:
    """Writes whole lines, one `write` each, so that lines of two threads do not mix.

    It is a convenience: where nobody reads or the disk is full, lines are dropped in silence,
    because the run must go on. The truth lies on the run volume.
    """

    def __init__(self, descriptor: int | None = None, *, stamped: bool = False) -> None:
        """Where to write.

        Args:
            descriptor: A file descriptor; standard output by default.
            stamped: Begin each line with the time, where no engine keeps it with the line.
        """
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._stamped = stamped

    def echo(self, data: bytes) -> None:
        """Write lines that are safe to show."""
        if self._stamped:
            now = stamp(time.time()).encode()
            data = b"".join(now + b" " + line for line in data.splitlines(keepends=True))
        with contextlib.suppress(OSError):
            write_all(self._descriptor, data)

    def notify(self, line: str) -> None:
        """One line of the agent's own."""
        self.echo(f"lab: {bounded(line)}\n".encode())
