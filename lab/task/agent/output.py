"""A program's output: records to one file, every other line to another, a safe copy to people.

A listing writes no records. What its prints say becomes *derived* records, and the prints stay in
the log as well. A derived record has no `seq`: the agent itself reads the pipe that the line came
through, so that none can get lost on the way, and a program's own count goes on undisturbed.

The agent is the only writer of its task's files. It reads the program's pipe to the end, whatever
comes: a line that is too long is split where everybody can see it, bytes that are no text are kept
as they are, and where the volume refuses to be written the pipe is still emptied, so that the
program does not stand still in a `print`.
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
from typing import Final

from lab.records import PREFIX, Record, RecordError, parse_record
from lab.task.agent.appender import AppendedContent, Appender
from lab.task.agent.echo import NOTICE, TensorFlowLines, readable
from lab.task.agent.log_parsers import READY, read_listing
from lab.task.agent.record_tags import RecordTags
from lab.task.protocol import LOST_CONTACT
from lab.task.protocol.error_line import ErrorLineFinder
from lab.task.text import short, visible

MAX_LINE_BYTES = 20_000
SPLIT_MARK = "…[line split]".encode()

_READ_BYTES = 256 * 1024
_POLL_MS = 200

_PREFIX = PREFIX.encode()
_LAST_LINES = 3
_TRAINING = frozenset({"step", "epoch"})
STARTING: Final = "starting"
"""The status of a `start` record whose program is not ready yet, and will say so."""


class Lines:
    """Bytes in, whole lines out, none longer than `MAX_LINE_BYTES` and its mark."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Lines that are complete now, without their line ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from _split(line)
        while len(self._rest) > MAX_LINE_BYTES:
            yield self._rest[:MAX_LINE_BYTES] + SPLIT_MARK
            self._rest = self._rest[MAX_LINE_BYTES:]

    def close(self) -> Iterator[bytes]:
        """The last line, if it had no line end."""
        if self._rest:
            yield from _split(self._rest)
        self._rest = b""


def _split(line: bytes) -> Iterator[bytes]:
    while len(line) > MAX_LINE_BYTES:
        yield line[:MAX_LINE_BYTES] + SPLIT_MARK
        line = line[MAX_LINE_BYTES:]
    yield line


