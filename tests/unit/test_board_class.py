"""The board of a class."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from threading import Event
from unittest.mock import Mock

import msgspec
import pytest

from lab.board import class_feed, class_gpus
from lab.board.class_feed import EVERY_S, ClassFeed
from lab.board.class_gpus import PATIENCE_S, GpuReader, gpu_rows
from lab.board.source import encoded
from lab.classroom.queue.folder import Queued
from lab.classroom.seat_report import RunReport
from lab.classroom.state import ClassDir
from lab.classroom.status import SeatStatus
from lab.errors import LabError
from lab.gpu import Condition, Fault, NvmlError
from lab.run.gpu_metrics import Sample
from lab.units import GIB, MIB
from tests.golden.boxes import uuid_of
from tests.support.agents import wait_for
from tests.support.classes import a_plan, created, own_state, stored  # noqa: F401
from tests.support.engine import ROOT
from tests.support.nvml.library import Driver
from tests.support.specs import HOSTILE

RUN = RunReport("r1", "async", "training", 61.0, 1_200, 2.0)
LATE = msgspec.structs.replace(RUN, since_step_s=95.0)
FORGED = RunReport("r1", HOSTILE[:60], HOSTILE[:60], 1.0, None, None)
SEATS = [
    SeatStatus("ada", "ready", ("GPU-0123456789ab",), 3.0, True, RUN, False, {"async": (2, 3)}),
    SeatStatus("bob", "ready", (), None, True, LATE, True, {"async": (0, 3), HOSTILE[:9]: (1, 1)}),
    SeatStatus("cy", "ready", (), None, False, None, stuck=False),
    SeatStatus("dan", "stopped", (), None, True, FORGED, stuck=False),
]
QUEUE = [
    Queued("dan", HOSTILE, "up", None, 1, ("GPU-a",), 70.0),
    Queued("cy", "mnist", "waiting", 1, 2, (), 30.0),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The class of these seats; how often they were asked."""
    found = stored()
    statuses = Mock(return_value=SEATS)
    monkeypatch.setattr(class_feed, "read_class", lambda _: (found, None))
    monkeypatch.setattr(class_feed, "queued", lambda _: QUEUE)
    monkeypatch.setattr(class_feed, "seat_statuses", statuses)
    return statuses


def test_seats_queue_and_the_time_left(asked: Mock) -> None:
    board = ClassFeed(ClassDir("w")).now()
    assert (board.name, board.ends_unix) == ("w", None)
    ada, bob, cy, dan = board.seats
    assert (ada.state, ada.run, ada.step) == ("training", "async", "1,200")
    assert ada.passed == "async 2 of 3"
    assert (bob.stuck, bob.state) == (True, "stuck for 95 s")
    assert (cy.state, cy.run, cy.passed) == ("no answer", "", "")
    assert dan.state == "stopped"
    assert board.queue == ["dan: running for 70 s, 1 GPU", "cy: waiting, place 1"]


def test_a_new_end_is_shown_although_the_seats_are_not_asked_again(asked: Mock) -> None:
    folder = created()
    feed = ClassFeed(folder)
    assert feed.now().ends_unix is None
    for end in (2000.0, 3000.0, None):
        folder.set_end(end)
        assert feed.now().ends_unix == end
    assert asked.call_count == 1


def test_no_text_of_a_student_is_shown_raw(asked: Mock) -> None:
    shown = json.loads(encoded("class", ClassFeed(ClassDir("w"))))["class"]
    texts = [text for seat in shown["seats"] for text in map(str, seat.values())]
    assert all(text.isprintable() for text in [*texts, *shown["queue"]])
    texts = [text for gpu in shown["gpus"] for text in gpu.values()]
    assert all(text.isprintable() for text in texts)


def test_the_seats_are_asked_seldom_and_a_fault_is_shown(asked: Mock) -> None:
    now = 0.0
    feed = ClassFeed(ClassDir("w"), lambda: now)
    for _ in range(3):
        feed.now()
    assert asked.call_count == 1
    now = EVERY_S
    asked.side_effect = LabError("the engine does not answer")
    shown = json.loads(encoded("class", feed))
    assert shown == {"class": None, "problem": "the engine does not answer"}
    asked.side_effect = None
    assert feed.now().seats
    assert asked.call_count == 3


