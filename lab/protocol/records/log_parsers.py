r"""Parsers that turn printed lines of programs into records.

The programs of a book, of a blog and of TensorFlow's tutorials and benchmarks print in their own
formats, and TensorFlow's runtime prints the progress of a start. They are read exactly::

    worker=0,epoch=9,global_step=10896, local_step=5500, loss = 1.2575616836547852
    worker=2, final accuracy = 0.8894000053405762
    After  400 training steps (  2052 global steps), loss on training batch is  0.388676.  (…)
    2017-10-31 16:00:00.123456: step 10, loss = 2.31 (8123.4 examples/sec; 0.012 sec/batch)
    I0000 00:00:1795270972.223329   15148 grpc_server_lib.cc:467] Started server with target: …

Bars and epochs of Keras are read from their complete state. `printed_numbers` reads all other lines
that name a step, an epoch, a loss or an accuracy beside a number.

Numbers are taken as printed. Misleading numbers are ignored: the blog's `sec/batch` divides the
elapsed time by the *global* step, and the tower program's divides the time of a step by the number
of its GPUs. Rates are computed from the times at which lines arrive.

All lines of all programs are parsed here. Most of them are rejected by a search for a few terms.
The regular expressions are possessive (`*+`, `++`), so they never backtrack and need linear time.
Optional groups are not possessive: Python 3.11.2, the version in Debian 12, matches such groups
wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from lab.base.text import last_state, short
from lab.protocol.records import Record
from lab.protocol.records.printed_numbers import read_metrics, read_numbers
from lab.protocol.records.record_pattern import PatternError, RecordPattern

READY: Final = "ready"
"""The status of the event that a server has started; the programs of `scripts/` send it too."""

LONGEST_LINE: Final = 2_000
"""The maximum length of a line that is searched for numbers, in bytes; longer ones are data."""

_WHOLE = rb"(\d{1,18}+)"  # fits into 64 bits
_NUMBER = rb"([-+]?+(?:\d{1,400}+(?:\.\d{1,400}+)?(?:[eE][-+]?+\d{1,9}+)?|nan|inf))"
_BOOK_STEP = re.compile(  # without its blanks
    rb"worker=\d++,(?:epoch=" + _WHOLE + rb",)?global_step=" + _WHOLE + rb",local_step=" + _WHOLE
    + rb",loss=" + _NUMBER
)  # fmt: skip

_KERAS_EPOCH = re.compile(r"epoch (\d{1,9}+)/\d++", re.ASCII)
# `469/469 [=====] - 3s 6ms/step`, `469/469 - 3s`, `469/469 ━━━━ 1s 2ms/step`, or ` - 3s`.
_KERAS_BAR = re.compile(
    r"(?:(?P<batches>\d++)/(?P<of>\d++) *+(?:\[[=>.]*+\]|[\x80-\xff]++)? *+)?"
    r"(?:- (?=[\d:]++m?+s\b)|(?=[\d:hm]*+s? \d++[mu]?+s/))",
    re.ASCII,
)
_TRACEBACK = b'  File "'

# Older versions print an optional date; newer ones use Abseil's format, with the process id and
# without the directory. Python's `logging` names the logger.
_LOG_HEADER = re.compile(
    rb"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d++)?: )?[IWE] [\w./+-]++:\d++\] "
    rb"|[IWE]\d{4} [\d:.]++ ++\d++ [\w./+-]++:\d++\] |INFO:tensorflow:"
)
_NUMBERED = re.compile(rb"\d++ -> ")

_KEYS: Final = ("step", "epoch", "iter", "loss", "cost", "acc", "cross", "precision", "%|")
"""Terms of which each line with a record has one at least."""


class LogParser:
    """Reads the lines of one program, in order.

    A program counts its epochs from 0 or from 1. It counts from 0 if it has printed an epoch 0.
    """

    def __init__(self, regex: str = "") -> None:
        """Start before the first line.

        Args:
            regex: The expression of `--record`, which is applied before all other formats; or "".
        """
        self._regex = regex
        self._pattern: RecordPattern | None = None
        self._before = b""  # the line before
        self._first_epoch = 1
        self._keras = KerasBars()

    def read(self, line: bytes) -> Record | None:
        """Read one line, without its line end; None for a line that is not a record.

        Returns:
            A record without the task: `worker=` in the book's lines is not reliable. Kinds:
            `epoch`, `step` and `eval` for training, `final` with the accuracy, `event` for
            TensorFlow's own lines. The start of a server has the status `READY`.
        """
        if self._regex and (record := self._by_pattern(line.strip())) is not None:
            return record
        before, self._before = self._before, line
        line = line.strip()
        reader = _READERS.get(line[:1])
        if reader is not None and (record := reader(line)) is not None:
            return record
        text = line.decode("latin-1").lower()
        # This rejects most lines. A search for the terms by one expression takes ten times longer.
        if not any(term in text for term in _KEYS):
            return None
        if text.startswith("epoch ") and (heading := _KERAS_EPOCH.fullmatch(text)):
            self._keras.begin(int(heading[1]) - 1)
            return None
        if before.startswith(_TRACEBACK):
            return None  # the source of the line in a traceback
        return self._by_numbers(last_state(text).strip())

    def _by_numbers(self, text: str) -> Record | None:
        """Read a line in lower case that may have a step, a loss or an accuracy."""
        if len(text) > LONGEST_LINE:
            return None
        if bar := _KERAS_BAR.match(text):
            return self._keras.read(bar["batches"] or "", bar["of"] or "", text[bar.end() :])
        return self._with_epoch(read_numbers(text))

    def _by_pattern(self, line: bytes) -> Record | None:
        """Read a line by the expression of `--record`; return an event if that fails."""
        try:
            self._pattern = self._pattern or RecordPattern(self._regex)
            text = last_state(line.decode(errors="replace")).strip()
            return self._with_epoch(self._pattern.read(text))
        except PatternError as error:
            self._regex, why = "", "" if self._pattern else "cannot be used: "
            return {"kind": "event", "message": short(f"--record {why}{error}")}

    def _with_epoch(self, record: Record | None) -> Record | None:
        """Return a record with its epoch counted from 0."""
        if record is not None and isinstance(epoch := record.get("epoch"), int):
            self._first_epoch = min(self._first_epoch, epoch)
            record["epoch"] = epoch - self._first_epoch
        return record


class KerasBars:
    """Reads the progress bars of Keras: of epochs, validations and evaluations.

    Keras prints `Epoch 1/5` before the bar of an epoch, unless there is only one epoch.
    """

    def __init__(self) -> None:
        self._has_headings = False
        self._begun: int | None = None  # the epoch whose bar is not complete yet, 0-based
        self._ended = -1  # the newest epoch whose bar is complete
        self._batches = ""  # the number of its batches

    def begin(self, epoch: int) -> None:
        """Receive the heading of an epoch, 0-based."""
        self._has_headings, self._begun = True, epoch

    def read(self, batches: str, of: str, values: str) -> Record | None:
        """Read a bar; None if it is not complete, or shows no loss and no accuracy."""
        if batches != of:
            return None
        metrics, of_validation = read_metrics(values)
        if not metrics:
            return None
        is_same = batches == self._batches
        if not self._has_headings and (is_same or self._ended < 0):
            self._begun = self._ended + 1
        if self._begun is not None:
            self._ended, self._batches, self._begun = self._begun, batches, None
            return {"kind": "epoch", "epoch": self._ended, **metrics}
        if not is_same:
            return {"kind": "eval", **metrics}
        # Some versions print the last bar again, with the values of the validation.
        return {"kind": "eval", "epoch": self._ended, **of_validation} if of_validation else None


def _book(line: bytes) -> Record | None:
    step = _BOOK_STEP.fullmatch(b"".join(line.split()))
    if step is None:
        return None
    epoch, global_step, local_step, loss = step.groups()
    record: Record = {"kind": "step"} if epoch is None else {"kind": "epoch", "epoch": int(epoch)}
    numbers = {"local_step": int(local_step), "global_step": int(global_step), "loss": float(loss)}
    return record | numbers


def _tensorflow(line: bytes) -> Record | None:
    header = _LOG_HEADER.match(line)
    if header is None:
        return None
    for form, kind, message in _EVENTS:
        if match := form.fullmatch(line, header.end()):
            status = {"status": READY} if message == _SERVES else {}
            text = _NUMBERED.sub(b"", match.expand(message))
            return {"kind": kind, **status, "message": short(text)}
    return None


_SERVES = rb"serves at \1"
_EVENTS: Final = tuple(
    (re.compile(form), kind, message)
    for form, kind, message in (
        (rb"Started server with target: (\S++)", "event", _SERVES),
        (rb"Initialize \w++ for job (\w++) -> \{([^}]*+)\}", "event", rb"knows job \1: \2"),
        (rb"CreateSession still waiting .*/job:(\w++)/\S*:(\d++)", "event", rb"waits for \1-\2"),
        (rb"Start master session (\w++)(?: with config:.*+)?", "event", rb"begins session \1"),
        (rb"Waiting (\d++)\S* secs before (starting [\w ]++).*", "event", rb"waits \1 s before \2"),
        # A MonitoredTrainingSession prints only this: a training, at a step that is not known.
        (rb"global_step/sec: ([\d.]++)", "step", rb"\1 global steps/s"),
    )
)
"""TensorFlow's own lines: their text, the kind of their record, and its message."""

_READERS: Final[Mapping[bytes, Callable[[bytes], Record | None]]] = {
    b"w": _book,
    **dict.fromkeys((b"2", b"I", b"W", b"E"), _tensorflow),
}
"""The first byte of a line to the reader of the formats that begin with it."""
