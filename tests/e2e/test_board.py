"""The board of a run, in Chromium, while the run goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.store.directory import RunDir
from lab.volume.states import State
from tests.support import engine
from tests.support.agents import wait_for
from tests.support.chromium import Tab, a_browser
from tests.support.commands import environ, free_port
from tests.support.conditions import lacking
from tests.support.recorded import make
from tests.support.specs import HOSTILE, update

RUN = "20261127-0900-async-aaaa"


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    try:
        engine.install("chromium")
    except engine.NoEngine as error:
        lacking(f"no Chromium, so the board is NOT tested here: {error}")
    with a_browser() as tab:
        yield tab


@contextmanager
def board(folder: Path, port: int) -> Iterator[str]:
    """`lab serve` in a directory; its address."""
    command = [sys.executable, "-m", "lab", "serve", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=folder, env=environ(folder), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def text(tab: Tab) -> str:
    found: str = tab.run("document.body.innerText")
    return found


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
        assert browser.run("document.querySelectorAll('#loss path').length") == 3
        assert browser.run("document.querySelectorAll('#tasks tr').length") == 4
        browser.run("window.same = true")
    update(run, reason="after the restart")
    with board(tmp_path, port) as again:
        assert again == address
        wait_for(lambda: "after the restart" in text(browser), "the restarted server", 30)
    assert browser.run("window.same")  # the page was not loaded again


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
            assert browser.run("document.scripts.length") == 1
    assert len(colours) == 2


def test_the_keyboard_reaches_the_columns_that_do_not_fit(browser: Tab, tmp_path: Path) -> None:
    make(tmp_path / "runs", RUN, steps=550)
    with board(tmp_path, free_port()) as address:
        browser.show_on(390)
        browser.open(address)
        wait_for(lambda: "succeeded" in text(browser), "the run", 20)
        browser.press("Tab", 9)
        assert browser.run("document.activeElement.className") == "wide"
        for _ in range(5):
            browser.press("ArrowRight", 39)
        wait_for(lambda: browser.run("document.activeElement.scrollLeft > 0"), "the scroll", 10)


def test_it_loads_nothing_from_elsewhere(browser: Tab, tmp_path: Path) -> None:
    RunDir(tmp_path / "runs")
    with board(tmp_path, free_port()) as address:
        browser.open(address)
        origin = address.partition("/?")[0]
        loaded = browser.run("performance.getEntriesByType('resource').map((each) => each.name)")
        assert loaded
        assert all(each.startswith(origin) for each in loaded)
