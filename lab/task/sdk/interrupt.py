"""Ctrl-C, or a request to end, for a program that waits inside TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

EXIT_CODE: Final = 130
"""What a shell reports of a program that Ctrl-C ended."""

_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
_SHELLS_OWN: Final = 128


class ShutdownHandler:
    """What is to be done before the program leaves because it was told to."""

    def __init__(self) -> None:
        self._action: Callable[[], object] | None = None

    def first(self, action: Callable[[], object]) -> None:
        """Do this before; it runs in another thread than the training, and may fail."""
        self._action = action

    def leave(self, number: int) -> None:
        """Do it, and end the process; what hangs in it is ended by whoever asked."""
        # SIGTERM is how a parameter server ends in every run: there is nothing to report.
        lines = ["interrupted"] if number == signal.SIGINT else []
        if self._action is not None:
            try:
                self._action()
            except Exception as error:  # noqa: BLE001 (it leaves either way, and says why)
                lines += f"{type(error).__name__}: {error}".splitlines()[:1]
        sys.stdout.flush()
        os.write(2, "".join(f"{line}\n" for line in lines).encode())
        # Not sys.exit: the main thread is inside TensorFlow, and would never hear of it.
        os._exit(_SHELLS_OWN + number)


def leave_on_interrupt() -> ShutdownHandler:
    """Make Ctrl-C and SIGTERM end the program soon: exit code 130 or 143, no traceback.

    Python's own KeyboardInterrupt waits until the running call returns, and `Server.join` and a
    `Session.run` that waits for other tasks may never return. So a thread of its own waits for
    the byte that Python's signal handler writes. Only the main thread may call this.

    Returns:
        Where the program may say what is to be done first.
    """
    leaving = ShutdownHandler()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in _SIGNALS:
        # A shell started it in the background: Ctrl-C is meant for another program then.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(reader, leaving), name="interrupt", daemon=True).start()
    return leaving


def _wait(reader: int, leaving: ShutdownHandler) -> None:
    # Of other signals the byte tells, too: a child that ended, a terminal whose size has changed.
    while (number := os.read(reader, 1)[0]) not in _SIGNALS:
        pass
    leaving.leave(number)
