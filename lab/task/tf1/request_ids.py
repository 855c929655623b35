"""Make request ids that do not repeat, so that TensorFlow refuses no step by mistake.

A TensorFlow server refuses a request if its id is among the last 100,000. TensorFlow draws the ids
from a generator that it creates in the new thread of each step. It seeds the generator with 32
random bits from C++'s `std::random_device`. So ids repeat after some ten thousand steps. If a
refusal arrives before the session's own server has begun its part of the step, it is lost, and the
step never ends.

This module replaces each call of `std::random_device` in TensorFlow's libraries by a call of the C
library's `mrand48`, set up as a counter: all seeds of a cluster differ. TensorFlow's libraries call
other libraries through tables of addresses. The module changes the address in these tables.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

LIBRARIES: Final = re.compile(r"libtensorflow_(framework|cc)\.so\.2")
SYMBOL: Final = b"_ZNSt13random_device9_M_getvalEv"
"""The compiled name of `std::random_device::_M_getval()`, which returns 32 bits."""

TASKS: Final = 256
ATTEMPTS: Final = 16

_PAGE: Final = mmap.PAGESIZE
_LOAD, _DYNAMIC = 1, 2
_STRINGS, _SYMBOLS = 5, 6
_TABLES: Final = ((7, 8), (23, 2))  # tags of the address and the size of each table of relocations
_SYMBOL_SIZE = 24  # bytes; the first 4 have the position of the name


class Mapping(NamedTuple):
    """A part of this process's memory.

    Attributes:
        start: Its first address.
        end: The address after its last one.
        protection: The flags for `mprotect`.
        offset: The position of its beginning in the file.
        path: The file.
    """

    start: int
    end: int
    protection: int
    offset: int
    path: Path


def number_requests(task: int, attempt: int) -> bool:
    """Make this process draw request ids that no other task and no other attempt draws.

    TensorFlow must be imported before.

    Args:
        task: The task's number in the cluster, from 0.
        attempt: The number of earlier starts of its program.

    Returns:
        Whether it succeeded: there are at most 256 tasks and 16 attempts, and TensorFlow's
        libraries have the expected form.
    """
    if task >= TASKS or attempt >= ATTEMPTS:
        return False
    # The lowest 8 bits are the task's number. The 24 bits above are a counter. Each attempt starts
    # it at another number. It wraps around after 16.7 million threads.
    return seed_threads(task | attempt << 28, step=TASKS)


def seed_threads(first: int, *, step: int) -> bool:
    """Make TensorFlow seed its threads' generators with numbers that differ by a fixed step.

    `mrand48` keeps 48 bits, multiplies them by a factor, and returns the upper 32. With 1 in the
    lower 16 bits and the factor 1 + 65536 · step, the upper ones change from n to
    n + step · (1 + 65536 · n), modulo 2³². For a step of 256 that is n + 256 + 2²⁴ · (n mod 256):
    the lowest 8 bits stay, and those above grow by the same odd number each time.

    Args:
        first: The start value of `mrand48`, 32 bits.
        step: The difference of two numbers.

    Returns:
        Whether TensorFlow's libraries have the expected form; if not, nothing changes.
    """
    entries = list(_table_entries())
    if not entries:
        return False
    c = ctypes.CDLL(None, use_errno=True)
    factor = 1 + (step << 16)
    state = (1, first, first >> 16, factor, factor >> 16, factor >> 32, 0)
    c.lcong48((ctypes.c_ushort * 7)(*(each & 0xFFFF for each in state)))
    counter = ctypes.cast(c.mrand48, ctypes.c_void_p).value
    for address, protection in entries:
        page = ctypes.c_void_p(address - address % _PAGE)
        if c.mprotect(page, _PAGE, mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        ctypes.c_void_p.from_address(address).value = counter
        c.mprotect(page, _PAGE, protection)
    return True


def _table_entries() -> Iterator[tuple[int, int]]:
    """Yield the addresses and flags of the entries for the function in TensorFlow's libraries."""
    mappings = list(_mappings())
    for first in mappings:
        if first.offset == 0 and LIBRARIES.fullmatch(first.path.name):
            for offset in relocations(first.path, SYMBOL):
                address = first.start + offset
                yield from (
                    (address, each.protection)
                    for each in mappings
                    if each.start <= address < each.end
                )


def _mappings() -> Iterator[Mapping]:
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        addresses, letters, offset, _, _, *path = line.split(maxsplit=5)
        start, end = (int(each, 16) for each in addresses.split("-"))
        bits = {"r": mmap.PROT_READ, "w": mmap.PROT_WRITE, "x": mmap.PROT_EXEC}
        protection = sum(bits.get(letter, 0) for letter in letters)
        yield Mapping(start, end, protection, int(offset, 16), Path(*path))


def relocations(library: Path, symbol: bytes) -> Iterator[int]:
    """Yield the table entries for a function in a library, relative to its load address.

    The format is ELF with 64 bits, as <https://refspecs.linuxfoundation.org/elf/elf.pdf> and the
    x86-64 and AArch64 supplements describe it. For another format the function yields nothing.
    """
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image:
        if image[:6] != b"\x7fELF\x02\x01":
            return
        (headers,) = struct.unpack_from("<Q", image, 32)
        size, count = struct.unpack_from("<HH", image, 54)
        segments = [
            struct.unpack_from("<I4xQQ8xQ", image, headers + i * size) for i in range(count)
        ]

        def file_position(address: int) -> int:
            """Return the file position of a load address."""
            return next(
                int(offset + address - start)
                for kind, offset, start, length in segments
                if kind == _LOAD and start <= address < start + length
            )

        dynamic = next(offset for kind, offset, *_ in segments if kind == _DYNAMIC)
        pairs = struct.iter_unpack("<QQ", image[dynamic : dynamic + 16 * 100])
        tags = dict(takewhile(lambda pair: pair[0] != 0, pairs))
        strings = file_position(tags[_STRINGS])
        wanted = image.find(b"\0" + symbol + b"\0", strings) + 1 - strings
        first = file_position(tags[_SYMBOLS])
        names = np.memmap(library, "<u4", "r", first, (len(image) - first) // 4)
        for table, length in _TABLES:
            if table in tags:
                entries = np.memmap(
                    library, "<u8", "r", file_position(tags[table]), tags[length] // 8
                )
                offsets, numbers = entries[0::3], entries[1::3] >> 32
                is_wanted = names[numbers * (_SYMBOL_SIZE // 4)] == wanted
                yield from offsets[(numbers > 0) & is_wanted].tolist()
