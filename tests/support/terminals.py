"""A user at a terminal: types, reads the output, presses Ctrl-C."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.agents import PATIENCE_S

CTRL_C = "\x03"
_ROWS, _COLUMNS = 40, 200


class Terminal:
    """A program on its own terminal, `_COLUMNS` wide.

    Attributes:
        said: Its output so far.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], term: str
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "TERM": term},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_control,  # noqa: PLW1509  (nothing else runs in this process's threads)
        )
        os.close(slave)
        self.said = ""
        self._read = 0
        # A read may end inside a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._master, text.encode())

    def until(self, pattern: str, within_s: float) -> re.Match[str]:
        """Read until this text appears; earlier output is not searched again.

        Raises:
            AssertionError: It did not appear in time; with the last output.
        """
        give_up = time.monotonic() + within_s
        while True:
            found = re.compile(pattern).search(self.said, self._read)
            if found:
                self._read = found.end()
                return found
            left = give_up - time.monotonic()
            assert left > 0, f"{pattern!r} did not come: …{self.said[-2000:]}"
            if not self._more(min(left, 0.2)) and self.process.poll() is not None:
                assert re.compile(pattern).search(self.said, self._read), (
                    f"{pattern!r} did not come before the end: …{self.said[-2000:]}"
                )

    def press_until(self, key: str, pattern: str, within_s: float) -> None:
        """Press a key each second until this text appears: presses close to each other are one.

        Raises:
            AssertionError: It did not appear in time; with the last output.
        """
        give_up = time.monotonic() + within_s
        while True:
            self.type(key)
            try:
                self.until(pattern, 1.0)
            except AssertionError:
                if time.monotonic() > give_up:
                    raise
            else:
                return

    def wait_for(self, condition: Callable[[], object], what: str, within_s: float) -> None:
        """Read until a condition holds: a program whose output is not read stops at a write.

        Raises:
            AssertionError: It did not hold in time; with the last output.
        """
        give_up = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < give_up, f"not in time: {what}: …{self.said[-2000:]}"
            self._more(0.05)

    def end(self, within_s: float) -> int:
        """Read to the end; the exit code."""
        self.wait_for(lambda: self.process.poll() is not None, "its end", within_s)
        while self._more(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        """Close the terminal, like a user who closes the window."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGHUP)
        os.close(self._master)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _more(self, within_s: float) -> bool:
        if not select.select([self._master], [], [], within_s)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side has been closed
            time.sleep(min(within_s, 0.05))
            return False
        self.said += self._decoder.decode(data)
        return bool(data)


def _control() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


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
