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
from lab.task.tf1.request_ids import ATTEMPTS, TASKS, number_at, number_requests, relocations


def seeds(task: int, attempt: int) -> Iterator[int]:
    """The results of `random` for this state, as its source computes them."""
    number = number_at((task * ATTEMPTS + attempt) * 2**31 // (TASKS * ATTEMPTS))
    while True:
        number = (1103515245 * number + 12345) % 2**31
        yield number


FORKS = """\
import ctypes, os
from lab.task.tf1 import request_ids

place = ctypes.c_void_p()
request_ids._table_entries = lambda symbol: [(ctypes.addressof(place), 3)]
assert request_ids.number_requests(2, 1, 4)
random = ctypes.CDLL(None).random
random()
for _ in range(2):
    if not (child := os.fork()):
        print(random(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(random())
"""


def test_a_forked_process_draws_the_seeds_of_a_task_that_the_cluster_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    own = seeds(2, 1)
    next(own)
    assert [*map(int, done.stdout.split())] == [next(seeds(6, 1)), next(seeds(10, 1)), next(own)]


def test_jumping_ahead_is_counting() -> None:
    number = 1
    for position in range(100):
        assert number_at(position) == number
        number = (1103515245 * number + 12345) % 2**31
    assert number_at(2**31) == 1
    # Tasks and attempts share no numbers: each begins 524,288 numbers after the one before.
    # `random` takes 1 instead of 0, which would make two tasks draw the same seeds.
    starts = [number_at(each * 2**19) for each in range(TASKS * ATTEMPTS)]
    assert len({*starts, 0}) == TASKS * ATTEMPTS + 1


COUNT = """\
import ctypes, sys, threading
from lab.task.tf1 import request_ids

places = {request_ids.DEVICE: ctypes.c_void_p(), request_ids.SEEDING: ctypes.c_void_p()}
request_ids._table_entries = lambda symbol: [(ctypes.addressof(places[symbol]), 3)]
assert request_ids.number_requests(77, 3)
draw = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(places[request_ids.DEVICE].value)
seed = ctypes.CFUNCTYPE(None, ctypes.c_uint)(places[request_ids.SEEDING].value)
print(*(draw(None) for _ in range(3)))
seed(5)
print(*(draw(None) for _ in range(2)))
drawn = [[] for _ in range(4)]
sys.setswitchinterval(1e-6)
threads = [
    threading.Thread(target=lambda mine=mine: mine.extend(draw(None) for _ in range(200_000)))
    for mine in drawn
]
for each in threads: each.start()
for each in threads: each.join()
print(len(set().union(*drawn)))
"""


def test_random_counts_as_described_in_all_threads() -> None:
    """In a separate process: the C library has one state."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    first, second, distinct = done.stdout.splitlines()
    expected = [str(each) for each in itertools.islice(seeds(77, 3), 5)]
    # What TensorFlow's libraries do to start `random` again has no effect.
    assert [*first.split(), *second.split()] == expected
    assert int(distinct) == 800_000


def test_nothing_changes_where_it_is_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_ids, "_table_entries", lambda _: [])
    assert not number_requests(0, 0)
    monkeypatch.setattr(request_ids, "_table_entries", lambda _: pytest.fail("it was looked for"))
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
