"""The messages for the user: one logger, and where its lines go.

Progress is `LOG.info(line)`, a warning is `LOG.warning(line)`. The line is the only argument, so
that a `%` in it is no format. The logger makes it safe for a terminal, for all handlers, so a
message can contain names and texts from outside as they are. Without a handler, Python prints only
the warnings, to stderr.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from lab.base.text import bounded

LOG: Final = logging.getLogger("lab")
LOG.setLevel(logging.INFO)


def _make_safe(record: logging.LogRecord) -> bool:
    record.msg, record.args = bounded(record.getMessage()), None
    return True


LOG.addFilter(_make_safe)

Show = Callable[[str], None]
"""Shows one safe line."""


class _Lines(logging.Handler):
    """Passes the text of each message to a function."""

    def __init__(self, receive: Show, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._receive = receive

    def emit(self, record: logging.LogRecord) -> None:
        self._receive(record.getMessage())


class _ToBlock(logging.Handler):
    """Shows each message by the block of `shown_by` that it belongs to."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Pass a message on to its block, without a lock: each block has its own."""
        block = _block() or next(reversed(_BLOCKS), None)
        return bool(block and record.levelno >= block.level and block.handle(record))


_BLOCKS: Final[list[_Lines]] = []
"""The handlers of the blocks of `shown_by` that have not ended, the newest last."""

_OWN: Final[ContextVar[_Lines | None]] = ContextVar("own", default=None)
"""The handler of the innermost block of this thread."""

_CHANGES: Final = threading.RLock()
_TO_BLOCK: Final = _ToBlock()


@contextmanager
def shown_by(show: Show, *, quiet: bool = False) -> Iterator[None]:
    """Show the messages of this thread by a function until the block ends, and nowhere else.

    The newest block also shows the messages of threads that have no block.

    Args:
        show: Shows one line.
        quiet: Show only warnings.
    """
    block, before = _Lines(show, logging.WARNING if quiet else logging.INFO), _OWN.get()
    try:
        with _CHANGES:
            _BLOCKS.append(block)
            _attach()
        _OWN.set(block)
        yield
    finally:
        _OWN.set(before)
        with _CHANGES:
            if block in _BLOCKS:  # not after an interrupt at the beginning of the block
                _BLOCKS.remove(block)
            _attach()


@contextmanager
def shown_once() -> Iterator[None]:
    """Show each message of the block only once; `passed_on` still passes on all of them."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        before = len(seen)
        seen.add(record.getMessage())
        return len(seen) > before

    block = _block() or _TO_BLOCK
    block.addFilter(is_new)
    try:
        yield
    finally:
        block.removeFilter(is_new)


@contextmanager
def passed_on(receive: Show) -> Iterator[None]:
    """Pass the messages of this thread also to a function, until the block ends."""
    handler, thread = _Lines(receive), threading.get_ident()
    handler.addFilter(lambda record: record.thread == thread)
    LOG.addHandler(handler)
    try:
        yield
    finally:
        LOG.removeHandler(handler)


def is_shown() -> bool:
    """Whether this thread is in a block of `shown_by`."""
    return _block() is not None


def _block() -> _Lines | None:
    """Return the handler of this thread's block. Blocks of several threads end in any order."""
    own = _OWN.get()
    return own if own in _BLOCKS else None


def _attach() -> None:
    """Attach the handler while there is a block; without a block, let messages propagate."""
    if _BLOCKS:
        LOG.addHandler(_TO_BLOCK)
    else:
        LOG.removeHandler(_TO_BLOCK)
    LOG.propagate = not _BLOCKS
