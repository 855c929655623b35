"""Remember every error that the tests bring about, and the place in the code that made it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from lab import errors
from lab.backends.local import network
from lab.cli import errors as failures
from lab.config import diagnostics as problems
from lab.run.run_info import RunInfo
from lab.task.agent import agent_config as place
from lab.task.agent import oneshot
from lab.task.probes import netem
from lab.task.protocol import TaskStatus
from lab.task.sdk import data, flags, program
from lab.task.text import visible
from tools.errors.scan import COMPLAINT, REASON, ROOT, Place

_LAB: Final = f"{ROOT}/lab/"
_FRAMES: Final = 4
_PLAIN: Final = {"LinkError", "NetworkError"}

_ERRORS: Final[tuple[type[Exception], ...]] = (
    errors.LabError,
    data.DataError,
    program.ProgramError,
    place.AgentConfigError,
    oneshot.OneshotError,
    netem.LinkError,
    network.NetworkError,
    argparse.ArgumentTypeError,
)

Report = tuple[dict[int, str], dict[str, str]]
"""The examples by the number of their place, and whole lines by the text in them."""


class Seen:
    """What has been said so far.

    Attributes:
        watching: Whether what is said now counts.
        examples: The best example of each place that was reached.
    """

    def __init__(self, places: list[Place]) -> None:
        self.watching = False
        self.examples: dict[Place, str] = {}
        self._places = places
        self._lines: dict[str, str] = {}
        self._undo: list[Callable[[], None]] = []

    def missing(self) -> list[Place]:
        """The places that no test has reached."""
        return [each for each in self._places if each not in self.examples]

    def example(self, place: Place) -> str:
        """What a place said, as a user sees it."""
        text = self.examples[place]
        if place.kind in {"Problem", "ArgumentTypeError"}:
            return self._lines.get(text, text)
        return text

    # What other processes have seen.

    def report(self) -> Report:
        """What was seen in this process, in a form that can be sent to another one."""
        known = {self._places.index(place): text for place, text in self.examples.items()}
        return known, dict(self._lines)

    def merge(self, report: Report) -> None:
        """Add what another process has seen, which scanned the same code."""
        examples, lines = report
        for number, shown in examples.items():
            self._keep(self._places[number], shown)
        for text, line in lines.items():
            self._line(text, line)

    # What is watched.

    def install(self) -> None:
        """Begin to listen."""
        for kind in _ERRORS:
            self._listen(kind, "__init__", self._made)
        self._listen(problems.Problem, "__init__", self._problem)
        self._listen(TaskStatus, "__init__", self._reason)
        self._listen(RunInfo, "__init__", self._reason)
        self._listen(argparse.ArgumentParser, "error", self._flag, before=True)
        self._listen(flags.Parser, "error", self._flag, before=True)
        self._listen(failures, "notify", self._said, before=True)

    def uninstall(self) -> None:
        """Leave everything as it was."""
        while self._undo:
            self._undo.pop()()

    def _listen(
        self, owner: object, name: str, hear: Callable[..., None], *, before: bool = False
    ) -> None:
        original = getattr(owner, name)

        def listening(*args: object, **kwargs: object) -> object:
            if before and self.watching:
                hear(*args, **kwargs)
            result = original(*args, **kwargs)
            if not before and self.watching:
                hear(*args, **kwargs)
            return result

        had = name in vars(owner)
        setattr(owner, name, listening)
        self._undo.append(lambda: setattr(owner, name, original) if had else delattr(owner, name))

    # The observed errors.

    def _made(self, error: Exception, *_: object, **__: object) -> None:
        kind = type(error).__name__
        what = getattr(error, "what", str(error))
        if isinstance(error, program.ProgramError):
            what = what.rpartition("; ")[0]  # its only text contains the fix
        if isinstance(error, errors.ConfigError):
            for line in error.what.splitlines():
                self._line(line.split(": ", 1)[-1], line)
            return
        shown = str(error) if kind in _PLAIN else f"error: {error}"
        frames = list(_frames())
        if (
            isinstance(error, errors.LabError)
            and frames
            and frames[0][0].endswith("/error_hints.py")
        ):
            for each in self._places:
                if each.kind == COMPLAINT and re.search(f": {each.pattern.pattern}$", what):
                    self._keep(each, shown)
                    return
        self._find(kind, what, shown, frames)

    def _problem(self, problem: problems.Problem, *_: object, **__: object) -> None:
        self._find("Problem", problem.message, problem.text(), list(_frames()))

    def _reason(self, status: TaskStatus | RunInfo, *_: object, **__: object) -> None:
        if not status.reason:
            return
        for each in self._fitting(REASON, status.reason):
            self._keep(each, f"{status.state}: {status.reason}")

    def _flag(self, parser: argparse.ArgumentParser, message: str) -> None:
        shown = f"error: {message}; --help lists all flags"
        self._line(message.rpartition(": ")[2], shown)
        self._find("flags", message, shown, list(_frames()))

    def _said(self, line: str) -> None:
        self._find("notify", line, line, list(_frames()))

    # Where it belongs.

    def _find(self, kind: str, what: str, shown: str, frames: list[tuple[str, int]]) -> None:
        """Keep it for the innermost place that can say so; a relay is passed by."""
        fitting = self._fitting(kind, what)
        for file, line in frames:
            here = [
                each
                for each in fitting
                if each.module == file and each.lines[0] <= line <= each.lines[1]
            ]
            if here:
                key = what if kind == "ArgumentTypeError" else shown
                self._keep(max(here, key=lambda each: each.weight), key)
                return

    def _fitting(self, kind: str, what: str) -> list[Place]:
        return [each for each in self._places if each.kind == kind and each.pattern.fullmatch(what)]

    def _keep(self, place: Place, shown: str) -> None:
        known = self.examples.get(place)
        shown = normal(shown)
        if known is None or _rank(shown) < _rank(known):
            self.examples[place] = shown

    def _line(self, text: str, line: str) -> None:
        text, line = normal(text), normal(line)
        if text not in self._lines or _rank(line) < _rank(self._lines[text]):
            self._lines[text] = line


def _rank(text: str) -> tuple[bool, int, str]:
    """Short examples first, and those without gaps."""
    return "\\x" in text or '""' in text or "''" in text, len(text), text


def _frames() -> Iterator[tuple[str, int]]:
    """The frames of `lab/` that led here, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    found = 0
    while frame is not None and found < _FRAMES:
        file = frame.f_code.co_filename
        if file.startswith(_LAB):
            yield Path(file).relative_to(ROOT).as_posix(), frame.f_lineno
            found += 1
        frame = frame.f_back


