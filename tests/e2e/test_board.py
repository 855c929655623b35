"""The board of a run, in Chromium, while the run goes on."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from lab.base.variables import LAB_STATE
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.teach.board.class_feed import ClassBoard, SeatRow
from lab.teach.board.server import encoded, serve, token
from tests.support.agents import wait_for
from tests.support.chromium import Tab
from tests.support.commands import environ, free_port
from tests.support.recorded import BEGAN_UNIX, make
from tests.support.specs import HOSTILE, update

pytest_plugins = ["tests.support.chromium"]

RUN = "20261127-0900-async-aaaa"


@contextmanager
def board(folder: Path, port: int, *options: str) -> Iterator[str]:
    """`lab attach --web` in a directory; its address."""
    command = [sys.executable, "-m", "lab", "attach", "--web", "--port", str(port), *options]
    with subprocess.Popen(
        command, cwd=folder, env=environ(folder), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()


def text(tab: Tab) -> str:
    return tab.run("document.body.innerText")


def heights(tab: Tab) -> list[list[float]]:
    """The distance of each point of each curve from the top of the figure."""
    shapes: list[str] = tab.run(
        "[...document.querySelectorAll('#loss path')].map((path) => path.getAttribute('d'))"
    )
    return [[float(point.split()[1]) for point in re.split("[ML]", each)[1:]] for each in shapes]


def test_the_board_follows_the_newest_run_over_a_restart(browser: Tab, tmp_path: Path) -> None:
    port = free_port()
    browser.show_on(1920)
    with board(tmp_path, port) as address:
        browser.open(address)
        assert browser.run("location.search") == ""  # the token is not shown on the projector
        wait_for(lambda: "No run yet" in text(browser), "an empty board", 20)
        run = make(tmp_path / "runs", RUN, steps=550)
        wait_for(lambda: "succeeded" in text(browser), "the run", 20)
        assert "1,650" in text(browser)
        curves = heights(browser)
        assert len(curves) == 3
        assert all(curve[0] < curve[-1] for curve in curves), "a smaller loss is lower"
        assert browser.run("document.querySelectorAll('#tasks tr').length") == 4
        browser.run("window.same = true")
    update(run, reason="after the restart")
    with board(tmp_path, port) as again:
        assert again == address
        wait_for(lambda: "after the restart" in text(browser), "the restarted server", 30)
    assert browser.run("window.same")  # the page was not loaded again


def test_smaller_losses_are_lower_below_zero_too_and_an_exception_is_not_live(
    browser: Tab, tmp_path: Path
) -> None:
    run = make(tmp_path / "runs", RUN, steps=550)
    lines = [f'{{"kind": "step", "time_unix": {BEGAN_UNIX + n}, "loss": {-n}}}' for n in range(9)]
    run.records("worker-0").write_text("\n".join([*lines, ""]))
    browser.show_on(1920)
    with board(tmp_path, free_port()) as address:
        browser.open(address)
        wait_for(lambda: "The run has ended." in text(browser), "the run", 20)
        curve = heights(browser)[0]
        assert curve == sorted(curve)
        bottom = browser.run("document.getElementById('loss').clientHeight")
        assert 0 <= curve[0] < curve[-1] <= bottom
        browser.run("setTimeout(() => events.onmessage({data: '{\"run\": {}}'}), 0)")
        wait_for(lambda: "This page failed: " in text(browser), "the exception", 20)
        assert "Live." not in text(browser)


@pytest.mark.parametrize("width", [390, 1920])
def test_it_fits_the_projector_and_the_phone_in_both_colours(
    browser: Tab, tmp_path: Path, width: int
) -> None:
    run = make(tmp_path / "runs", RUN, steps=550)
    update(run, state=State.FAILED, reason=HOSTILE * 5)
    colours = set()
    with board(tmp_path, free_port()) as address:
        for dark in (False, True):
            browser.show_on(width, dark=dark)
            browser.open(address)
            wait_for(lambda: "failed" in text(browser), "the run", 20)
            page = "document.documentElement"
            assert browser.run(f"{page}.scrollWidth <= {page}.clientWidth")
            colours.add(browser.run("getComputedStyle(document.body).backgroundColor"))
            assert "<script>alert(1)</script>" in text(browser)
            box = browser.run("document.getElementById('reason').getBoundingClientRect().toJSON()")
            assert 0 < box["top"] < 200, "the reason is at the top"
            assert "ended after" in text(browser)
            assert "GPU" not in text(browser)
            assert browser.run("document.scripts.length") == 1
    assert len(colours) == 2


class Room:
    """A class with many seats, without one."""

    def __init__(self, left_s: float | None = 2100.0, *, stuck: bool = True) -> None:
        self.ends_unix = None if left_s is None else time.time() + left_s
        self.stuck = stuck

    def now(self) -> ClassBoard:
        names = [f"seat-{number:02}" for number in range(1, 31)]
        seats = [
            SeatRow(each, "training", False, "async", "1,200", "async 2 of 3") for each in names
        ]
        if self.stuck:
            seats[2] = SeatRow("seat-03", "stuck for 3 min", True, "sync", "7", "")
        return ClassBoard("workshop", self.ends_unix, ["seat-07: waiting, position 1"], seats)


@contextmanager
def class_board(port: int, room: Room | None = None) -> Iterator[str]:
    """The board of that class, which answers; its address."""
    loop = asyncio.new_event_loop()
    serving = loop.create_task(serve(partial(encoded, "class", room or Room()), port))
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([serving])))
    thread.start()
    try:
        wait_for(lambda: answers(port), "the board", 20)
        yield f"http://127.0.0.1:{port}/?token={token()}"
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("width", [390, 1920])
def test_the_board_of_a_class(
    browser: Tab, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAB_STATE, str(tmp_path))
    with class_board(free_port()) as address:
        browser.show_on(width, dark=width == 390)
        browser.open(address)
        wait_for(lambda: "34:5" in text(browser), "the class", 20)
        assert browser.run("document.querySelectorAll('#seats tr').length") == 30
        assert browser.run("document.querySelector('#seats .late').innerText") == "stuck for 3 min"
        assert "waiting, position 1" in text(browser)
        assert browser.run("document.getElementById('run').hidden")
        page = "document.documentElement"
        assert browser.run(f"{page}.scrollWidth <= {page}.clientWidth")


@pytest.mark.parametrize("stuck", [False, True])
def test_a_projector_shows_a_class_of_thirty_without_scrolling(
    browser: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stuck: bool
) -> None:
    monkeypatch.setenv(LAB_STATE, str(tmp_path))
    with class_board(free_port(), Room(stuck=stuck)) as address:
        browser.show_on(1920)
        browser.open(address)
        wait_for(lambda: "seat-30" in text(browser), "the class", 20)
        assert browser.run("document.getElementById('stuck').innerText") == (
            "seat-03: stuck for 3 min" if stuck else ""
        )
        seats, queue = (
            browser.run(f"document.getElementById('{part}-part').getBoundingClientRect().toJSON()")
            for part in ("seats", "queue")
        )
        assert seats["bottom"] <= 1080
        assert seats["right"] < queue["left"]
        assert seats["top"] == queue["top"]


@pytest.fixture(scope="module", params=["run", "recording", "class"])
def page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The address of a page that is served, and a text that it shows when it is complete."""
    folder = tmp_path_factory.mktemp("pages")
    run = make(folder / "runs", RUN, steps=550)
    update(run, state=State.FAILED, reason=HOSTILE)
    with ExitStack() as stack:
        if request.param == "class":
            stack.enter_context(pytest.MonkeyPatch.context()).setenv(LAB_STATE, str(folder))
            address = stack.enter_context(class_board(free_port()))
            yield address, " left"
        elif request.param == "recording":
            shown = ("straggler", "--speed", "1000")
            yield stack.enter_context(board(folder, free_port(), *shown)), "succeeded"
        else:
            yield stack.enter_context(board(folder, free_port())), "failed"


