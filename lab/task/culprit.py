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


class Culprit:
    """Reads a log line by line and remembers the telling one.

    The first line of the last exception wins: the last line of an exception's message is often
    one of many. Failing an exception, the last complaint of another kind.
    """

    def __init__(self) -> None:
        self._exception = b""
        self._complaint = b""
        self._in_traceback = False

    def feed(self, line: bytes) -> None:
        """Read one line, without its line end."""
        line = _COLOUR.sub(b"", line)
        if line == _HEADER:
            self._in_traceback = True
        elif self._in_traceback:
            if line and not line[:1].isspace():
                self._exception = line
                self._in_traceback = False
        elif _EXCEPTION.match(line):
            self._exception = line
        elif _COMPLAINT.search(line):
            self._complaint = line

    def line(self) -> str:
        """The telling line, safe to show and in one piece; "" where there is none."""
        return short((self._exception or self._complaint).strip())
