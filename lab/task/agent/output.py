"""A program's output: records go to one file, all other lines to the log, a safe copy to `echo`.

A listing writes no records. The agent reads *derived* records from its printed lines, and the
lines stay in the log too. A derived record has no `seq`: the agent itself reads the pipe, so no
line can be lost, and the program's own numbering stays intact.

The agent is the only writer of its task's files. It always reads the program's pipe to the end. A
line that is too long is split with a visible mark. Bytes that are not text are kept. If the volume
refuses writes, the agent still empties the pipe, so that the program does not block in a `print`.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.records import PREFIX, Record, RecordError, parse_record
from lab.records.echo import NOTICE, TensorFlowLines, readable
from lab.records.error_line import ErrorLineFinder
from lab.records.log_parsers import READY, LogParser
from lab.task.agent.appender import Appender
from lab.task.agent.record_tags import RecordTags
from lab.text import MAX_LINE_BYTES, SPLIT_MARK, printed, short, visible
from lab.volume import LOST_CONTACT
from lab.volume.clock import unix_time

if TYPE_CHECKING:
    from hashlib import _Hash

_MARK: Final = SPLIT_MARK.encode()

_READ_BYTES = 256 * 1024
_POLL_MS = 200

_PREFIX = PREFIX.encode()
_LAST_LINES = 3
_TRAINING = frozenset({"step", "epoch"})
STARTING: Final = "starting"
"""The status of a `start` record of a program that is not ready yet, and reports it later."""


class Lines:
    """Splits bytes into whole lines of at most `MAX_LINE_BYTES`, plus a mark."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are now complete, without line ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from _split(line)
        while len(self._rest) > MAX_LINE_BYTES:
            yield self._rest[:MAX_LINE_BYTES] + _MARK
            self._rest = self._rest[MAX_LINE_BYTES:]

    def close(self) -> Iterator[bytes]:
        """The last line, if it had no line end."""
        if self._rest:
            yield from _split(self._rest)
        self._rest = b""


def _split(line: bytes) -> Iterator[bytes]:
    while len(line) > MAX_LINE_BYTES:
        yield line[:MAX_LINE_BYTES] + _MARK
        line = line[MAX_LINE_BYTES:]
    yield line


