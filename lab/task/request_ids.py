"""Make request ids that do not repeat, so that TensorFlow refuses no step by mistake.

A TensorFlow server refuses a request if its id is among the last 100,000. TensorFlow draws the ids
from a generator that it creates in the new thread of each step. It seeds the generator with 32
random bits from C++'s `std::random_device`. So ids repeat after some ten thousand steps. If a
refusal arrives before the session's own server has begun its part of the step, it is lost, and the
step never ends.

This module replaces each call of `std::random_device` in TensorFlow's libraries by a call of the C
library's `random`, set up so that all seeds of a cluster differ. `random` has a lock: of the C
library's other generators, two threads may draw the same number. TensorFlow's libraries call other
libraries through tables of addresses. The module changes the address in these tables, which takes
less than 0.1 s.

TensorFlow also takes random numbers without a seed from this source. So the seeds begin elsewhere
in each run.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from lab.base.variables import LAB_ATTEMPT, LAB_RUN_DIR, LAB_TASK

LIBRARIES: Final = re.compile(r"libtensorflow_(framework|cc)\.so\.2")
DEVICE: Final = b"_ZNSt13random_device9_M_getvalEv"
"""The compiled name of `std::random_device::_M_getval()`, which returns 32 bits."""

SEEDING: Final = b"srand"
"""The function that seeds `random` again; TensorFlow's libraries call it, too."""

TASKS: Final = 256
ATTEMPTS: Final = 16

_PERIOD: Final = 2**31
_TASK_PART: Final = _PERIOD // TASKS
_ATTEMPT_PART: Final = _TASK_PART // ATTEMPTS
_STATE: Final = ctypes.create_string_buffer(8)
"""The memory of `random`; with 8 bytes it is a simple generator."""

_PAGE: Final = mmap.PAGESIZE
_LINK_MAP: Final = 2  # RTLD_DI_LINKMAP: the entry with load address, name and dynamic section
_STRINGS, _SYMBOLS, _STRINGS_SIZE = 5, 6, 10
_TABLES: Final = ((7, 8), (23, 2))  # tags of the address and the size of each table of relocations
_SYMBOL_SIZE = 24  # bytes; the first 4 have the position of the name


class Place(NamedTuple):
    """A program's place among all programs that draw request ids for the same servers.

    Attributes:
        task: The task's number in the cluster, from 0.
        tasks: The number of the cluster's tasks.
        run: The run's id; "" if the user started the program.
        attempt: The number of earlier starts of the task's program in the run.
    """

    task: int
    tasks: int
    run: str = ""
    attempt: int = 0


