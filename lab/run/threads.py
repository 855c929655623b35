"""Threads beside the main one, which alone takes signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Let a thread that starts in the block take no signal, so that Ctrl-C waits where it must.

    The kernel hands a signal of the process to any thread that does not block it. Python then
    interrupts the main thread, though that one blocks it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
