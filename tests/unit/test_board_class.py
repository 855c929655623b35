"""The board of a class."""

from __future__ import annotations

import json
from unittest.mock import Mock

import msgspec
import pytest

from lab.board import class_feed
from lab.board.class_feed import EVERY_S, ClassFeed
from lab.board.server import encoded
from lab.classroom.queue.folder import Queued
from lab.classroom.seat_report import RunReport
from lab.classroom.state import ClassDir
from lab.classroom.status import SeatStatus
from lab.errors import LabError
from tests.support.classes import a_plan, created, own_state, stored  # noqa: F401
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
    statuses = Mock(return_value=SEATS)
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