def place_of(environ: Mapping[str, str]) -> Place | None:
    """Find this program's place by the variables of its run.

    Returns:
        The place; None if the program is not in a run, or its run has no cluster.
    """
    job, _, index = environ.get(LAB_TASK, "").rpartition("-")
    cluster = json.loads(environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return place_in(cluster, job, int(index), environ) if job else None


def place_in(
    cluster: Mapping[str, Sequence[str]], job: str, index: int, environ: Mapping[str, str]
) -> Place | None:
    """Return a task's place; None if the cluster lacks the task, which then sends no requests.

    Args:
        cluster: Job to addresses, in the same order in all tasks.
        job: The task's job.
        index: Its index in the job.
        environ: The variables of its run, if any.
    """
    tasks = [(name, number) for name, hosts in cluster.items() for number in range(len(hosts))]
    if (job, index) not in tasks:
        return None
    run, attempt = Path(environ.get(LAB_RUN_DIR, "")).name, int(environ.get(LAB_ATTEMPT) or 0)
    return Place(tasks.index((job, index)), len(tasks), run, attempt)


def number_requests(place: Place | None, notify: Callable[[str], object]) -> None:
    """Make this process draw request ids that no other task and no other attempt draws.

    TensorFlow must be imported before. A process that this one forks draws the ids of a task that
    the cluster does not have: a program may start servers in several processes.

    Args:
        place: The program's place; None: nothing changes.
        notify: Receives a line if it is impossible. There may be at most 256 tasks and 16 attempts,
            and TensorFlow's libraries must have the expected form.
    """
    if place is not None and (reason := _number(place)):
        notify(f"request ids may repeat, and TensorFlow may refuse a step: {reason}")


def _number(place: Place) -> str | None:
    """Number the requests; return the reason if it is impossible."""
    if place.task >= TASKS:
        return f"this is task {place.task + 1}, and only {TASKS} have ids of their own"
    if place.attempt >= ATTEMPTS:
        return f"this is start {place.attempt + 1}, and only {ATTEMPTS} have ids of their own"
    c = ctypes.CDLL(None, use_errno=True)

    def begin(place: Place) -> None:
        c.initstate(number_at(position_of(place)), _STATE, len(_STATE))

    try:
        if not call_instead(DEVICE, c.random, lambda: begin(place)):
            return "this TensorFlow does not call std::random_device as expected"
    except OSError as error:
        return f"the memory cannot be changed ({error.strerror})"
    forks: list[None] = []  # each makes it longer

    def begin_in_child() -> None:
        begin(place._replace(task=(place.task + len(forks) * place.tasks) % TASKS))

    os.register_at_fork(before=lambda: forks.append(None), after_in_child=begin_in_child)
    return None


def position_of(place: Place) -> int:
    """Return the position of the first number of a program.

    Each task has a part of the generator's period, with room for 524,288 threads of each attempt.
    If the user starts a task again, its earlier numbers are unknown: it begins anywhere in its
    part, which has 8,388,608 numbers.
    """
    start = place.task * _TASK_PART
    if not place.run:
        return start + int.from_bytes(os.urandom(4), "little") % _TASK_PART
    return crc32(place.run.encode()) + start + place.attempt * _ATTEMPT_PART


def number_at(position: int) -> int:
    """Return a number of the C library's `random` with a state of 8 bytes, which begins with 1.

    The next number is 1103515245 · n + 12345, modulo 2³¹. So the numbers do not repeat before 2³¹.
    """
    factor, summand, number = 1103515245, 12345, 1
    while position:
        if position % 2:
            number = (number * factor + summand) % _PERIOD
        # Two steps at once have these constants.
        factor, summand = factor * factor % _PERIOD, (factor + 1) * summand % _PERIOD
        position //= 2
    return number


def call_instead(
    symbol: bytes, function: ctypes._NamedFuncPointer, begin: Callable[[], object] = int
) -> bool:
    """Make TensorFlow's libraries call a function of the C library instead of another function.

    Their calls of `srand` become calls of `abs`, which has no effect, so that they no longer seed
    `random`. Either all addresses change, or none.

    Args:
        symbol: The compiled name of the function that they call.
        function: The function that they will call.
        begin: Called before the first change.

    Returns:
        Whether TensorFlow's libraries have the expected form; if not, nothing changes.

    Raises:
        OSError: The memory cannot be changed.
    """
    entries, seeding = list(_table_entries(symbol)), list(_table_entries(SEEDING))
    if entries:
        with _writable([*entries, *seeding]):
            begin()
            for called, changed in ((function, entries), (ctypes.CDLL(None).abs, seeding)):
                for address, _ in changed:
                    place = ctypes.c_void_p.from_address(address)
                    place.value = ctypes.cast(called, ctypes.c_void_p).value
    return bool(entries)


@contextmanager
def _writable(entries: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Make all entries of tables writable, or change nothing and raise `OSError`."""
    c = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as restored:
        for address, protection in entries:
            page = ctypes.c_void_p(address - address % _PAGE)
            if c.mprotect(page, _PAGE, mmap.PROT_READ | mmap.PROT_WRITE):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            restored.callback(c.mprotect, page, _PAGE, protection)
        yield


def _table_entries(symbol: bytes) -> Iterator[tuple[int, int]]:
    """Yield the addresses and flags of a function's entries in TensorFlow's libraries."""
    mappings = list(_mappings())
    for library in {path for _, _, path in mappings if LIBRARIES.fullmatch(path.name)}:
        addresses = [*relocations(library, symbol)]
        for memory, protection, _ in mappings:
            yield from ((address, protection) for address in addresses if address in memory)


def _mappings() -> Iterator[tuple[range, int, Path]]:
    """Yield the addresses, the flags for `mprotect` and the file of each part of the memory."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        addresses, letters, _, _, _, *path = line.split(maxsplit=5)
        bits = {"r": mmap.PROT_READ, "w": mmap.PROT_WRITE, "x": mmap.PROT_EXEC}
        protection = sum(bits.get(letter, 0) for letter in letters)
        yield range(*(int(bound, 16) for bound in addresses.split("-"))), protection, Path(*path)


def relocations(library: Path, symbol: bytes) -> Iterator[int]:
    """Yield the addresses of the table entries for a function in a library.

    The loader says where the library's dynamic section is; the file may also be mapped by a reader.
    Its format is ELF with 64 bits, as <https://refspecs.linuxfoundation.org/elf/elf.pdf> and the
    x86-64 and AArch64 supplements describe it. In memory it has addresses: the C library has added
    the load address. For a file that is not loaded the function yields nothing.
    """
    import numpy as np  # noqa: PLC0415 (a program that does not import TensorFlow may not need it)

    try:
        handle = ctypes.CDLL(str(library), os.RTLD_NOLOAD)._handle
    except OSError:  # not loaded
        return
    read, link_map = ctypes.string_at, ctypes.c_void_p()
    ctypes.CDLL(None).dlinfo(ctypes.c_void_p(handle), _LINK_MAP, ctypes.byref(link_map))
    start, _, dynamic = struct.unpack("PPP", read(link_map.value or 0, 24))
    pairs = (struct.unpack("QQ", read(dynamic + position, 16)) for position in count(0, 16))
    tags = dict(takewhile(lambda pair: pair[0] != 0, pairs))
    wanted = read(tags[_STRINGS], tags[_STRINGS_SIZE]).find(b"\0" + symbol + b"\0") + 1
    for table, length in _TABLES:
        if table in tags:
            entries = np.frombuffer(read(tags[table], tags[length]), "<u8")
            offsets, numbers = entries[0::3], entries[1::3] >> 32
            symbols = read(tags[_SYMBOLS], (int(numbers.max(initial=0)) + 1) * _SYMBOL_SIZE)
            names = np.frombuffer(symbols, "<u4")
            is_wanted = names[numbers * (_SYMBOL_SIZE // 4)] == wanted
            yield from (start + offset for offset in offsets[(numbers > 0) & is_wanted].tolist())
