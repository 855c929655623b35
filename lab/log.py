"""The messages for the user: one logger, and where its lines go.

Progress is `LOG.info(line)`, a warning is `LOG.warning(line)`. The line is the only argument, so
that a `%` in it is no format. Without a handler, Python prints only the warnings, to stderr.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LOG: Final = logging.getLogger("lab")
LOG.setLevel(logging.INFO)

Show = Callable[[str], None]
"""Shows one line, and makes its control characters visible."""


class _Lines(logging.Handler):
    """Passes the text of each message to a function."""

    def __init__(self, receive: Show, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._receive = receive

    def emit(self, record: logging.LogRecord) -> None:
        self._receive(record.getMessage())


class _Shown(_Lines):
    """Shows the messages of the innermost block of `shown_by`."""


_BLOCKS: Final[list[_Shown]] = []
"""The handlers of the blocks of `shown_by` that have not ended, the newest last."""

_CHANGES: Final = threading.RLock()


@contextmanager
def shown_by(show: Show, *, quiet: bool = False) -> Iterator[None]:
    """Show the messages of all threads by a function until the block ends, and nowhere else.

    Args:
        show: Shows one line.
        quiet: Show only warnings.
    """
    handler = _Shown(show, logging.WARNING if quiet else logging.INFO)
    try:
        _push(handler)
        yield
    finally:
        _remove(handler)


@contextmanager
def shown_once() -> Iterator[None]:
    """Show each message of the block only once; `passed_on` still passes on all of them."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        before = len(seen)
        seen.add(record.getMessage())
        return len(seen) > before

    handlers = _BLOCKS[-1:]
    for each in handlers:
        each.addFilter(is_new)
    try:
        yield
    finally:
        for each in handlers:
            each.removeFilter(is_new)


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
    """Whether this is in a block of `shown_by`."""
    return bool(_BLOCKS)


def _push(handler: _Shown) -> None:
    """Let a handler show the messages, in place of the one of the block around it."""
    with _CHANGES:
        _BLOCKS.append(handler)
        _attach()


def _remove(handler: _Shown) -> None:
    """End a block. Blocks of several threads may end in any order."""
    with _CHANGES:
        if handler in _BLOCKS:  # not after an interrupt at the beginning of the block
            _BLOCKS.remove(handler)
        _attach()


def _attach() -> None:
    """Attach the handler of the newest block alone; without a block, let messages propagate."""
    newest = _BLOCKS[-1:]
    for each in [each for each in LOG.handlers if isinstance(each, _Shown)]:
        if each not in newest:
            LOG.removeHandler(each)
    for each in newest:
        LOG.addHandler(each)
    LOG.propagate = not newest
