"""End a program quickly on Ctrl-C or SIGTERM, also while it waits inside TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

EXIT_CODE: Final = 130
"""The exit code of a program that Ctrl-C ended: 128 + SIGINT."""

_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
_SIGNAL_EXIT_BASE: Final = 128  # a shell adds the signal number


class ShutdownHandler:
    """An action to run before a signal ends the program."""

    def __init__(self) -> None:
        self._action: Callable[[], object] | None = None

    def first(self, action: Callable[[], object]) -> None:
        """Set the action; it runs in another thread than the training, and may raise."""
        self._action = action

    def leave(self, number: int) -> None:
        """Run the action, then end the process.

        An action that never returns blocks the exit until the sender of the signal kills the
        process.
        """
        # SIGTERM ends the parameter servers of every run, so it is not worth a line.
        lines = ["interrupted"] if number == signal.SIGINT else []
        if self._action is not None:
            try:
                self._action()
            except Exception as error:  # noqa: BLE001 (the process ends anyway, and prints the error)
                lines += f"{type(error).__name__}: {error}".splitlines()[:1]
        sys.stdout.flush()
        os.write(2, "".join(f"{line}\n" for line in lines).encode())
        # sys.exit would have no effect: the main thread is inside TensorFlow.
        os._exit(_SIGNAL_EXIT_BASE + number)


def leave_on_interrupt() -> ShutdownHandler:
    """Make Ctrl-C and SIGTERM end the program at once: exit code 130 or 143, no traceback.

    Python raises KeyboardInterrupt only after the running call returns. `Server.join`, and a
    `Session.run` that waits for other tasks, may never return. So a separate thread waits for the
    byte that Python's signal handler writes. Call this function from the main thread.

    Returns:
        A handler; use its `first` to set an action that runs before the exit.
    """
    handler = ShutdownHandler()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in _SIGNALS:
        # A shell ignores SIGINT for background programs: Ctrl-C is for another program then.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(reader, handler), name="interrupt", daemon=True).start()
    return handler


def _wait(reader: int, handler: ShutdownHandler) -> None:
    # Python also writes a byte for other signals, such as SIGCHLD and SIGWINCH.
    while (number := os.read(reader, 1)[0]) not in _SIGNALS:
        pass
    handler.leave(number)
