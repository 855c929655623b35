"""Seeds that do not repeat, and where a library keeps the address of a function."""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import json
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.task import request_ids
from lab.task.request_ids import (
    ATTEMPTS,
    TASKS,
    Place,
    number_at,
    number_requests,
    place_in,
    place_of,
    position_of,
    relocations,
)
from tests.support.commands import python


def seeds(task: int, attempt: int) -> Iterator[int]:
    """The results of `random` for this state, as its source computes them."""
    number = number_at(position_of(Place(task, 4, "r1", attempt)))
    while True:
        number = (1103515245 * number + 12345) % 2**31
        yield number


FORKS = """\
import ctypes, os
from lab.task import request_ids

place = ctypes.c_void_p()
request_ids._table_entries = lambda symbol: [(ctypes.addressof(place), 3)]
request_ids.number_requests(request_ids.Place(2, 4, "r1", 1), exit)
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
    done = python("-c", FORKS, check=True)
    own = seeds(2, 1)
    next(own)
    assert [*map(int, done.stdout.split())] == [next(seeds(6, 1)), next(seeds(10, 1)), next(own)]


def test_jumping_ahead_is_counting() -> None:
    number = 1
    for position in range(100):
        assert number_at(position) == number
        number = (1103515245 * number + 12345) % 2**31
    assert number_at(2**31) == 1


def test_programs_begin_apart() -> None:
    first, other = (
        [
            position_of(Place(task, TASKS, run, attempt))
            for task in range(TASKS)
            for attempt in range(ATTEMPTS)
        ]
        for run in ("r1", "r2")
    )
    # Each begins 524,288 numbers after the one before.
    assert {after - before for before, after in itertools.pairwise(first)} == {2**19}
    assert first[-1] - first[0] == 2**31 - 2**19
    assert abs(first[0] - other[0]) > 1000
    by_hand = {position_of(Place(3, 4)) for _ in range(100)}
    assert {position // 2**23 for position in by_hand} == {3}
    assert len(by_hand) > 90


CLUSTER = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}


def test_a_run_gives_each_program_its_place() -> None:
    tf_config = json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})
    run = {"TF_CONFIG": tf_config, "LAB_TASK": "worker-1"}
    run |= {"LAB_RUN_DIR": "/runs/r1", "LAB_ATTEMPT": "4"}
    assert place_of(run) == place_in(CLUSTER, "worker", 1, run) == Place(2, 3, "r1", 4)
    assert place_in(CLUSTER, "ps", 0, {}) == Place(0, 3)
    # An evaluator has no address: it sends no requests to the cluster.
    assert place_in(CLUSTER, "evaluator", 0, {}) is None
    assert place_of({"TF_CONFIG": tf_config}) is None
    assert place_of({"LAB_TASK": "worker-1"}) is None


COUNT = """\
import ctypes, sys, threading
from lab.task import request_ids

places = {request_ids.DEVICE: ctypes.c_void_p(), request_ids.SEEDING: ctypes.c_void_p()}
request_ids._table_entries = lambda symbol: [(ctypes.addressof(places[symbol]), 3)]
request_ids.number_requests(request_ids.Place(77, 78, "r1", 3), exit)
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
    done = python("-c", COUNT, cwd=Path(__file__).parents[3], check=True)
    first, second, distinct = done.stdout.splitlines()
    expected = [str(each) for each in itertools.islice(seeds(77, 3), 5)]
    # What TensorFlow's libraries do to start `random` again has no effect.
    assert [*first.split(), *second.split()] == expected
    assert int(distinct) == 800_000


@pytest.mark.parametrize(
    ("place", "entries", "reason"),
    [
        (Place(0, 1), [], "this TensorFlow does not call std::random_device as expected"),
        (Place(0, 1), [(4096, 3)], "the memory cannot be changed (Cannot allocate memory)"),
        (
            Place(TASKS, 300),
            None,
            "this is task 257, and only 256 have ids of their own",
        ),
        (
            Place(0, 1, "r1", ATTEMPTS),
            None,
            "this is start 17, and only 16 have ids of their own",
        ),
    ],
)
def test_a_line_says_where_it_is_impossible(
    monkeypatch: pytest.MonkeyPatch,
    place: Place,
    entries: list[tuple[int, int]] | None,
    reason: str,
) -> None:
    def found(_: bytes) -> list[tuple[int, int]]:
        assert entries is not None, "TensorFlow's libraries were read"
        return entries

    monkeypatch.setattr(request_ids, "_table_entries", found)
    lines: list[str] = []
    number_requests(place, lines.append)
    assert lines == [f"request ids may repeat, and TensorFlow may refuse a step: {reason}"]
    number_requests(None, lines.append)
    assert len(lines) == 1


def test_what_cannot_be_changed_at_one_place_is_changed_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = ctypes.c_void_p(1)
    entries = {request_ids.DEVICE: ctypes.addressof(place), request_ids.SEEDING: 4096}
    monkeypatch.setattr(request_ids, "_table_entries", lambda symbol: [(entries[symbol], 3)])
    begun: list[Place] = []
    monkeypatch.setattr(request_ids, "position_of", begun.append)
    number_requests(Place(0, 1), (lines := list[str]()).append)
    assert (len(lines), place.value, begun) == (1, 1, [])


def test_the_address_of_a_function_is_where_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Path(_ctypes.__file__)
    monkeypatch.setattr(request_ids, "LIBRARIES", re.compile(re.escape(library.name)))
    # Before its first call such a place may lead back into the library.
    ctypes.pythonapi.PyOS_getsig  # noqa: B018  (calls dlsym)

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count(f" {library}\n")

    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        mapped, entries = mappings(), request_ids._table_entries(b"dlsym")
        address, _ = next(entries)
        # A frame that someone holds keeps no mapping, and a reader's copy is not the library.
        assert mappings() == mapped
        assert list(entries) == []
    kept = ctypes.c_void_p.from_address(address).value
    assert kept == ctypes.cast(ctypes.CDLL(None).dlsym, ctypes.c_void_p).value


def test_uncalled_functions_and_invalid_libraries(tmp_path: Path) -> None:
    assert list(relocations(Path(_ctypes.__file__), b"dlsy")) == []
    assert list(relocations(Path(_ctypes.__file__), b"nothing")) == []
    other = tmp_path / "text"
    other.write_bytes(os.urandom(64).replace(b"\x7f", b"-"))
    assert list(relocations(other, b"dlsym")) == []
