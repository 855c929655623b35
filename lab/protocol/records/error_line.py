"""Find the line of a log that gives the reason of a failure."""

from __future__ import annotations

import os
import re

from lab.base.text import short

_COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
# PyTorch marks each line of the traceback of a rank.
RANK = re.compile(rb"^\[rank\d{1,9}\]: ")
# What `torchrun` prints of the first process that failed, before its own exception.
_PROCESS = re.compile(rb".* failed \(exitcode: (-?\d+)\) local_rank: (\d+) ")
_PROCESS_FAILED = b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
HEADER = b"Traceback (most recent call last):"
# The line of an exception, with or without a traceback before it (a SyntaxError has none).
_EXCEPTION = re.compile(rb"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
# What argparse, the dynamic loader and TensorFlow's own checks print.
_COMPLAINT = re.compile(rb"\berror: |^Fatal |\bCheck failed: |^terminate called ", re.IGNORECASE)

# TensorFlow 2 prints this line, and where each operation was made, before the error's message
# (tensorflow/python/framework/error_interpolation.py).
_WRAPPER = b"Graph execution error:"
_WRAPPING = re.compile(
    rb"\s*|Graph execution error:|Detected at node .*|Node: '.*'"
    rb"|([A-Z_]+: )?From /job:.*:|=+|\d+ root error\(s\) found\."  # of errors from other tasks
    rb"|(?!\s+\(0\) )\s.*"  # stack frames, but not the first of several errors
    rb"|[IWEF]\d{4} [\d:.]+ .*"  # log lines of other threads
)
_ORIGINAL = b"Original stack trace for "
_BLANK = re.compile(rb"\s*")
_NO_MESSAGE = re.compile(rb"([\w.]+):\s*(Graph execution error:|From /job:\S*:)?\s*")
_PREFIX = re.compile(rb"tensorflow\.python\.framework\.errors_impl\.")
_FRAME = re.compile(rb'  File "(.*)", line (\d+)(?:, in .*)?')
# Python prints this before the traceback of an error that does not end the program, as at its exit.
_IGNORED = re.compile(rb"Exception ignored (?:in|on|while)\b")

CHECKPOINT_PART = r"_temp(?:/part-\d{5}-of-\d{5}\S*?)?|-\d{5}-of-\d{5}(?:\.tempstate\d+)?"
"""The end of the name of a part of a sharded checkpoint, of TensorFlow's format 2 or 1."""

_LONGEST = 300


class ErrorLineFinder:
    """Reads a log line by line and stores the line with the reason of a failure.

    This is the first line of the last exception, after the place in the program that raised it: the
    innermost frame in the program's directory. If that line has no message, the first line of the
    message is added. Without an exception, it is the last error line of another kind.
    """

    def __init__(self, folder: str = "", shown_folder: str = "") -> None:
        """Start with no line.

        Args:
            folder: The directory of the program and its modules; "" names no place.
            shown_folder: How the user names this directory; "" for places relative to it.
        """
        folders = {folder, os.path.realpath(folder)} if folder else set()
        self._shown_folder = os.fsencode(os.path.join(shown_folder, ""))  # noqa: PTH118 (bytes)
        self._folders = tuple(os.fsencode(path) + b"/" for path in folders)
        self._exception = b""
        self._complaint = b""
        self._place = b""  # of the newest frame in the program's directory
        self._raised_at = b""
        self._in_traceback = False
        self._is_ignored = False
        self._before_message: re.Pattern[bytes] | None = None  # None: no message is expected

    def feed(self, line: bytes) -> None:
        """Process one line, without its line end."""
        line = RANK.sub(b"", _COLOUR.sub(b"", line))
        if _IGNORED.match(line):
            self._is_ignored = True
        elif process := _PROCESS.match(line):
            self._see_process(*process.groups())
        elif line == HEADER:
            self._in_traceback = True
            self._place = b""
        elif frame := _FRAME.fullmatch(line):
            self._see(*frame.groups())
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
        """Return the line with the reason, safe for a terminal; "" if there is none."""
        if not self._exception:
            return short(self._complaint.strip(), _LONGEST)
        place = short(self._raised_at + b": ") if self._raised_at else ""
        return place + short(_PREFIX.sub(b"", self._exception.strip(), count=1), _LONGEST)

    def _see_process(self, code: bytes, rank: bytes) -> None:
        """Store the end of a process of `torchrun`, unless its own traceback was read."""
        if rank != b"0" or not self._exception:
            self._exception = b"the process of local rank %b ended with exit code %b" % (rank, code)
            self._raised_at = b""

    def _see(self, path: bytes, number: bytes) -> None:
        """Store the place of a frame, if it is in the program's directory."""
        for folder in self._folders:
            if path.startswith(folder):
                self._place = self._shown_folder + path.removeprefix(folder) + b":" + number

    def _raised(self, line: bytes) -> None:
        """Store the line of an exception, without TensorFlow's wrapper."""
        if self._is_ignored:
            self._is_ignored = False
            return
        if line.startswith(_PROCESS_FAILED) and self._exception:
            return
        bare = _NO_MESSAGE.fullmatch(line)
        self._exception, self._raised_at = bare[1] if bare else line, self._place
        self._before_message = (_WRAPPING if bare[2] else _BLANK) if bare else None


def first_message_line(error: str) -> str:
    """Return the first line of an error's text that has a message; "" if there is none."""
    lines = error.encode(errors="replace").splitlines()
    if lines[:1] == [_WRAPPER]:
        lines = [line for line in lines if not _WRAPPING.fullmatch(line)]
    return next((line for line in lines if line.strip()), b"").decode().strip()
