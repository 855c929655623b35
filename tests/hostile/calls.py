"""Calls commands in this process with a time limit, and finds faults of their output."""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from lab.base.text import LONGEST_MESSAGE, visible
from lab.cli import main

WITHIN_S: Final = 180
HUNG: Final = -1


@dataclass(frozen=True)
class Said:
    """How a command ended; the code is `HUNG` where it did not."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    def faults(self) -> Iterator[str]:
        """The faults of any command with this end."""
        lines = self.err.splitlines()
        errors = sum(line.startswith("error: ") for line in lines)
        # An error of a config has a line for each fault, which names the place in the file.
        explained = errors == 1 or (not errors and bool(lines) and ":" in lines[-1])
        checks = {
            "it did not end": self.code == HUNG,
            "a traceback": "internal:" in self.err or "Traceback" in self.err,
            "another exit code": self.code not in {HUNG, 0, 1, 2},
            "a warning of a library": "Warning" in self.err,
            f"exit code {self.code} with {errors} errors": bool(errors)
            if self.code == 0
            else not explained,
            "too long": max(map(len, lines), default=0) > LONGEST_MESSAGE,
            "control characters": not is_plain(self.out + self.err),
        }
        yield from (self.fault(what) for what, is_so in checks.items() if is_so)

    def fault(self, what: str) -> str:
        """A fault of this command, with its last output."""
        last = " ".join(self.err.splitlines()[-1:])
        return f"{what}: lab {' '.join(map(ascii, self.words))}: {last[-300:]}"


def is_plain(text: str) -> bool:
    return all(visible(line) == line for line in text.split("\n"))


def call(*words: str) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with within(WITHIN_S):
                code = main(words)
        except Hang:
            code = HUNG
        except SystemExit as ended:
            code = HUNG if ended.code is None else int(ended.code)
    return Said(words, code, out.getvalue(), err.getvalue())


def faults_of(commands: Sequence[Sequence[str]], *more: str) -> Iterator[str]:
    """The faults of several commands with further arguments."""
    for words in commands:
        yield from call(*words, *more).faults()


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
