"""Threads beside the main one: which takes no signal, and for which nobody waits too long."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


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


def later(action: Callable[[], T]) -> Future[T]:
    """Begin something that may hang; its thread holds up nobody, not even the end of the process.

    (An executor's threads are waited for when Python ends.)
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001  (it is raised again where it is waited for)
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future


def within(seconds: float, action: Callable[[], T]) -> T:
    """Do something that may hang, and wait no longer than this for it.

    Raises:
        TimeoutError: It took longer; it is left to itself.
    """
    return later(action).result(seconds)
