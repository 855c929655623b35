"""What other processes see of a forked one: its command line and variables in /proc. Linux only."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# Of <linux/prctl.h>; an ordinary user may call this one of the family.
_PR_SET_MM: Final = 35
_PR_SET_MM_MAP: Final = 14
_MAP: Final = struct.Struct("=11QQIi")
"""`struct prctl_mm_map`."""

# Of proc_pid_stat(5), which counts from 1; behind the program's name stands field 3.
_FIRST: Final = 3
_CODE, _END_CODE, _STACK, _DATA, _END_DATA, _BRK = 26, 27, 28, 45, 46, 47


def put_on(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Let /proc show this command line and these variables as this process's own.

    Who looks a program up (`ps`, `pgrep -f`) finds it as if it had been started by itself.

    Raises:
        OSError: The kernel cannot, or does not let this process.
    """
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(
        os.fsencode(name) + b"=" + os.fsencode(value) + b"\0" for name, value in environ.items()
    )
    memory = ctypes.create_string_buffer(words + variables, len(words) + len(variables))
    begin = ctypes.addressof(memory)
    middle, end = begin + len(words), begin + len(words) + len(variables)
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    code, end_code, stack, data, end_data, brk = (
        int(fields[number - _FIRST])
        for number in (_CODE, _END_CODE, _STACK, _DATA, _END_DATA, _BRK)
    )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    places = (code, end_code, data, end_data, brk, libc.sbrk(0), stack)
    # No auxiliary vector, and the executable as it is.
    packed = _MAP.pack(*places, begin, middle, middle, end, 0, 0, -1)
    given = ctypes.create_string_buffer(packed, len(packed))
    if libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, given, ctypes.c_ulong(len(packed)), 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
    # The kernel reads from there as long as the process lives: it is never given back.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
