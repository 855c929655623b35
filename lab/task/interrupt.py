"""Ctrl-C for a program that waits inside TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

EXIT_CODE: Final = 130
"""What a shell reports of a program that Ctrl-C ended."""


def leave_on_interrupt() -> None:
    """Make Ctrl-C end the program at once: one line, exit code 130, no traceback.

    Python's own KeyboardInterrupt waits until the running call returns, and `Server.join` and a
    `Session.run` that waits for other tasks may never return. So a thread of its own waits for
    the byte that Python's signal handler writes. Only the main thread may call this.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return  # A shell started it in the background: Ctrl-C is meant for another program.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_leave, args=(reader,), name="interrupt", daemon=True).start()


def _leave(reader: int) -> None:
    os.read(reader, 1)
    sys.stdout.flush()
    os.write(2, b"interrupted\n")
    # Not sys.exit: the main thread is inside TensorFlow, and would never hear of it.
    os._exit(EXIT_CODE)
