"""Calls commands in this process with a time limit, and finds faults of their output."""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Final

from lab.cli import main
from lab.task.text import LONGEST_MESSAGE, visible

WITHIN_S: Final = 180
HUNG: Final = -1


class Column(StrEnum):
    """The kinds of faults."""

    TRACEBACK = "tracebacks"
    HANG = "hangs"
    SUCCESS = "wrong successes"
    LOST = "bytes lost"
    MESSAGE = "wrong messages"


@dataclass(frozen=True)
class Fault:
    """One fault."""

    column: Column
    words: str


@dataclass(frozen=True)
class Said:
    """How a command ended; the code is `HUNG` where it did not."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    def faults(self) -> Iterator[Fault]:
        """The faults of any command with this end."""
        lines = self.err.splitlines()
        errors = sum(line.startswith("error: ") for line in lines)
        checks = [
            (Column.HANG, "it did not end", self.code == HUNG),
            (Column.TRACEBACK, "internal", "internal:" in self.err or "Traceback" in self.err),
            (Column.MESSAGE, f"exit code {self.code}", self.code not in {HUNG, 0, 1, 2}),
            (Column.MESSAGE, "a warning of a library", "Warning" in self.err),
            (Column.MESSAGE, f"code {self.code} with {errors} errors", not self._is_explained()),
            (Column.MESSAGE, "too long", max(map(len, lines), default=0) > LONGEST_MESSAGE),
            (Column.MESSAGE, "control characters", not _is_plain(self.out + self.err)),
        ]
        for column, words, is_so in checks:
            if is_so:
                yield self.fault(column, words)

    def fault(self, column: Column, words: str) -> Fault:
        """A fault of this command, with its last output."""
        last = " ".join(self.err.splitlines()[-1:])
        return Fault(column, f"{words}: lab {' '.join(map(ascii, self.words))}: {last[-300:]}")

    def _is_explained(self) -> bool:
        """Whether there is one error where it failed, and none where it did not."""
        lines = self.err.splitlines()
        errors = sum(line.startswith("error: ") for line in lines)
        if self.code == 0:
            return not errors
        # An error of a config has a line for each fault, which names the place in the file.
        return errors == 1 or (not errors and bool(lines) and ":" in lines[-1])


def _is_plain(text: str) -> bool:
    return all(visible(line) == line for line in text.split("\n"))


def call(words: Sequence[str]) -> Said:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with within(WITHIN_S):
                code = main(words)
        except Hang:
            code = HUNG
        except SystemExit as ended:
            code = HUNG if ended.code is None else int(ended.code)
    return Said(tuple(words), code, out.getvalue(), err.getvalue())


class Hang(BaseException):
    """A command did not end."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise `Hang` where the block takes longer."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
