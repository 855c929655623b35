"""The progress of long work, as one line on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from rich.filesize import decimal

from lab.console import output
from lab.log import LOG

_EVERY_S: Final = 0.2


def shown(doing: str, pieces: Iterable[bytes], total: int = 0) -> Iterator[bytes]:
    """Pass pieces on, and show how far the work has come.

    Args:
        doing: What is done: `saving lab:cpu`.
        pieces: The pieces.
        total: The number of bytes of all pieces; 0: unknown.
    """
    LOG.info(f"{doing} ({decimal(total)})" if total else doing)
    screen, done, drawn = output(), 0, 0.0
    try:
        for piece in pieces:
            done += len(piece)
            if time.monotonic() - drawn > _EVERY_S:
                drawn = time.monotonic()
                share = f"{done / total:.0%} of {decimal(total)}" if total else decimal(done)
                screen.draw(f"{doing}: {share}")
            yield piece
    finally:
        screen.draw("")
