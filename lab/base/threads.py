"""Threads that receive no signals, and calls with a time limit."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block all signals for threads that start in the block, so that Ctrl-C can be delayed.

    The kernel delivers a signal of the process to any thread that does not block it. Python then
    interrupts the main thread, even if the main thread blocks the signal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_background(action: Callable[[], T]) -> Future[T]:
    """Run a function that may hang in a thread that does not delay the end of the process.

    At exit, Python waits for the threads of an executor, but not for this daemon thread. Messages
    of the function are shown like those of the caller.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001  (`result()` raises it again)
            future.set_exception(error)

    Thread(target=copy_context().run, args=[work], daemon=True).start()
    return future


def with_timeout(seconds: float, action: Callable[[], T]) -> T:
    """Run a function that may hang, with a time limit in seconds.

    Raises:
        TimeoutError: The function took longer; its thread continues.
    """
    return in_background(action).result(seconds)
