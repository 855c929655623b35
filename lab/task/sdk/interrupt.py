"""End a program quickly on Ctrl-C or SIGTERM, also while it waits inside TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
_SIGNAL_EXIT_BASE: Final = 128  # a shell adds the signal number
_NO_DESCRIPTOR: Final = -1


def leave_on_interrupt(first: Callable[[], object] | None = None) -> None:
    """Make Ctrl-C and SIGTERM end the program at once: exit code 130 or 143, no traceback.

    Python raises KeyboardInterrupt only after the running call returns. `Server.join`, and a
    `Session.run` that waits for other tasks, may never return. So a separate thread waits for the
    byte that Python's signal handler writes. Call this function from the main thread.

    Args:
        first: An action that runs before the exit, in another thread than the training. It may
            raise. If it never returns, the sender of the signal must kill the process. A later call
            of this function replaces it.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    earlier = signal.set_wakeup_fd(writer)
    if earlier != _NO_DESCRIPTOR:
        os.close(earlier)  # The thread of the earlier call ends.
    for number in _SIGNALS:
        # A shell ignores SIGINT for background programs: Ctrl-C is for another program then.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(reader, first), name="interrupt", daemon=True).start()


def _wait(reader: int, first: Callable[[], object] | None) -> None:
    # Python also writes a byte for other signals, such as SIGCHLD and SIGWINCH.
    while number := os.read(reader, 1):
        if number[0] in _SIGNALS:
            _leave(number[0], first)
    os.close(reader)


def _leave(number: int, first: Callable[[], object] | None) -> None:
    # SIGTERM ends the parameter servers of every run, so it is not worth a line.
    lines = ["interrupted"] if number == signal.SIGINT else []
    if first is not None:
        try:
            first()
        except Exception as error:  # noqa: BLE001 (the process ends anyway, and prints the error)
            lines += f"{type(error).__name__}: {error}".splitlines()[:1]
    sys.stdout.flush()
    os.write(2, "".join(f"{line}\n" for line in lines).encode())
    # sys.exit would have no effect: the main thread is inside TensorFlow.
    os._exit(_SIGNAL_EXIT_BASE + number)