# ---- GPUs

READ = """
import json, sys, time
from lab.board.class_gpus import GpuReader
reader, began = GpuReader(), time.monotonic()
reader.ask(sys.argv[1:])
found = [(each.utilisation, each.memory_used_bytes) for each in reader.answer()]
print(json.dumps([found, time.monotonic() - began]))
"""


def read(host: Driver, *gpus: str) -> tuple[list[list[float | None]], float]:
    """What the reader gets from a driver: utilisation and memory in use; and how long it took."""
    done = subprocess.run(
        [sys.executable, "-c", READ, *gpus],
        env={**os.environ, **host.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    found, seconds = json.loads(done.stdout)
    return found, seconds


def test_each_gpu_has_its_seats_and_its_use() -> None:
    plan = a_plan(("ada", "bob", "cy", "dan", "eve"), {"count": 1, "share": True})
    gpus = [uuid_of(index) for index in range(4)]
    samples = [Sample(gpus[0], 0.0, 3 * GIB // 2, 70.0, 80 * GIB), Sample(gpus[1], None, 0, None)]
    rows = {row.gpu: row for row in gpu_rows(plan, [], samples)}
    assert [row.seats for row in rows.values()] == ["ada, eve", "bob", "cy", "dan"]
    idle, unknown, silent, _ = rows.values()
    assert (idle.gpu, idle.use, idle.memory) == ("GPU-00000000", "0 %", "1.5 of 80.0 GiB")
    for row in (unknown, silent):
        assert (row.use, row.memory) == ("not known", "not known")


def test_a_gpu_of_the_queue_belongs_to_the_seat_whose_turn_it_is() -> None:
    plan = a_plan(("ada", "bob"), {"queue": True})
    taken = Queued("bob", "mnist", "up", None, 2, (uuid_of(1), uuid_of(3)), 1.0)
    waiting = Queued("ada", "mnist", "waiting", 1, 1, (), 1.0)
    rows = gpu_rows(plan, [taken, waiting], [])
    assert [row.seats for row in rows] == ["free", "bob", "free", "bob"]


def test_a_class_without_gpus_shows_none_and_asks_no_driver(
    asked: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = Mock()
    monkeypatch.setattr(class_gpus, "Sampler", sampler)
    monkeypatch.setattr(class_feed, "queued", lambda _: None)
    assert ClassFeed(ClassDir("w")).now().gpus == []
    assert sampler.call_count == 0


def test_the_driver_answers_for_the_gpus_that_it_has(driver: Callable[[str], Driver]) -> None:
    found, _ = read(driver("busy"), uuid_of(0), uuid_of(1), "GPU-of-no-host")
    assert found == [[0.98, 5200 * MIB], [0.0, 0]]
    found, _ = read(driver("lost"), *map(uuid_of, range(4)))
    assert found == [[0.0, 0], [0.0, 0], [None, 0]]
    assert read(driver("not-loaded"), uuid_of(0))[0] == []


def test_a_driver_that_hangs_delays_the_board_little(driver: Callable[[str], Driver]) -> None:
    found, seconds = read(driver("hanging"), uuid_of(0))
    assert found == []
    assert seconds < PATIENCE_S + 5


def test_a_driver_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, end = [], Event()

    def sampler(gpus: Sequence[str]) -> Mock:
        opened.append(gpus)
        assert end.wait(20)
        raise NvmlError("late", "reboot", Fault(Condition.OTHER, "late", "reboot", "driver"))

    monkeypatch.setattr(class_gpus, "Sampler", sampler)
    monkeypatch.setattr(class_gpus, "PATIENCE_S", 0.01)
    reader = GpuReader()
    for _ in range(3):
        reader.ask(["GPU-a"])
        assert reader.answer() == []
    assert len(opened) == 1
    end.set()
    wait_for(lambda: (reader.ask(["GPU-a"]), len(opened) > 1)[1], "the next question", 20)
