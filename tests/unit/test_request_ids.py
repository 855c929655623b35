"""Seeds that do not repeat, and where a library keeps the address of a function."""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.task.tf1 import request_ids
from lab.task.tf1.request_ids import ATTEMPTS, TASKS, number_requests, relocations

WINDOW = 100_000
"""The number of requests that a server remembers."""


def seeds(task: int, attempt: int) -> Iterator[int]:
    """The results of `mrand48` for this state, as its manual describes it."""
    state, factor = (task | attempt << 28) << 16 | 1, 1 + (TASKS << 16)
    while True:
        state = state * factor % 2**48
        yield state >> 16


@pytest.mark.parametrize("attempt", [0, 1, ATTEMPTS - 1])
@pytest.mark.parametrize("task", [0, 1, 2, 77, TASKS - 1])
def test_seeds_end_in_the_tasks_number_and_do_not_repeat(task: int, attempt: int) -> None:
    found = list(itertools.islice(seeds(task, attempt), WINDOW))
    assert {each % TASKS for each in found} == {task}
    assert len(set(found)) == WINDOW


@pytest.mark.parametrize("task", [0, 3, 200])
def test_the_next_attempt_repeats_none_of_the_last_ones(task: int) -> None:
    drawn = [set(itertools.islice(seeds(task, attempt), WINDOW)) for attempt in range(ATTEMPTS)]
    assert len(set.union(*drawn)) == ATTEMPTS * WINDOW


def test_mrand48_counts_as_described() -> None:
    """In a separate process: the C library has one state."""
    code = (
        "import ctypes, sys\n"
        "from lab.task.tf1 import request_ids\n"
        "place = ctypes.c_void_p()\n"
        "request_ids._table_entries = lambda: [(ctypes.addressof(place), 3)]\n"
        "assert request_ids.number_requests(77, 3)\n"
        "count = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(place.value)\n"
        "print(*(count(None) for _ in range(5)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [int(each) for each in done.stdout.split()] == [*itertools.islice(seeds(77, 3), 5)]


def test_nothing_changes_where_it_is_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_ids, "_table_entries", list)
    assert not number_requests(0, 0)
    monkeypatch.setattr(request_ids, "_table_entries", lambda: pytest.fail("it was looked for"))
    assert not number_requests(TASKS, 0)
    assert not number_requests(0, ATTEMPTS)


def test_the_address_of_a_function_is_where_documented() -> None:
    library = Path(_ctypes.__file__)
    maps = Path("/proc/self/maps").read_text().splitlines()
    (start,) = [
        int(line.split("-")[0], 16)
        for line in maps
        if line.endswith(f" {library}") and line.split()[2] == "00000000"
    ]
    (offset,) = relocations(library, b"dlsym")
    # Before its first call such a place may lead back into the library.
    ctypes.pythonapi.PyOS_getsig  # noqa: B018  (calls dlsym)
    kept = ctypes.c_void_p.from_address(start + offset).value
    assert kept == ctypes.cast(ctypes.CDLL(None).dlsym, ctypes.c_void_p).value


def test_uncalled_functions_and_invalid_libraries(tmp_path: Path) -> None:
    assert list(relocations(Path(_ctypes.__file__), b"dlsy")) == []
    assert list(relocations(Path(_ctypes.__file__), b"nothing")) == []
    other = tmp_path / "text"
    other.write_bytes(os.urandom(64).replace(b"\x7f", b"-"))
    assert list(relocations(other, b"dlsym")) == []
