"""Handle the signals of a command: it stops what it started, and no signal stops its clean-up."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from lab.base.threads import signals_blocked

HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end a command, without a core dump and without a traceback."""

REPEAT_S: Final = 0.5
"""Signals that follow each other within this number of seconds count as one.

Examples: the user holds a key down; a program signals a process and also its group; the kernel and
the shell both send SIGHUP when a terminal closes.
"""

_MIN_TIMER_S: Final = 0.001  # 0 disables a timer

_RESEND_S: Final = 0.01
"""The delay before an interrupt that Python ignored is sent again, in seconds."""

EXIT_INTERRUPTED: Final = 130
"""The exit code of an interrupted command, as in shells."""


class _SignalHandler:
    """Raises KeyboardInterrupt at a signal, and at later signals that are not repetitions."""

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
        self.is_ignored = False  # while Python ignores exceptions
        self._received: float | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        now = time.monotonic()
        before, self._received = self._received, now
        # Repeated SIGHUPs count once.
        if before is not None and (number == signal.SIGHUP or now - before < REPEAT_S):
            return
        raise KeyboardInterrupt

    def reset(self) -> None:
        """Accept the next signal even if it is a repetition: the last one had no effect."""
        self._received = None


@contextmanager
def _resend_ignored(handler: _SignalHandler) -> Iterator[None]:
    """Send a signal again if Python has ignored its KeyboardInterrupt.

    Python ignores an exception of a signal handler while a `__del__` method or the callback of a
    weak reference runs. Without a second signal the command would not be interrupted.
    """
    usual = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if ignored.exc_type is not KeyboardInterrupt:
            usual(ignored)
            return
        handler.reset()
        handler.is_ignored = True
        with signals_blocked():
            threading.Thread(target=resend, daemon=True).start()
        # The last statement: Python calls no handler between it and the end of the hook.
        handler.is_ignored = False

    def resend() -> None:
        while handler.is_ignored:  # Python ignores exceptions while the hook runs
            time.sleep(_RESEND_S)
        time.sleep(_RESEND_S)
        os.kill(os.getpid(), handler.number)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


@contextmanager
def as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, SIGHUP and SIGQUIT like Ctrl-C: the block stops what it has started.

    An ignored signal stays ignored, so that a command with `nohup` continues without its terminal.
    A nested block changes nothing, so that a second signal is recognized as the second.
    """
    if any(isinstance(signal.getsignal(number), _SignalHandler) for number in HANDLED):
        yield
        return
    handler = _SignalHandler()
    received = [number for number in HANDLED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in received}
    try:
        with _resend_ignored(handler):
            yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the block after this number of seconds, as Ctrl-C does.

    Raises:
        KeyboardInterrupt: The block took longer, or the user pressed Ctrl-C.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    began = time.monotonic()
    outer_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer_s:  # restart the timer of the caller with its remaining time
            signal.setitimer(
                signal.ITIMER_REAL, max(outer_s - (time.monotonic() - began), _MIN_TIMER_S)
            )


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Delay interrupts until the end of the block, so that the block is never half done."""
    with blockable_interrupts() as defer:
        defer()
        yield


@contextmanager
def blockable_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a function; after its call, interrupts are delayed until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def defer() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)

    try:
        yield defer
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore signals, so that no signal stops a clean-up or prevents its start.

    Only the main thread receives signals, so in another thread there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in HANDLED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        while any(signal.getsignal(number) is not signal.SIG_IGN for number in HANDLED):
            with suppress(KeyboardInterrupt):  # an earlier signal may be delivered now
                signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
                for number in HANDLED:
                    signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield
    finally:
        # Blocked signals are delivered after all handlers are restored.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def way_to_end(code: int) -> str:
    """Say how a process ended, from Python's return code: `exit code 1`, or `SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal
        return f"signal {-code}"


def exit_on_signal() -> None:
    """Let each signal end the process from now on, because the command has ended."""
    for number in HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))


@contextmanager
def on_suspend(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Call `before` when Ctrl-Z stops this process, and `after` when it continues.

    If Ctrl-Z is ignored, as in a shell without job control, it stays ignored.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        before()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here the process continues.
        signal.signal(signal.SIGTSTP, stop)
        after()

    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