_NORMAL: Final = (
    (
        re.compile(r"(?:/[\w.+-]+)*/pytest-of-[^/\s]+/pytest-\d+/(?:popen-gw\d+/)?[^/\s:;,')\"]+"),
        "~/lab",
    ),
    (re.compile(re.escape(str(ROOT))), "~/lab"),
    (re.compile(re.escape(sys.prefix)), "~/lab/.venv"),
    (re.compile(r"\b\d{8}-\d{4}-([a-z]\w*)-[0-9a-f]{4}\b"), r"20260101-0900-\1-1a2b"),
    (re.compile(r"(?<=port )(?:3[2-9]|4\d|5\d|60)\d{3}\b"), "2222"),
    (re.compile(r"(?<=:)(?:3[2-9]|4\d|5\d|60)\d{3}\b"), "2222"),
    (re.compile(r"\b0x[0-9a-f]{8,}\b"), "0x7f00"),
    (re.compile(r"\bpid \d+"), "pid 4711"),
    (re.compile(r"(?<!-)\b[0-9a-f]{12,64}\b"), "0123456789ab"),
)


def normal(text: str) -> str:
    """A text as a terminal shows it, without what differs between machines or days."""
    for found, shown in _NORMAL:
        text = found.sub(shown, text)
    return visible(text)
