"""The board: what it shows of a run and of a class, and who gets it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from lab.backends.state import state_directory
from lab.base.errors import LabError
from lab.protocol.volume.states import State
from lab.runner.replay import Recording
from lab.runner.store.dataframe import records_frame
from lab.runner.store.directory import RunDir
from lab.runner.store.task_progress import read_progress
from lab.runner.view import Clock
from lab.teach.board import class_feed, server
from lab.teach.board.class_feed import EVERY_S, ClassFeed
from lab.teach.board.run_feed import MOST_POINTS, Curve, NewestRun, ReplayFeed, RunFeed
from lab.teach.board.server import ADDRESS, Shown, application, encoded, token
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.queue.host import Queued
from lab.teach.classroom.seat_report import RunReport
from lab.teach.classroom.seat_status import SeatStatus
from tests.support.agents import wait_for
from tests.support.classes import a_plan, created, own_state, stored  # noqa: F401
from tests.support.recorded import BEGAN_UNIX, make
from tests.support.specs import HOSTILE, update


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make(tmp_path / "runs", "20261127-0900-async-aaaa", steps=550)


def under_way(run: RunDir, task: str) -> None:
    update(run, state=State.TRAINING, stopped_unix=None)
    status = json.loads(run.status(task).read_text()) | {"state": "training", "ended_unix": None}
    run.status(task).write_text(json.dumps(status))


def at(moment: float) -> Clock:
    """A clock that stands still."""
    return Clock(lambda: moment, lambda: moment)


def line(**fields: Any) -> str:
    return json.dumps({"kind": "step", "task": "worker-0", **fields}) + "\n"


def test_a_run_that_has_ended_is_shown_as_it_ended(run: RunDir) -> None:
    board = RunFeed(run).now()
    assert (board.state, board.experiment) == ("succeeded", "async")
    assert board.global_step == "1,650"
    assert [row.task for row in board.tasks] == ["ps-0", "worker-0", "worker-1", "worker-2"]
    assert not any(row.stuck for row in board.tasks)
    assert sorted(board.loss) == ["worker-0", "worker-1", "worker-2"]
    assert board.elapsed_s == pytest.approx(10 + 550 * 0.002, abs=0.1)


def test_a_success_without_a_worker_names_it_and_the_reason(run: RunDir) -> None:
    def end(task: str, **fields: Any) -> None:
        status = json.loads(run.status(task).read_text()) | fields
        run.status(task).write_text(json.dumps(status))

    end("ps-0", state="cancelled")  # a service is no part of the result
    assert (RunFeed(run).now().state, RunFeed(run).now().reason) == ("succeeded", "")
    end("worker-1", state="failed", reason="killed by SIGKILL")
    board = RunFeed(run).now()
    assert board.state == "succeeded without worker-1"
    assert board.reason == "worker-1 failed: killed by SIGKILL"
    assert board.notes == "note"
    under_way(run, "worker-0")
    assert (RunFeed(run).now().state, RunFeed(run).now().reason) == ("training", "")


def test_only_new_records_are_read_and_a_replaced_file_anew(run: RunDir) -> None:
    path = run.records("worker-0")
    path.write_text(line(local_step=1, global_step=1, loss=4.0, time_unix=BEGAN_UNIX + 1))
    feed = RunFeed(run)
    assert feed.now().loss["worker-0"] == [(1.0, 4.0)]
    half = line(local_step=2, global_step=2, loss=2.0, time_unix=BEGAN_UNIX + 2)
    with path.open("a") as file:
        file.write(half[:20])
    assert feed.now().loss["worker-0"] == [(1.0, 4.0)]
    with path.open("a") as file:
        file.write(half[20:])
    assert feed.now().loss["worker-0"] == [(1.0, 4.0), (2.0, 2.0)]
    new = path.with_suffix(".new")
    new.write_text(line(local_step=9, global_step=9, loss=9.0, time_unix=BEGAN_UNIX + 9))
    new.replace(path)
    board = feed.now()
    assert board.loss["worker-0"] == [(9.0, 9.0)]
    assert next(row.local_step for row in board.tasks if row.task == "worker-0") == "9"
    path.unlink()
    assert feed.now().loss["worker-0"] == [(9.0, 9.0)]


def test_a_task_is_stuck_without_records_for_some_time(run: RunDir) -> None:
    under_way(run, "worker-0")
    last = max(
        each["time_unix"]
        for each in map(json.loads, run.records("worker-0").open())
        if "loss" in each
    )
    for since, stuck in ((59.0, False), (61.0, True)):
        row = RunFeed(run, at(last + since)).now().tasks[1]
        assert (row.task, row.stuck) == ("worker-0", stuck), since


def test_hostile_records_make_valid_json_and_safe_text(run: RunDir) -> None:
    update(run, reason=HOSTILE)
    with run.records("worker-1").open("a") as file:
        file.write('{"kind": "step", "loss": NaN, "global_step": 1e999, "time_unix": 1}\n')
        file.write("[1]\n\x00\n")
        for huge in ("1e400", "-1e400", "1" + "0" * 400, "NaN", '"x"', "null", "true"):
            names = ("loss", "time_unix", "local_step", "global_step", "staleness", "step_time_s")
            fields = ", ".join(f'"{name}": {huge}' for name in names)
            file.write(f'{{"kind": "step", {fields}, "wait_time_s": {huge}}}\n')
    shown = json.loads(encoded("run", RunFeed(run)))["run"]
    assert "\x1b" not in shown["reason"]
    row = next(each for each in shown["tasks"] if each["task"] == "worker-1")
    assert row["loss"] == "nan"


@pytest.mark.parametrize("moment", [1e18, -1.0, BEGAN_UNIX - 4000, BEGAN_UNIX + 1e6])
def test_a_time_outside_the_run_is_none_for_page_summary_and_figures(
    run: RunDir, moment: float
) -> None:
    for worker in (1, 2):
        run.records(f"worker-{worker}").unlink()
    times = (moment, moment + 128, BEGAN_UNIX + 3)
    lines = [line(local_step=n, global_step=n, loss=n, time_unix=t) for n, t in enumerate(times)]
    run.records("worker-0").write_text("".join(lines))
    assert RunFeed(run).now().loss == {"worker-0": [(3.0, 2.0)]}
    played = [each for each in Recording.read(run).events if each.record]
    assert [each.at_s for each in played if each.task == "worker-0"] == [0.0, 0.0, 3.0]
    assert [*records_frame(run)["time_unix"].dropna()][-1:] == [BEGAN_UNIX + 3]
    progress = read_progress(run.records("worker-0"), "worker-0", run.read().times)
    assert (progress.trained, progress.first_step_unix) == ((BEGAN_UNIX + 3,) * 2, None)


@pytest.mark.timeout(20)
def test_a_pipe_instead_of_records_is_not_waited_for(run: RunDir) -> None:
    path = run.records("worker-0")
    path.unlink()
    os.mkfifo(path)
    assert "worker-0" not in RunFeed(run).now().loss


def test_a_damaged_run_is_shown_as_none(run: RunDir) -> None:
    feed = RunFeed(run)
    run.info_path.write_text("{")
    shown = json.loads(encoded("run", feed))
    assert shown["run"] is None
    assert "run.json" in shown["problem"]


def test_the_newest_utilisation_of_all_gpus_of_a_task(run: RunDir) -> None:
    def sample(gpu: str, share: float, at: float) -> str:
        fields = {"task": "worker-0", "gpu": gpu, "utilisation": share, "time_unix": at}
        return json.dumps(fields) + "\n"

    now = BEGAN_UNIX + 5
    samples = [sample("a", 0.1, now - 2), sample("a", 0.5, now - 1), sample("b", 0.7, now - 1)]
    run.gpu_samples.write_text("".join(samples))
    feed = RunFeed(run, at(now))
    assert feed.now().tasks[1].gpu == "60 %"
    assert RunFeed(run, at(now + 60)).now().tasks[1].gpu == ""


def test_a_long_curve_keeps_its_mean_and_its_ends() -> None:
    curve = Curve()
    for second in range(10_000):
        curve.add(second, 100 - second / 100)
        assert len(curve.points) <= MOST_POINTS
    assert len(curve.points) >= MOST_POINTS / 2 - 1
    values = [value for _, value in curve.points]
    assert values == sorted(values, reverse=True)
    assert sum(values) / len(values) == pytest.approx(50, abs=1)
    assert curve.points[0][0] < 200
    assert curve.points[-1][0] > 9_800


def test_numbers_beyond_what_the_page_can_add_are_left_out(run: RunDir) -> None:
    numbers = (1.7e308, -1.7e308, 1e300, -1e300, float("inf"), float("nan"), 10**400)
    with run.records("worker-0").open("w") as file:
        for loss in numbers * 1_000:
            line = {"kind": "step", "local_step": 1, "time_unix": BEGAN_UNIX + 9, "loss": loss}
            file.write(json.dumps(line) + "\n")
    points = RunFeed(run, at(BEGAN_UNIX)).now().loss["worker-0"]
    assert 0 < len(points) <= MOST_POINTS
    assert b"null" not in msgspec.json.encode(points)
    assert max(abs(loss) for _, loss in points) <= 1e300


def test_the_newest_run_is_shown_also_if_it_starts_later(tmp_path: Path) -> None:
    store = tmp_path / "store"
    newest = NewestRun(store)

    def shown() -> str:
        board = newest.now()
        return board.run if board else ""

    assert shown() == ""
    for name, started in (("r1", 10.0), ("r3", 30.0), ("r2", 20.0)):
        make(store, name, steps=550, started_unix=started)
    assert shown() == "r3"
    make(store, "r4", steps=550, started_unix=40.0)
    assert shown() == "r4"
    (store / "r5").mkdir()
    (store / "r5/run.json").write_text("{")
    assert shown() == "r4"


def test_a_replay_begins_with_the_first_look_and_ends_with_the_result(run: RunDir) -> None:
    feed, slow = (ReplayFeed(Recording.read(run), speed) for speed in (20, 0.1))
    first, _ = feed.now(), slow.now()
    assert (first.global_step, first.loss) == ("", {})
    assert first.state != "succeeded"
    wait_for(lambda: feed.now().state == "succeeded", "the end of the replay", 20)
    last, recorded = feed.now(), RunFeed(run).now()
    assert (last.global_step, last.elapsed_s) == (recorded.global_step, recorded.elapsed_s)
    assert last.loss == recorded.loss
    assert slow.now().state != "succeeded"


class Asked:
    """A board that is served, and requests to it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{ADDRESS}:{port}"
        self.cookie = {"Cookie": f"lab-board={token()}"}

    async def get(self, path: str, **options: Any) -> HTTPResponse:
        asked = HTTPRequest(self.url + path, follow_redirects=False, **options)
        return await AsyncHTTPClient().fetch(asked, raise_error=False)

    async def events(self, count: int) -> list[bytes]:
        host, port = self.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        asked = f"GET /events HTTP/1.1\r\nHost: {host}\r\nCookie: {self.cookie['Cookie']}\r\n\r\n"
        writer.write(asked.encode())
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) <= count:
                line = await reader.readline()
                assert line, "the server has closed the connection"
                if line.startswith(b"data: "):
                    found.append(line.removeprefix(b"data: "))
        writer.close()
        assert abs(float(found[0]) - time.time()) < 20  # the clock of the server
        return found[1:]


