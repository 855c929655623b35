"""Wait for a run store that refuses writes: its disk may be full for a moment."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

from lab.log import LOG
from lab.volume.files import Patience

T = TypeVar("T")

DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
"""The errors of a disk that is full or fails, and not of one file."""

REFUSED_S: Final = 30.0
"""Seconds for which a client waits for a run store that refuses writes; the run continues."""

_RETRY_S: Final = 1.0


def patiently(
    action: Callable[[], T],
    wait: Callable[[], None] = lambda: None,
    size: Callable[[], int] = lambda: 0,
) -> T:
    """Repeat an action while the run store refuses writes.

    Args:
        action: The action. If it fails only after `REFUSED_S`, the disk has accepted writes since.
        wait: Called before each repetition.
        size: Returns the bytes that are written. If they have changed since the last refusal, the
            disk has accepted writes since.

    Raises:
        OSError: The run store refuses writes for `REFUSED_S`.
    """

    def refused(error: OSError) -> None:
        cause = (error.strerror or str(error)).lower()
        LOG.warning(f"the run store cannot be written: {cause}; the run continues")

    patience = Patience(REFUSED_S, refused)
    while True:
        began = time.monotonic()
        try:
            return action()
        except OSError as error:
            if time.monotonic() - began > REFUSED_S:
                patience.succeed()
            if error.errno not in DISK_ERRORS or patience.fail(error, progress=size()):
                raise
        time.sleep(_RETRY_S)
        wait()
