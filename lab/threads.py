"""Threads beside the main one: they take no signal, and are waited for with a time limit."""

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
    """Start threads in the block that take no signal, so that Ctrl-C waits where it must.

    The kernel hands a signal of the process to any thread that does not block it. Python then
    interrupts the main thread, though that one blocks it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_background(action: Callable[[], T]) -> Future[T]:
    """Start something that may hang, in a thread that does not delay the end of the process.

    Python waits at its end for the threads of an executor, but not for this one.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001  (it is raised again where it is waited for)
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future


def with_timeout(seconds: float, action: Callable[[], T]) -> T:
    """Run something that may hang, with a time limit.

    Raises:
        TimeoutError: It took longer; its thread runs on.
    """
    return in_background(action).result(seconds)
