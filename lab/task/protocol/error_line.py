"""Which line of a log says why a program failed."""

from __future__ import annotations

import re

from lab.task.text import short

_COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_HEADER = b"Traceback (most recent call last):"
# An exception's own line, with or without a traceback before it (a SyntaxError has none).
_EXCEPTION = re.compile(rb"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
# What argparse, the dynamic loader and TensorFlow's own checks print.
_COMPLAINT = re.compile(rb"\berror: |^Fatal |\bCheck failed: |^terminate called ", re.IGNORECASE)

# TensorFlow 2 puts this line, and where each operation was made, before an error's own message
# (tensorflow/python/framework/error_interpolation.py).
_WRAPPER = b"Graph execution error:"
_WRAPPING = re.compile(
    rb"\s*|Graph execution error:|Detected at node .*|Node: '.*'"
    rb"|([A-Z_]+: )?From /job:.*:|=+|\d+ root error\(s\) found\."  # of errors that crossed tasks
    rb"|(?!\s+\(0\) )\s.*"  # a stack's frames; but not the first of several errors
    rb"|[IWEF]\d{4} [\d:.]+ .*"  # what other threads log meanwhile
)
_ORIGINAL = b"Original stack trace for "
_BLANK = re.compile(rb"\s*")
_NO_MESSAGE = re.compile(rb"([\w.]+):\s*(Graph execution error:)?\s*")


class ErrorLineFinder:
    """Reads a log line by line and remembers the telling one.

    The first line of the last exception wins: the last line of an exception's message is often
    one of many. Where that line holds no message, the message's first line joins it. Without an
    exception, the last complaint of another kind wins.
    """

    def __init__(self) -> None:
        self._exception = b""
        self._complaint = b""
        self._in_traceback = False
        self._before_message: re.Pattern[bytes] | None = None  # None: there is nothing to wait for

    def feed(self, line: bytes) -> None:
        """Read one line, without its line end."""
        line = _COLOUR.sub(b"", line)
        if line == _HEADER:
            self._in_traceback = True
        elif self._in_traceback:
            if line and not line[:1].isspace():
                self._raised(line)
                self._in_traceback = False
        elif _EXCEPTION.match(line):
            self._raised(line)
        elif self._before_message is not None:
            if line.startswith(_ORIGINAL):
                self._before_message = None
            elif not self._before_message.fullmatch(line):
                self._exception += b": " + line.strip()
                self._before_message = None
        elif _COMPLAINT.search(line):
            self._complaint = line

    def error_line(self) -> str:
        """The telling line, safe to show and in one piece; "" where there is none."""
        return short((self._exception or self._complaint).strip())

    def _raised(self, line: bytes) -> None:
        """Remember an exception's own line, without TensorFlow's wrapper."""
        bare = _NO_MESSAGE.fullmatch(line)
        self._exception = bare[1] if bare else line
        self._before_message = (_WRAPPING if bare[2] else _BLANK) if bare else None


def first_message_line(error: str) -> str:
    """The first line of an error's text that says what is wrong; "" where there is none."""
    lines = error.encode(errors="replace").splitlines()
    if lines[:1] == [_WRAPPER]:
        lines = [line for line in lines if not _WRAPPING.fullmatch(line)]
    return next((line for line in lines if line.strip()), b"").decode().strip()