def served(
    check: Callable[[Asked], Awaitable[None]], source: server.Source = lambda: b"{}"
) -> None:
    async def serve() -> None:
        (socket,) = bind_sockets(0, ADDRESS)
        board = HTTPServer(application(token(), Shown(source)))
        board.add_sockets([socket])
        try:
            await check(Asked(socket.getsockname()[1]))
        finally:
            board.stop()
            await board.close_all_connections()

    asyncio.run(serve())


def test_only_who_has_the_token_gets_anything() -> None:
    async def check(asked: Asked) -> None:
        for path in ("/", "/board.js", "/events", "/nothing"):
            for headers in ({}, {"Cookie": "lab-board=x"}, {"Cookie": "lab-board="}):
                answer = await asked.get(path, headers=headers)
                assert answer.code == 403, path
                assert b"lab attach --web" in answer.body
            rebound = {**asked.cookie, "Host": "evil.example"}
            assert (await asked.get(path, headers=rebound)).code == 403
        answer = await asked.get(f"/?token={token()}")
        assert (answer.code, answer.headers["Location"]) == (302, "/")
        assert "HttpOnly" in answer.headers["Set-Cookie"]
        answer = await asked.get("/", headers=asked.cookie)
        assert answer.code == 200
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert (await asked.get("/nothing", headers=asked.cookie)).code == 404
        posted = await asked.get("/", headers=asked.cookie, method="POST", body="")
        assert posted.code in {403, 405}

    served(check)


