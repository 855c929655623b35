"""What a command does with signals while it builds something up, or takes it down."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ALSO_INTERRUPT: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C: what the block has started, it takes down.

    One that is ignored stays so: `nohup` wants the command to outlive its terminal.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    heard = [n for n in _ALSO_INTERRUPT if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended: it is done, or it is not."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *_ALSO_INTERRUPT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal break off a clean-up half-way."""
    numbers = (signal.SIGINT, *_ALSO_INTERRUPT)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
