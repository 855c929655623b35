"""A program's output: records go to one file, all other lines to the log, a safe copy to `echo`.

The agent is the only writer of its task's files. It always reads the program's pipe to the end. A
line that is too long is split with a visible mark. Bytes that are not text are kept. If the volume
refuses writes, the agent still empties the pipe, so that the program does not block in a `print`.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.base.text import visible
from lab.protocol.volume.clock import unix_time
from lab.protocol.volume.files import REFUSED_S, Patience, append_whole
from lab.task.agent.output_parser import Lines, OutputParser

if TYPE_CHECKING:
    from hashlib import _Hash

_READ_BYTES = 256 * 1024
_POLL_MS = 200

BUFFER_BYTES: Final = 16 * 2**20
"""Bytes of one file that are buffered. Lines beyond that are dropped and counted."""


class Output(threading.Thread):
    """Reads a program's pipe until its end.

    Attributes:
        parser: What the lines report so far.
        fault: The error if its output could no longer be written, or None.
        records_lost: The number of records that could not be written; known at the end.
    """

    def __init__(
        self,
        descriptor: int,
        records: Path,
        log: Path,
        parser: OutputParser,
        echo: Callable[[bytes], None],
        *,
        digest: _Hash | None = None,
    ) -> None:
        """Open the files; the program has just been started.

        Args:
            descriptor: The reading end of the program's pipe; closed at the end.
            records: The file for records, one JSON object per line.
            log: The file for all other lines, unchanged.
            parser: Sorts the lines.
            echo: Called with a readable copy: whole lines without control characters.
            digest: The digest of the records of earlier attempts; each new record updates it.

        Raises:
            OSError: A file cannot be opened.
        """
        super().__init__(name="output", daemon=True)
        self._descriptor = descriptor
        self._records = Appender(records, digest)
        try:
            self._log = Appender(log)
        except OSError:
            self._records.close()
            raise
        self._echo = echo
        self._began = time.monotonic()
        self._began_unix = unix_time()
        self._deadline: float | None = None
        self._writing = threading.Lock()
        self._may_close = threading.Event()
        self._closed = False
        self.parser = parser
        self.fault: OSError | None = None
        self.records_lost = 0

    def finish(self, within_s: float, beat: Callable[[], None] = lambda: None) -> None:
        """Wait until the pipe has ended, at most this long, and the files are closed.

        Args:
            within_s: Seconds until the pipe counts as ended.
            beat: Called while it waits: a slow disk may take minutes for a large file.
        """
        self._deadline = time.monotonic() + within_s
        self._may_close.set()
        while self.is_alive():
            beat()
            self.join(_POLL_MS / 1000)

    def run(self) -> None:
        """Read the pipe and write its lines to the files, until the end.

        The files stay open until `finish`: the pipe ends as soon as a fault kills the program, and
        the agent adds the fault to the records after that.
        """
        lines = Lines()
        try:
            for data in self._pieces():
                self._process_lines(list(lines.feed(data)))
            self._process_lines(list(lines.close()))
        finally:
            os.close(self._descriptor)
            self._may_close.wait()
            # The program has ended: give up after `REFUSED_S`.
            while self.fault is None and (self._records.is_waiting or self._log.is_waiting):
                time.sleep(_POLL_MS / 1000)
                self._append(b"", b"")
            self._close()

    def _close(self) -> None:
        with self._writing:
            self._closed = True
            for file in (self._records, self._log):
                try:
                    file.close()
                except OSError as error:
                    self.fault = self.fault or error
            self.records_lost = self._records.lost

    def _pieces(self) -> Iterator[bytes]:
        os.set_blocking(self._descriptor, False)
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        # The deadline is checked last, so that data in the pipe at this time is still read.
        while True:
            if poll.poll(_POLL_MS):
                data = os.read(self._descriptor, _READ_BYTES)
                if not data:
                    return
                yield data
            else:
                self._append(b"", b"")  # try the buffered lines again
            if self._deadline is not None and time.monotonic() > self._deadline:
                return

    def _process_lines(self, lines: list[bytes]) -> None:
        parsed = self.parser.parse(lines, *self._now())
        self._append(parsed.records, parsed.log)
        if parsed.echo:
            self._echo(parsed.echo)

    def _now(self) -> tuple[float, float]:
        """The time in seconds since the epoch, and since the start.

        A change of the clock since the start does not count.
        """
        elapsed_s = time.monotonic() - self._began
        return self._began_unix + elapsed_s, elapsed_s

    def note(self, message: str) -> None:
        """Add an event of the agent to the records; do nothing if they are closed."""
        self._append(self.parser.event(message, *self._now()), b"")
        self._echo(visible(message).encode() + b"\n")

    def _append(self, records: bytes, log: bytes) -> None:
        with self._writing:
            if self._closed:
                return
            for file, data in ((self._records, records), (self._log, log)):
                file.append(data)
                self.fault = self.fault or file.fault


class Appender:
    """A file that only grows, by whole lines even if the disk is full.

    The volume may be full, or a disk fault has made it read-only. The program continues meanwhile.
    The lines are buffered in memory, and written in order as soon as the volume accepts them. The
    task fails if that takes longer than `REFUSED_S`. The client checks the records that it has
    collected by the running digest.

    Attributes:
        lost: The number of lines that were dropped, or were still buffered at `close`.
    """

    def __init__(self, path: Path, digest: _Hash | None = None) -> None:
        """Open the file.

        Args:
            path: The file's path.
            digest: The digest of the content so far; each append updates it. None: none is needed.

        Raises:
            OSError: It cannot be opened, for example because it is a directory or a link.
        """
        self._digest = digest
        self._waiting = bytearray()
        self._patience = Patience(REFUSED_S)
        self._error: OSError | None = None
        self._is_torn = False  # the file may end with an incomplete line
        self.lost = 0
        path.parent.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o644)
        self._size = os.fstat(self._descriptor).st_size

    @property
    def fault(self) -> OSError | None:
        """The last error, if writes have failed for `REFUSED_S`; otherwise None."""
        return self._error if self._patience.is_over else None

    @property
    def is_waiting(self) -> bool:
        """Whether lines are buffered."""
        return bool(self._waiting)

    def append(self, data: bytes) -> None:
        """Write whole lines now, or buffer them."""
        if len(self._waiting) + len(data) > BUFFER_BYTES:
            self.lost += data.count(b"\n")
        else:
            self._waiting += data
        self.flush()

    def flush(self) -> None:
        """Try to write the buffered lines."""
        if not self._waiting:
            return
        try:
            self._take_back()
            self._is_torn = True
            append_whole(self._descriptor, bytes(self._waiting), self._size)
        except OSError as error:
            self._error = error
            self._patience.fail(error)
            return
        self._is_torn = False
        self._size += len(self._waiting)
        if self._digest is not None:
            self._digest.update(self._waiting)
        self._waiting.clear()
        self._error = None
        self._patience.succeed()

    def close(self) -> None:
        """Flush the file to the disk, and close it. Lines that are still buffered are lost.

        Raises:
            OSError: Lines are lost, or the disk refused the file.
        """
        self.flush()
        self.lost += self._waiting.count(b"\n")
        try:
            self._take_back()
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)
        if self._waiting and self._error is not None:
            raise self._error

    def _take_back(self) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self._size)
            self._is_torn = False
