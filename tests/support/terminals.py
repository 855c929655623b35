"""A user at a terminal: types, reads the output, presses Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect  # type: ignore[import-untyped]

from tests.support.agents import PATIENCE_S, wait_for

CTRL_C = "\x03"


class Terminal:
    """A program on its own terminal."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], term: str
    ) -> None:
        self._output = io.StringIO()
        self._child: Any = pexpect.spawn(
            command[0],
            [*command[1:]],
            cwd=cwd,
            env={**env, "TERM": term},
            dimensions=(40, 200),
            encoding="utf-8",
            codec_errors="replace",
        )
        self._child.logfile_read = self._output

    @property
    def said(self) -> str:
        return self._output.getvalue()

    @property
    def code(self) -> int | None:
        return self._child.exitstatus

    def type(self, text: str) -> None:
        self._child.send(text)

    def until(self, pattern: str, within_s: float) -> re.Match[str]:
        """Read until this text appears; earlier output is not searched again."""
        self._child.expect(re.compile(pattern), timeout=within_s)
        return self._child.match

    def press_until(self, key: str, pattern: str, within_s: float) -> None:
        """Press a key each second until this text appears: presses close to each other are one."""

        def appears() -> bool:
            self.type(key)
            expected = [re.compile(pattern), pexpect.TIMEOUT]
            return bool(self._child.expect(expected, timeout=1) == 0)

        wait_for(appears, pattern, within_s)

    def wait_for(self, condition: Callable[[], object], what: str, within_s: float) -> None:
        """Read until a condition holds: a program whose output is not read stops at a write."""

        def holds() -> object:
            if self._child.expect([pexpect.TIMEOUT, pexpect.EOF], timeout=0.05):
                time.sleep(0.05)
            return condition()

        wait_for(holds, f"{what}: …{self.said[-2000:]}", within_s)

    def end(self, within_s: float) -> int | None:
        self.wait_for(lambda: not self._child.isalive(), "its end", within_s)
        self._child.expect([pexpect.TIMEOUT, pexpect.EOF], timeout=0.05)
        return self.code

    def close(self) -> None:
        """Close the terminal, like a user who closes the window."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGHUP)
        self._child.ptyproc.fileobj.close()
        try:
            wait_for(lambda: not self._child.isalive(), "its end", PATIENCE_S)
        finally:
            if self._child.isalive():
                self._child.kill(signal.SIGKILL)


@contextlib.contextmanager
def terminal(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], term: str = "xterm-256color"
) -> Iterator[Terminal]:
    """A program on a terminal that is closed at the end of the block."""
    opened = Terminal(command, cwd=cwd, env=env, term=term)
    try:
        yield opened
    finally:
        opened.close()