def test_the_token_is_secret_and_stays_the_same() -> None:
    assert token() == token()
    assert len(token()) >= 32
    path = state_directory() / "board-token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kept", [b"", b"short", "\u00e4".encode() * 32, b"x" * 33])
def test_a_damaged_token_is_replaced(kept: bytes) -> None:
    path = state_directory() / "board-token"
    before = token()
    path.write_bytes(kept)
    assert re.fullmatch(r"[A-Za-z0-9_-]{32}", token())
    assert token() not in {before, ""}


def test_viewers_get_what_changes_from_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "EVERY_S", 0.02)
    looks = []

    def source() -> bytes:
        looks.append(1)
        return b'{"look": %d}' % (len(looks) // 3)

    async def check(asked: Asked) -> None:
        found = await asyncio.gather(*(asked.events(4) for _ in range(5)))
        for events in found:
            numbers = [json.loads(event)["look"] for event in events]
            assert numbers == sorted(set(numbers))
            assert len(numbers) >= 4
        assert len(looks) < 3 * 8
        async with asyncio.timeout(20):
            seen = -1
            while seen != len(looks):  # nobody looks when all pages are closed
                seen = len(looks)
                await asyncio.sleep(0.5)

    served(check, source)


def test_one_look_at_a_time_for_many_viewers() -> None:
    may_end, looks = threading.Event(), []

    def source() -> bytes:
        looks.append(1)
        assert may_end.wait(60)
        return b"{}"

    async def check() -> None:
        shown = Shown(source)
        viewers = asyncio.gather(*(shown.now() for _ in range(8)))
        while not looks:
            await asyncio.sleep(0.01)
        may_end.set()
        assert await viewers == [b"{}"] * 8

    asyncio.run(check())
    assert len(looks) == 1


def test_a_port_that_is_taken_is_an_error() -> None:
    (taken,) = bind_sockets(0, ADDRESS)
    try:
        with pytest.raises(LabError, match="choose another --port"):
            asyncio.run(server.serve(lambda: b"{}", taken.getsockname()[1]))
    finally:
        taken.close()


REPORT = RunReport("r1", "async", "training", 61.0, 1_200, 2.0)
LATE = msgspec.structs.replace(REPORT, since_step_s=95.0)
FORGED = RunReport("r1", HOSTILE[:60], HOSTILE[:60], 1.0, None, None)
SEATS = [
    SeatStatus("ada", "ready", ("GPU-0123456789ab",), True, REPORT, False, {"async": (2, 3)}),
    SeatStatus("bob", "ready", (), True, LATE, True, {"async": (0, 3), HOSTILE[:9]: (1, 1)}),
    SeatStatus("cy", "ready", (), False, None, stuck=False),
    SeatStatus("dan", "stopped", (), True, FORGED, stuck=False),
]
QUEUE = [
    Queued("dan", "up", None, 1, ("GPU-a",), 70.0),
    Queued("cy", "waiting", 1, 2, (), 30.0),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Mock:
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
    assert board.queue == ["dan: running for 70 s, 1 GPU", "cy: waiting, position 1"]


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
