"""The end of the runs in the seats, when the time of their class is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends.engine.client import Done, Engine
from lab.classroom import seat_end
from lab.classroom.end_service import ANSWER_S, LATER_S, SOON_S, Ends, SeatRuns
from lab.errors import LabError
from lab.volume import Request, RunSpec, TaskStatus
from lab.volume.control import cancel_reason
from lab.volume.states import State
from lab.volume.status import write_status
from tests.support.fakes import FakeEnvironment, train

SEATS = ("ada", "bob", "cy")


class Room:
    """The seats of a class: what they answer, and how often they were asked.

    Attributes:
        is_over: Whether the time of the class is over.
        busy: The seats that have a run.
        silent: The seats that give no answer until `go_on`.
        broken: The seats that refuse.
        asked: How often each seat was asked.
    """

    def __init__(self) -> None:
        self.is_over, self.now_s = True, 0.0
        self.busy: set[str] = set()
        self.silent: set[str] = set()
        self.broken: dict[str, Exception] = {}
        self.asked: Counter[str] = Counter()
        self.go_on = Event()
        self.ends = Ends(SEATS, lambda: self.is_over, self._end, lambda: self.now_s)

    def _end(self, seat: str) -> bool:
        self.asked[seat] += 1
        if seat in self.silent:
            self.go_on.wait(600)
        if seat in self.broken:
            raise self.broken[seat]
        return seat in self.busy

    def pass_s(self, seconds: float) -> None:
        """Let some time pass, and let all seats answer but those that are silent."""
        self.now_s += seconds
        self.ends.tick()
        for seat, step in self.ends._steps.items():
            if step is not None and seat not in self.silent:
                step.exception(20)
        self.ends.tick()


@pytest.fixture
def room() -> Iterator[Room]:
    found = Room()
    yield found
    found.go_on.set()


def test_before_the_end_and_after_an_extension_no_seat_is_asked(room: Room) -> None:
    room.is_over = False
    room.pass_s(LATER_S)
    assert not room.asked
    room.is_over = True
    room.pass_s(1)
    room.is_over = False
    room.pass_s(LATER_S / 2)
    assert room.asked == dict.fromkeys(SEATS, 1)
    room.is_over = True
    room.pass_s(1)
    assert room.asked == dict.fromkeys(SEATS, 2), "the second end is not late"


def test_a_seat_with_a_run_is_asked_again_soon_and_the_others_later(room: Room) -> None:
    room.busy = {"ada"}
    room.pass_s(0)
    room.pass_s(SOON_S - 0.1)
    assert room.asked == dict.fromkeys(SEATS, 1)
    room.pass_s(0.1)
    assert room.asked == {"ada": 2, "bob": 1, "cy": 1}
    room.busy = set()
    room.pass_s(SOON_S)
    room.pass_s(SOON_S)
    assert room.asked["ada"] == 3
    room.pass_s(LATER_S)
    assert room.asked == {"ada": 4, "bob": 2, "cy": 2}


def test_a_seat_without_an_answer_delays_no_other_and_is_asked_once(room: Room) -> None:
    room.silent = {"ada"}
    room.busy = {"bob"}
    for _ in range(4):
        room.pass_s(SOON_S)
    assert room.asked == {"ada": 1, "bob": 4, "cy": 1}
    room.silent = set()
    room.go_on.set()
    room.pass_s(0)
    room.pass_s(LATER_S)
    assert room.asked["ada"] == 2


@pytest.mark.parametrize("error", [LabError("it refuses"), ZeroDivisionError("a fault")])
def test_a_seat_that_refuses_is_asked_again_less_and_less_often(
    room: Room, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    room.broken = {"ada": error}
    room.pass_s(0)
    waited_s = [5, 10, 20, 40, 80, 80]
    for number, seconds in enumerate(waited_s, 1):
        room.pass_s(min(seconds, LATER_S) - 0.1)
        assert room.asked["ada"] == number, seconds
        room.pass_s(0.1 + max(0, seconds - LATER_S))
        assert room.asked["ada"] == number + 1, seconds
    assert "ada: " in caplog.text
    room.broken = {}
    room.pass_s(2 * LATER_S)
    room.broken = {"ada": error}
    room.pass_s(LATER_S)
    asked = room.asked["ada"]
    room.pass_s(SOON_S)  # an answer begins anew
    assert room.asked["ada"] == asked + 1


# ---- The command in a seat, as the service runs it


def an_engine(monkeypatch: pytest.MonkeyPatch, answer: Any, *states: str) -> tuple[Mock, Mock]:
    """An engine with a container of a seat in each of these states."""
    found = [SimpleNamespace(id=f"c{n}", status=state) for n, state in enumerate(states)]
    execute = Mock(side_effect=[answer])
    monkeypatch.setattr(Engine, "execute", execute)
    listed = Mock(return_value=found)
    monkeypatch.setattr(Engine, "containers", listed)
    return execute, listed


@pytest.mark.parametrize(
    ("states", "answer", "busy"),
    [
        (["exited", "running"], Done(0, b"0\n", b""), False),
        *(
            (["running"], Done(0, each, b""), True)
            for each in (b"1\n", b"", b"\xff" * 9, b"nothing")
        ),
        (["exited"], Done(0, b"1\n", b""), False),  # a stopped seat has no runs
        (["running"], Done(1, b"0\n", b"no\x1b[2J disk\n"), None),
    ],
)
def test_what_a_seat_prints_only_says_when_it_is_asked_again(
    states: list[str], answer: Done, busy: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, listed = Mock(side_effect=[answer]), Mock()
    listed.return_value = [Mock(id=f"c{n}", status=state) for n, state in enumerate(states)]
    monkeypatch.setattr(Engine, "execute", execute)
    monkeypatch.setattr(Engine, "containers", listed)
    if busy is None:
        with pytest.raises(LabError, match=r"ending the runs in ada: no\\x1b\[2J disk$"):
            SeatRuns("w", Engine()).end("ada")
    else:
        assert SeatRuns("w", Engine()).end("ada") is busy
    listed.assert_called_with("lab.class=w", "lab.seat=ada")
    for call in execute.call_args_list:
        # It does not import the student's files.
        command = ("python", "-P", "-m", "lab.classroom.seat_end")
        assert call.args == ("ending the runs in ada", f"c{states.index('running')}", command)
        assert call.kwargs == {"within_s": ANSWER_S, "max_bytes": 4096, "workdir": "/"}
    assert execute.called is ("running" in states)


# ---- In the seat


def environment(folder: Path, name: str, *run_ids: str, ends: bool = False) -> FakeEnvironment:
    """An environment whose runs go on until they are cancelled; or all end at once."""
    found = FakeEnvironment(
        folder / name, tasks_do=train if ends else lambda *_: None, project=name
    )
    for number, run_id in enumerate(run_ids):
        request = Request(run_id, RunSpec("async"), found.cluster_spec(), submitted_unix=number + 1)
        found.submit(request)
        for thread in found.threads:
            thread.join()
    return found


@pytest.fixture
def seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeEnvironment]]:
    """The environments of the local backend in a seat."""
    found: list[FakeEnvironment] = []
    backend = SimpleNamespace(all=lambda: found)
    monkeypatch.setattr(seat_end, "backends", lambda name: [backend] if name == "local" else [])
    yield found


def test_every_run_in_a_seat_is_cancelled_as_lab_cancel_does(
    seat: list[FakeEnvironment], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seat += [
        environment(tmp_path, "one", "20261124-0600-async-aaaa"),
        environment(tmp_path, "two", "20261124-0600-async-bbbb", ends=True),
        environment(tmp_path, "three", "20261124-0600-async-cccc"),
        environment(tmp_path, "four"),
    ]
    status = TaskStatus("worker-0", State.TRAINING, global_step=7)
    write_status(seat[2].volume.status("20261124-0600-async-cccc", "worker-0"), status)
    assert seat_end.main() == 0
    assert capsys.readouterr().out == "2\n"
    assert [reasons(each) for each in seat] == [
        ["the time of the class is over; start it again"],
        [None],
        ["the time of the class is over; continue with --resume 20261124-0600-async-cccc"],
        [],
    ]
    assert not seat[0].volume.kill("20261124-0600-async-aaaa").exists()  # the programs save
    seat[0].post = Mock(side_effect=LabError("the disk is full"))
    assert seat_end.main() == 1
    assert capsys.readouterr().err == "the disk is full\n"


def reasons(environment: FakeEnvironment) -> list[str | None]:
    """Why each run of an environment was cancelled."""
    return [cancel_reason(environment.volume, each.run_id) for each in environment.runs()]
