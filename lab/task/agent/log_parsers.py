r"""Parsers that turn printed lines of listings into records.

The unchanged training programs of a book and of a blog print in their own formats, and TensorFlow's
runtime prints the progress of a start::

    worker=0,epoch=9,global_step=10896, local_step=5500, loss = 1.2575616836547852
    worker=2, final accuracy = 0.8894000053405762
    After  400 training steps (  2052 global steps), loss on training batch is  0.388676.  (…)
    2017-10-31 16:00:00.123456: step 10, loss = 2.31 (8123.4 examples/sec; 0.012 sec/batch)
    I0000 00:00:1795270972.223329   15148 grpc_server_lib.cc:467] Started server with target: …

Numbers are taken as printed. Misleading numbers are ignored: the blog's `sec/batch` divides the
elapsed time by the *global* step, and the tower program's divides the time of a step by the number
of its GPUs. Rates are computed from the times at which lines arrive.

All lines of all programs are parsed here. Most of them are rejected by their beginning. The regular
expressions are possessive (`*+`, `++`), so they never backtrack and need linear time. Optional
groups are not possessive: Python 3.11.2, the version in Debian 12, matches such groups wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from lab.records import Record
from lab.task.text import short

READY: Final = "ready"
"""The status of the event that a server has started; the programs of `scripts/` send it too."""

_WHOLE = rb"(\d{1,18}+)"  # fits into 64 bits
_NUMBER = rb"([-+]?+(?:\d{1,400}+(?:\.\d{1,400}+)?(?:[eE][-+]?+\d{1,9}+)?|nan|inf))"


def _pattern(*parts: bytes) -> re.Pattern[bytes]:
    """A pattern for a whole line of parts, with optional blanks between them."""
    return re.compile(rb"\s*+".join(parts))


_EQUALS = rb"\s*+=\s*+"
_BOOK_STEP = _pattern(
    rb"worker" + _EQUALS + rb"\d++",
    rb",",
    rb"(?:epoch" + _EQUALS + _WHOLE + rb"\s*+,)?",
    rb"global_step" + _EQUALS + _WHOLE,
    rb",",
    rb"local_step" + _EQUALS + _WHOLE,
    rb",",
    rb"loss" + _EQUALS + _NUMBER,
)
_BOOK_FINAL = _pattern(
    rb"worker" + _EQUALS + rb"\d++", rb",", rb"final\s++accuracy" + _EQUALS + _NUMBER
)
_BLOG = _pattern(
    rb"After\s++" + _WHOLE + rb"\s++training\s++steps",
    rb"\(",
    _WHOLE + rb"\s++global\s++steps",
    rb"\)",
    rb",",
    rb"loss\s++on\s++training\s++batch\s++is\s++" + _NUMBER,
    rb"\.",
    rb"\(",
    _NUMBER + rb"\s++sec/batch",
    rb"\)",
)
_TOWER = _pattern(
    rb"\d{4}-\d\d-\d\d\s++\d\d:\d\d:\d\d(?:\.\d++)?",
    rb":",
    rb"step\s++" + _WHOLE,
    rb",",
    rb"loss" + _EQUALS + _NUMBER,
    rb"\(",
    _NUMBER + rb"\s++examples/sec",
    rb";",
    _NUMBER + rb"\s++sec/batch",
    rb"\)",
)

# The text before `] ` in a line of TensorFlow's: older versions print an optional date; newer ones
# use Abseil's format, with the process id and without the directory.
_LOG_HEADER = re.compile(
    rb"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d++)?: )?[IWE] [\w./+-]++:\d++"
    rb"|[IWE]\d{4} [\d:.]++ ++\d++ [\w./+-]++:\d++"
)
_STARTED = re.compile(rb"Started server with target: (\S++)")
_CHANNELS = re.compile(rb"Initialize (?:HostPorts)?GrpcChannelCache for job (\w++) -> \{([^}]*+)\}")
_NUMBERED = re.compile(rb"\d++ -> ")
_WAITING = re.compile(
    rb"CreateSession still waiting for response from worker: "
    rb"/job:(\w++)/replica:\d++/task:(\d++)"
)
_SESSION = re.compile(rb"Start master session (\w++)(?: with config:.*+)?")


def read_listing(line: bytes) -> Record | None:
    """Read one line, without its line end; None for a line in none of the formats.

    Returns:
        A record without the task: `worker=` in the book's lines is not reliable. Kinds: `epoch` or
        `step` for training, `final` with the accuracy, `event` for TensorFlow's own lines. The
        start of a server has the status `READY`.
    """
    line = line.strip()
    for beginnings, read in _READERS:
        if line.startswith(beginnings):
            return read(line)
    return None


def _book(line: bytes) -> Record | None:
    if step := _BOOK_STEP.fullmatch(line):
        epoch, global_step, local_step, loss = step.groups()
        record: Record = (
            {"kind": "step"} if epoch is None else {"kind": "epoch", "epoch": int(epoch)}
        )
        return {
            **record,
            "local_step": int(local_step),
            "global_step": int(global_step),
            "loss": float(loss),
        }
    if final := _BOOK_FINAL.fullmatch(line):
        return {"kind": "final", "accuracy": float(final[1])}
    return None


def _blog(line: bytes) -> Record | None:
    match = _BLOG.fullmatch(line)
    if match is None:
        return None
    return {
        "kind": "step",
        "local_step": int(match[1]),
        "global_step": int(match[2]),
        "loss": float(match[3]),
    }


def _dated(line: bytes) -> Record | None:
    if line.endswith(b")") and (match := _TOWER.fullmatch(line)):
        return {"kind": "step", "local_step": int(match[1]), "loss": float(match[2])}
    return _tensorflow(line)


def _tensorflow(line: bytes) -> Record | None:
    head, bracket, text = line.partition(b"] ")
    if not bracket:
        return None
    for beginning, pattern, message_of in _EVENTS:
        if text.startswith(beginning):
            match = pattern.fullmatch(text)
            if match is None or not _LOG_HEADER.fullmatch(head):
                return None
            status = {"status": READY} if pattern is _STARTED else {}
            return {"kind": "event", **status, "message": short(message_of(match))}
    return None


def _hosts(match: re.Match[bytes]) -> bytes:
    return b"knows job %b: %b" % (match[1], _NUMBERED.sub(b"", match[2]))


_EVENTS: Final[tuple[tuple[bytes, re.Pattern[bytes], Callable[[re.Match[bytes]], bytes]], ...]] = (
    (b"Started server", _STARTED, lambda match: b"serves at " + match[1]),
    (b"Initialize ", _CHANNELS, _hosts),
    (b"CreateSession ", _WAITING, lambda match: b"waits for %b-%b" % match.groups()),
    (b"Start master ", _SESSION, lambda match: b"begins session " + match[1]),
)

_READERS: Final[tuple[tuple[bytes | tuple[bytes, ...], Callable[[bytes], Record | None]], ...]] = (
    (b"worker", _book),
    (b"After", _blog),
    (b"2", _dated),
    ((b"I", b"W", b"E"), _tensorflow),
)