class Output(threading.Thread):
    """Reads a program's pipe until its end.

    Attributes:
        started: Whether the program is ready: a record of it says so, or that it has started, and
            not that it is still `starting`; or TensorFlow has said that its server has started.
        training: Whether it has sent, or printed like a listing, a step or an epoch.
        fault: Why its output could no longer be written, or None.
        records_lost: The number of records that could not be written; known at the end.
        error_lines: Reads the log for what made the program fail.
        global_step: The highest that a record has told, or None.
        stepped_unix: When that one came, in seconds since the epoch, or None.
        message: What the newest event says; empty from the first step on.
        altered: Whether another process changed its records or its log; known at the end.
        lost_contact: Whether the program says that another task was gone.
        last_lines: The last lines that it printed and that are no records, safe to show.
    """

    def __init__(
        self,
        descriptor: int,
        records: Path,
        log: Path,
        echo: Callable[[bytes], None],
        identity: RecordTags,
        *,
        written: tuple[AppendedContent, AppendedContent] | None = None,
    ) -> None:
        """Open the files; the program has just been started.

        Args:
            descriptor: The reading end of the program's pipe; closed at the end.
            records: Where records go, one JSON object a line.
            log: Where all other lines go, verbatim.
            echo: Receives a copy for people, whole lines without control characters.
            identity: Whose program it is; its records say so.
            written: What earlier attempts have put into records and log; None: nothing.

        Raises:
            OSError: A file could not be opened.
        """
        super().__init__(name="output", daemon=True)
        self._descriptor = descriptor
        of_records, of_log = written or (AppendedContent(), AppendedContent())
        self._records = Appender(records, of_records)
        try:
            self._log = Appender(log, of_log)
        except OSError:
            self._records.close()
            raise
        self._echo = echo
        self._identity = identity
        self._began = time.monotonic()
        self._writes_records = False
        self._of_tensorflow = TensorFlowLines()
        self._has_noted = False  # that TensorFlow's own lines are not shown
        self._give_up_at: float | None = None
        self._writing = threading.Lock()
        self._closed = False
        self.started = False
        self.training = False
        self.fault: OSError | None = None
        self.records_lost = 0
        self.error_lines = ErrorLineFinder()
        self.global_step: int | None = None
        self.stepped_unix: float | None = None
        self.message = ""
        self.altered = False
        self.lost_contact = False
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    def finish(self, within_s: float) -> None:
        """Wait for the end of the pipe, but no longer than this; the files are closed then."""
        self._give_up_at = time.monotonic() + within_s
        self.join()

    def run(self) -> None:
        """Read, sort, write."""
        lines = Lines()
        try:
            for data in self._pieces():
                self._process_lines(list(lines.feed(data)))
            self._process_lines(list(lines.close()))
        finally:
            os.close(self._descriptor)
            self._write_buffered()
            with self._writing:
                self._closed = True
                for file in (self._records, self._log):
                    try:
                        file.close()
                    except OSError as error:
                        self.fault = self.fault or error
                self.records_lost = self._records.lost
                self.altered = self._records.altered or self._log.altered

    def _pieces(self) -> Iterator[bytes]:
        os.set_blocking(self._descriptor, False)
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        # Looked at last: what is in the pipe when the time is over is read once more.
        while True:
            if poll.poll(_POLL_MS):
                data = os.read(self._descriptor, _READ_BYTES)
                if not data:
                    return
                yield data
            else:
                self._append(b"", b"")  # try the buffered lines again
            if self._give_up_at is not None and time.monotonic() > self._give_up_at:
                return

    def _process_lines(self, lines: list[bytes]) -> None:
        now, elapsed_s = time.time(), time.monotonic() - self._began
        records, log, echo = bytearray(), bytearray(), bytearray()
        for line in lines:
            shown = line
            begun, line = self._split_record(line)  # noqa: PLW2901
            # Its writer goes on behind the record, so that the log has it in one piece again.
            log += begun
            record = self._record(line)
            if record is None:
                log += line + b"\n"
                self.error_lines.feed(line)
                if arguments := short(line):
                    self.last_lines.append(arguments)
                record = self._derived(line)
                people = self._for_people(shown, record)
            else:
                people = readable(record)
            if record is not None:
                self._follow(record, now)
                signed = self._identity.complete(record, now, elapsed_s)
                records += json.dumps(signed).encode() + b"\n"
            if people:
                echo += people.encode() + b"\n"
        self._append(bytes(records), bytes(log))
        if echo:
            self._echo(bytes(echo))

    def _for_people(self, line: bytes, derived: Record | None) -> str:
        """A line that is no record, as people see it; "" where they see nothing."""
        if not self._of_tensorflow.has(line):
            return visible(line.removesuffix(b"\r")) or " "
        if derived is not None:
            return readable(derived)
        notice = "" if self._has_noted else NOTICE
        self._has_noted = True
        return notice

    def note(self, message: str) -> None:
        """Add an event of the agent's own to the records; nothing once they are closed."""
        event: Record = {"kind": "event", "message": message}
        signed = self._identity.complete(event, time.time(), time.monotonic() - self._began)
        self._append(json.dumps(signed).encode() + b"\n", b"")
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

    def _follow(self, record: Record, now: float) -> None:
        """What the others have to know of where this task stands."""
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
        """Part a record from what another writer of the same pipe had begun before it.

        A record is one write; what a library logs piece by piece may be under way when it comes.
        Only a record that this very program signed is taken out of a line.

        Returns:
            What stands before the record, and the rest of the line; nothing and the whole line
            where there is no such record.
        """
        at = line.find(_PREFIX, 1)
        while at > 0:
            record = _parse(line[at:])
            if record is not None and self._identity.is_complete(record):
                return line[:at], line[at:]
            at = line.find(_PREFIX, at + 1)
        return b"", line

    def _record(self, line: bytes) -> Record | None:
        """A record; None for a line that is none, or a broken one."""
        record = _parse(line)
        if record is None:
            return None
        # One that tells events alone may well print its steps, as a listing does.
        self._writes_records = self._writes_records or record["kind"] != "event"
        self.started = self.started or _is_ready(record)
        self.training = self.training or record["kind"] in _TRAINING
        return record

    def _derived(self, line: bytes) -> Record | None:
        """What a line says in a listing's format, or in TensorFlow's; None for any other line."""
        record = read_listing(line)
        if record is None:
            return None
        if record["kind"] == "event":
            self.started = self.started or record.get("status") == READY
        elif self._writes_records:
            return None  # it says the same in its own records, and would be counted twice
        else:
            self.training = self.training or record["kind"] in _TRAINING
        return record


def _parse(line: bytes) -> Record | None:
    """The record that a line is; None for any other line, and for a broken one."""
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