def serious_faults(tab: Tab) -> list[str]:
    """The serious and the critical faults of the page, each with its element."""
    return [
        f"{each['id']}: {node['html']}: {node['failureSummary']}"
        for each in Axe().run(tab.page).response["violations"]
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("width", [390, 1920])
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_serious_fault(
    browser: Tab, page: tuple[str, str], width: int, *, dark: bool
) -> None:
    address, complete = page
    browser.show_on(width, dark=dark)
    browser.open(address)
    wait_for(lambda: complete in text(browser), "the page", 30)
    assert serious_faults(browser) == []


@pytest.mark.parametrize("page", ["class"], indirect=True)
def test_axe_sees_what_is_wrong(browser: Tab, page: tuple[str, str]) -> None:
    browser.show_on(1920)
    browser.open(page[0])
    wait_for(lambda: page[1] in text(browser), "the page", 20)
    browser.run("document.body.style.setProperty('--soft', '#bbb')")
    browser.run("document.body.append(document.createElement('input'))")
    assert {each.partition(":")[0] for each in serious_faults(browser)} == {
        "color-contrast",
        "label",
    }


def clock(browser: Tab) -> tuple[str, str]:
    """The time left on the board, and its kind."""
    shown = "(({innerText, className}) => [innerText, className])(document.getElementById('clock'))"
    text, kind = browser.run(shown)
    return text, kind


def test_the_board_counts_down_by_the_clock_of_its_server(
    browser: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAB_STATE, str(tmp_path))
    room, real = Room(302.5), time.time
    with class_board(free_port(), room) as address:
        browser.show_on(1920)
        browser.open(address)
        wait_for(lambda: clock(browser) == ("5:02 left", ""), "the clock", 5)
        wait_for(lambda: clock(browser) == ("4:59 left", "bad"), "the last minutes", 10)
        room.ends_unix = real() + 3723.5  # an extension
        wait_for(lambda: clock(browser) == ("1:02:03 left", ""), "the new end", 5)
        room.ends_unix = real() + 2
        wait_for(lambda: clock(browser) == ("The class is over.", "bad"), "the end", 10)
        room.ends_unix = None
        wait_for(lambda: clock(browser) == ("", ""), "no end", 5)
        # The clock of the browser's computer is ten minutes late.
        room.ends_unix = real() + 3723.5
        monkeypatch.setattr(time, "time", lambda: real() - 600.0)
        browser.open(address)
        wait_for(lambda: clock(browser)[0].startswith("1:12:0"), "the clock of the server", 10)


FOCUS = "document.activeElement"
CONTROLS = """
Array.from(document.querySelectorAll("a[href], button, input, select, textarea, [tabindex]"))
  .filter((each) => each.checkVisibility()).map((each) => each.ariaLabel)
"""


def test_the_keyboard_reaches_every_control(browser: Tab, page: tuple[str, str]) -> None:
    address, complete = page
    browser.show_on(390)
    browser.open(address)
    wait_for(lambda: complete in text(browser), "the page", 30)
    controls, reached = browser.run(CONTROLS), []
    assert controls
    for _ in controls:
        browser.page.keyboard.press("Tab")
        reached.append(browser.run(f"{FOCUS}.ariaLabel"))
        assert browser.run(f"getComputedStyle({FOCUS}).outline").endswith("solid 3px")
        if browser.run(f"{FOCUS}.scrollWidth > {FOCUS}.clientWidth"):
            for _ in range(5):
                browser.page.keyboard.press("ArrowRight")
            wait_for(lambda: browser.run(f"{FOCUS}.scrollLeft > 0"), "the scroll", 10)
    assert reached == controls


def answers(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def test_it_loads_nothing_from_elsewhere(browser: Tab, tmp_path: Path) -> None:
    RunDir(tmp_path / "runs")
    with board(tmp_path, free_port()) as address:
        browser.open(address)
        origin = address.partition("/?")[0]
        loaded = browser.run("performance.getEntriesByType('resource').map((each) => each.name)")
        assert loaded
        assert all(each.startswith(origin) for each in loaded)
