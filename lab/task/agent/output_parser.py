"""The lines of a program: records, lines of its log, and what they report about its progress.

A listing writes no records. *Derived* records are read from its printed lines, and the lines stay
in the log too. A derived record has no `seq`: the agent itself reads the pipe, so no line can be
lost, and the program's own numbering stays intact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lab.base.text import MAX_LINE_BYTES, SPLIT_MARK, printed, short
from lab.protocol.records import FIELDS, PREFIX, Record, RecordError, Value, parse_record
from lab.protocol.records.echo import NOTICE, TensorFlowLines, readable
from lab.protocol.records.error_line import ErrorLineFinder
from lab.protocol.records.log_parsers import READY, LogParser
from lab.protocol.volume.layout import LOST_CONTACT

_MARK: Final = SPLIT_MARK.encode()
_PREFIX: Final = PREFIX.encode()
_TRAINING: Final = frozenset({"step", "epoch"})
_TAGS: Final = frozenset({"attempt", "time_unix", "elapsed_s"})
"""The fields that are added to a record that lacks them."""

STARTING: Final = "starting"
"""The status of a `start` record of a program that is not ready yet, and reports it later."""


@dataclass(frozen=True, slots=True)
class RecordTags:
    """The tags of one start of one task's program.

    Attributes:
        run: The run's id.
        attempt: 0 for the first start of the program, one more for each restart.
        job_name: The task's job.
        task_index: The task's index in its job.
    """

    run: str
    attempt: int
    job_name: str
    task_index: int

    def complete(self, record: Record, time_unix: float, elapsed_s: float) -> Record:
        """Complete a record; a complete one is returned unchanged.

        Run, job and index are always the task's own, whatever the program wrote. Other missing
        fields are added, except `seq`: only the writer of a record can number it.

        Args:
            record: The program's record, or one that was read from a printed line.
            time_unix: When it was read, in seconds since the epoch.
            elapsed_s: Seconds from the program's start until then.
        """
        if self.is_complete(record):
            return record
        missing: dict[str, Value] = {
            "attempt": self.attempt,
            "time_unix": round(time_unix, 3),
            "elapsed_s": round(elapsed_s, 6),
        }
        whole = {**missing, **record, **self._own()}
        return {name: whole[name] for name in FIELDS if name in whole}

    def is_complete(self, record: Record) -> bool:
        """Whether the record is complete: the recorder of this task's program wrote it."""
        # Only the recorder writes all these fields, and most records come from it.
        return self._own().items() <= record.items() and record.keys() >= _TAGS

    def _own(self) -> dict[str, Value]:
        return {"run": self.run, "job_name": self.job_name, "task_index": self.task_index}


class Lines:
    """Splits bytes into whole lines of at most `MAX_LINE_BYTES`, plus a mark."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are now complete, without line ends."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from _split(line)
        *parts, self._rest = _split(rest)
        yield from parts

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


class Parsed(NamedTuple):
    """The lines of a program, sorted into parts of whole lines.

    Attributes:
        records: One JSON object per line.
        log: All other lines, unchanged.
        echo: A readable copy without control characters.
    """

    records: bytes
    log: bytes
    echo: bytes


class OutputParser:
    """Sorts the lines of one start of a program, and remembers what they report.

    Attributes:
        started: Whether the program is ready: it sent a record with the status `ready`, or a
            `start` record without the status `starting`, or TensorFlow's server has started.
        training: Whether it has sent, or printed like a listing, a step or an epoch.
        own_lines: The number of its lines, without TensorFlow's own.
        error_lines: Finds the error message of a failed program in the log.
        global_step: The highest global step in its records, or None.
        stepped_unix: When this step arrived, in seconds since the epoch, or None.
        message: The message of the newest event; empty after the first step.
        lost_contact: Whether the program's final record reports the loss of another task.
        last_own_line: The last printed line that is neither a record nor TensorFlow's own; safe.
    """

    def __init__(
        self, tags: RecordTags, *, folder: str = "", shown_folder: str = "", record: str = ""
    ) -> None:
        """Start before the first line.

        Args:
            tags: The run, attempt and task; they are added to the records.
            folder: The program's directory; errors are shown with the place in it.
            shown_folder: How the user names this directory.
            record: The regular expression that makes records of printed lines, or "".
        """
        self._tags = tags
        self._writes_records = False
        self._parser = LogParser(record)
        self._is_cut = False  # the newest line was split
        self._tensorflow_lines = TensorFlowLines()
        self._notice_shown = False  # the notice about TensorFlow's hidden lines
        self.started = False
        self.training = False
        self.own_lines = 0
        self.last_own_line = ""
        self.error_lines = ErrorLineFinder(folder, shown_folder)
        self.global_step: int | None = None
        self.stepped_unix: float | None = None
        self.message = ""
        self.lost_contact = False

    def event(self, message: str, time_unix: float, elapsed_s: float) -> bytes:
        """Return the record of an event of the agent."""
        return self._line({"kind": "event", "message": message}, time_unix, elapsed_s)

    def parse(self, lines: Iterable[bytes], time_unix: float, elapsed_s: float) -> Parsed:
        """Sort lines.

        Args:
            lines: Whole lines, without line ends.
            time_unix: When they were read, in seconds since the epoch.
            elapsed_s: Seconds from the program's start until then.
        """
        records, log, echo = bytearray(), bytearray(), bytearray()
        for whole in lines:
            prefix, line = self._split_record(whole)
            # The other writer's line continues after the record, so the log gets it in one piece.
            log += prefix
            record = _parse(line)
            if record is None:
                log += line + b"\n"
                self.error_lines.feed(line)
                record = self._derived(line)
                shown = self._terminal_line(whole, record)
            else:
                # A program with only event records may print its steps as a listing does.
                self._writes_records |= record["kind"] != "event"
                shown = readable(record)
                self.own_lines += 1
            if record is not None:
                self._update_progress(record, time_unix)
                records += self._line(record, time_unix, elapsed_s)
            if shown:
                echo += shown.encode() + b"\n"
        return Parsed(bytes(records), bytes(log), bytes(echo))

    def _line(self, record: Record, time_unix: float, elapsed_s: float) -> bytes:
        tagged = self._tags.complete(record, time_unix, elapsed_s)
        return json.dumps(tagged).encode() + b"\n"

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

    def _update_progress(self, record: Record, now: float) -> None:
        """Update the progress from a record."""
        step, status = record.get("global_step"), record.get("status")
        if isinstance(step, int) and (self.global_step is None or step > self.global_step):
            self.global_step, self.stepped_unix = step, now
        self.started |= status == READY or (record["kind"] == "start" and status != STARTING)
        if record["kind"] in _TRAINING:
            self.training, self.message = True, ""
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

    def _derived(self, line: bytes) -> Record | None:
        """The record of a line in a listing's or TensorFlow's format; None for other lines."""
        is_rest, self._is_cut = self._is_cut, line.endswith(_MARK)
        if self._is_cut:
            return None
        if is_rest:  # of a line that was overwritten; its first state began in the part before
            line = line.partition(b"\r")[2]
        record = self._parser.read(line)
        # The program's own records contain a step, which would count twice.
        counts_twice = record is not None and record["kind"] != "event" and self._writes_records
        return None if counts_twice else record


def _parse(line: bytes) -> Record | None:
    """The record in a line; None for other lines and for invalid records."""
    if not line.startswith(_PREFIX):
        return None
    try:
        return parse_record(line.decode())
    except (RecordError, UnicodeDecodeError):
        return None
