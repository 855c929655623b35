"""End a process together with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # of <sys/prctl.h>

# Loaded before a fork: a child must not load a library.
_libc = ctypes.CDLL(None, use_errno=True)


def set_pdeathsig(parent: int) -> None:
    """Make the kernel kill this process when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