class Output(threading.Thread):
    """Reads a program's pipe until its end.

    Attributes:
        started: Whether the program is ready: it sent a record with the status `ready`, or a
            `start` record without the status `starting`, or TensorFlow's server has started.
        training: Whether it has sent, or printed like a listing, a step or an epoch.
        fault: The error if its output could no longer be written, or None.
        records_lost: The number of records that could not be written; known at the end.
        own_lines: The number of its lines, without TensorFlow's own.
        error_lines: Finds the error message of a failed program in the log.
        global_step: The highest global step in its records, or None.
        stepped_unix: When this step arrived, in seconds since the epoch, or None.
        message: The message of the newest event; empty after the first step.
        lost_contact: Whether the program's final record reports the loss of another task.
        last_own_line: The last printed line that is neither a record nor TensorFlow's own; safe.
        last_lines: The last printed lines that are not records, safe to show.
    """

    def __init__(
        self,
        descriptor: int,
        records: Path,
        log: Path,
        echo: Callable[[bytes], None],
        tags: RecordTags,
        *,
        folder: str = "",
        shown_folder: str = "",
        record: str = "",
        digest: _Hash | None = None,
    ) -> None:
        """Open the files; the program has just been started.

        Args:
            descriptor: The reading end of the program's pipe; closed at the end.
            records: The file for records, one JSON object per line.
            log: The file for all other lines, unchanged.
            echo: Called with a readable copy: whole lines without control characters.
            tags: The run, attempt and task; they are added to the records.
            folder: The program's directory; errors are shown with the place in it.
            shown_folder: How the user names this directory.
            record: The regular expression that makes records of printed lines, or "".
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
        self._tags = tags
        self._began = time.monotonic()
        self._began_unix = unix_time()
        self._writes_records = False
        self._parser = LogParser(record)
        self._is_cut = False  # the newest line was split
        self._tensorflow_lines = TensorFlowLines()
        self._notice_shown = False  # the notice about TensorFlow's hidden lines
        self._deadline: float | None = None
        self._writing = threading.Lock()
        self._may_close = threading.Event()
        self._closed = False
        self.started = False
        self.training = False
        self.fault: OSError | None = None
        self.records_lost = 0
        self.own_lines = 0
        self.last_own_line = ""
        self.error_lines = ErrorLineFinder(folder, shown_folder)
        self.global_step: int | None = None
        self.stepped_unix: float | None = None
        self.message = ""
        self.lost_contact = False
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)

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
            self._write_buffered()
            self._may_close.wait()
            self._write_buffered()
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
        elapsed_s = time.monotonic() - self._began
        now = self._began_unix + elapsed_s  # a change of the clock does not count
        records, log, echo = bytearray(), bytearray(), bytearray()
        for line in lines:
            whole = line
            prefix, line = self._split_record(line)  # noqa: PLW2901
            # The other writer's line continues after the record, so the log gets it in one piece.
            log += prefix
            record = self._record(line)
            if record is None:
                log += line + b"\n"
                self.error_lines.feed(line)
                if text := short(printed(line)):
                    self.last_lines.append(text)
                record = self._derived(line)
                shown = self._terminal_line(whole, record)
            else:
                shown = readable(record)
                self.own_lines += 1
            if record is not None:
                self._update_progress(record, now)
                tagged = self._tags.complete(record, now, elapsed_s)
                records += json.dumps(tagged).encode() + b"\n"
            if shown:
                echo += shown.encode() + b"\n"
        self._append(bytes(records), bytes(log))
        if echo:
            self._echo(bytes(echo))

    def _terminal_line(self, line: bytes, derived: Record | None) -> str:
        """A line that is not a record, as a terminal shows it; "" if it is hidden."""
        if not self._tensorflow_lines.has(line):
            self.own_lines += 1
            self.last_own_line = short(printed(line).strip()) or self.last_own_line
            return printed(line) or " "
        if derived is not None:
            return readable(derived)
        notice = "" if self._notice_shown else NOTICE
        self._notice_shown = True
        return notice

    def note(self, message: str) -> None:
        """Add an event of the agent to the records; do nothing if they are closed."""
        event: Record = {"kind": "event", "message": message}
        elapsed_s = time.monotonic() - self._began
        tagged = self._tags.complete(event, self._began_unix + elapsed_s, elapsed_s)
        self._append(json.dumps(tagged).encode() + b"\n", b"")
        self._echo(visible(message).encode() + b"\n")

    def _append(self, records: bytes, log: bytes) -> None:
        with self._writing:
            if self._closed:
                return
            for file, data in ((self._records, records), (self._log, log)):
                file.append(data)
                self.fault = self.fault or file.fault

    def _write_buffered(self) -> None:
        """Write the buffered lines at the end, or give up after `REFUSED_S`."""
        while self.fault is None and (self._records.is_waiting or self._log.is_waiting):
            time.sleep(_POLL_MS / 1000)
            self._append(b"", b"")

    def _update_progress(self, record: Record, now: float) -> None:
        """Update the progress from a record."""
        step = record.get("global_step")
        if isinstance(step, int) and (self.global_step is None or step > self.global_step):
            self.global_step, self.stepped_unix = step, now
        if record["kind"] in _TRAINING:
            self.message = ""
        elif record["kind"] == "final":
            self.lost_contact = str(record.get("message", "")).startswith(LOST_CONTACT)
        elif record["kind"] == "event":
            self.message = short(str(record.get("message", "")))

    def _split_record(self, line: bytes) -> tuple[bytes, bytes]:
        """Separate a record from another writer's text before it in the same line.

        A record is one write. A library may log a line in pieces, and a record can arrive between
        them. Only a record with the tags of this program is separated.

        Returns:
            The text before the record, and the record; b"" and the whole line if there is none.
        """
        at = line.find(_PREFIX, 1)
        while at > 0:
            record = _parse(line[at:])
            if record is not None and self._tags.is_complete(record):
                return line[:at], line[at:]
            at = line.find(_PREFIX, at + 1)
        return b"", line

    def _record(self, line: bytes) -> Record | None:
        """The record in a line; None if there is none, or an invalid one."""
        record = _parse(line)
        if record is None:
            return None
        # A program with only event records may print its steps as a listing does.
        self._writes_records = self._writes_records or record["kind"] != "event"
        self.started = self.started or _is_ready(record)
        self.training = self.training or record["kind"] in _TRAINING
        return record

    def _derived(self, line: bytes) -> Record | None:
        """The record of a line in a listing's or TensorFlow's format; None for other lines."""
        is_rest, self._is_cut = self._is_cut, line.endswith(_MARK)
        if self._is_cut:
            return None
        if is_rest:  # of a line that was overwritten; its first state began in the part before
            line = line.partition(b"\r")[2]
        record = self._parser.read(line)
        if record is None:
            return None
        if record["kind"] == "event":
            self.started = self.started or record.get("status") == READY
        elif self._writes_records:
            return None  # the program's own records contain it; it would count twice
        else:
            self.training = self.training or record["kind"] in _TRAINING
        return record


def _parse(line: bytes) -> Record | None:
    """The record in a line; None for other lines and for invalid records."""
    if not line.startswith(_PREFIX):
        return None
    try:
        return parse_record(line.decode())
    except (RecordError, UnicodeDecodeError):
        return None


def _is_ready(record: Record) -> bool:
    if record["kind"] == "start":
        return record.get("status") != STARTING
    return record.get("status") == READY
