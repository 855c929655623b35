"""Signals of a command: it stops what it has started, and no signal breaks off its clean-up."""

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

from lab.threads import signals_blocked

HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Each of them ends a command. None may dump core or show a traceback."""

REPEAT_S: Final = 0.5
"""Signals that follow each other within this number of seconds count as one.

Examples are a key that is held down, a signal that is sent to a process and to its group, and the
SIGHUP that both the kernel and the shell send when a terminal closes.
"""

_MIN_TIMER_S: Final = 0.001  # zero would switch a timer off

_RESEND_S: Final = 0.01
"""When an interrupt is sent again that Python has ignored, in seconds."""

EXIT_INTERRUPTED: Final = 130
"""The exit code of a command that was interrupted, as shells give it."""


class _SignalHandler:
    """Raises KeyboardInterrupt at a signal, and at each later one that does not repeat it."""

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
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
        """Let the next signal count, because the last one had no effect."""
        self._received = None


@contextmanager
def _resend_ignored(ear: _SignalHandler) -> Iterator[None]:
    """Send a signal again whose KeyboardInterrupt Python has ignored.

    Python ignores what a signal handler raises while a `__del__` or the callback of a weak
    reference runs. Without this the command would go on as if it had not been interrupted.
    """
    usual = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if ignored.exc_type is not KeyboardInterrupt:
            usual(ignored)
            return
        ear.reset()
        # Not at once: this hook runs where an exception is ignored.
        again = threading.Timer(_RESEND_S, os.kill, (os.getpid(), ear.number))
        again.daemon = True
        with signals_blocked():
            again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


@contextmanager
def as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, SIGHUP and SIGQUIT like Ctrl-C: the block stops what it has started.

    A signal that is ignored stays ignored: `nohup` lets the command outlive its terminal. Inside
    another such block nothing changes, so that a second signal is known as the second.
    """
    if any(isinstance(signal.getsignal(number), _SignalHandler) for number in HANDLED):
        yield
        return
    ear = _SignalHandler()
    received = [number for number in HANDLED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ear) for number in received}
    try:
        with _resend_ignored(ear):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the block after this number of seconds, as Ctrl-C does.

    Raises:
        KeyboardInterrupt: The block took longer, or the user pressed Ctrl-C.
    """

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    began = time.monotonic()
    outer_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer_s:  # a timer of the caller continues
            signal.setitimer(
                signal.ITIMER_REAL, max(outer_s - (time.monotonic() - began), _MIN_TIMER_S)
            )


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Block interrupts until the block has ended: it happens as a whole, or not at all."""
    with blockable_interrupts() as defer:
        defer()
        yield


@contextmanager
def blockable_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a function; from its call on, interrupts wait for the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def defer() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)

    try:
        yield defer
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore signals, so that none breaks off a clean-up or prevents its start."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        while any(signal.getsignal(number) is not signal.SIG_IGN for number in HANDLED):
            with suppress(KeyboardInterrupt):  # a signal from before, delivered now
                signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
                for number in HANDLED:
                    signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield
    finally:
        # A signal that comes meanwhile is delivered when all handlers are back.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def exit_on_signal() -> None:
    """Let a signal end the process from here on: the command is done, and Python exits."""
    for number in HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))


@contextmanager
def on_suspend(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Call `before` when Ctrl-Z stops this process, and `after` when it continues.

    A shell without job control has Ctrl-Z ignored; that stays so.
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
