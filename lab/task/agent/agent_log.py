"""An agent's log: its standard output, which the engine or the supervisor stores."""

from __future__ import annotations

import contextlib
import sys

from lab.base.text import bounded
from lab.protocol.volume.clock import stamp, unix_time
from lab.protocol.volume.files import write_all


class AgentLog:
    """Writes whole lines, one `write` each, so that lines of two threads do not mix.

    If the disk is full or the reader has ended, lines are dropped without an error, because the
    run must continue. The complete output is on the run volume.
    """

    def __init__(self, descriptor: int | None = None, *, stamped: bool = False) -> None:
        """Create a log.

        Args:
            descriptor: A file descriptor; standard output by default.
            stamped: Whether each line begins with the time. Container engines add it themselves.
        """
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._stamped = stamped

    def echo(self, data: bytes) -> None:
        """Write lines that are safe to show."""
        if self._stamped:
            now = stamp(unix_time()).encode()
            data = b"".join(now + b" " + line for line in data.splitlines(keepends=True))
        with contextlib.suppress(OSError):
            write_all(self._descriptor, data)

    def notify(self, line: str) -> None:
        """Write one line of the agent itself."""
        self.echo(f"lab: {bounded(line)}\n".encode())
