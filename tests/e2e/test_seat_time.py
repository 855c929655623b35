"""The time left of a class in a real JupyterLab, in Chromium; without an engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.classroom.class_time import write_end
from tests.support import engine
from tests.support.agents import wait_for
from tests.support.chromium import Tab, a_browser
from tests.support.commands import free_port
from tests.support.conditions import lacking

TOKEN = "ada-opens-this"  # noqa: S105
S = 180.0
"""Much more than a JupyterLab needs to start."""

EXTENSION = Path(__file__).parents[2] / "lab" / "classroom" / "labextension"
PROGRAM = """
import sys
from pathlib import Path
from lab.classroom import class_time
class_time.IN_SEAT = Path(sys.argv.pop(1))
from jupyterlab.labapp import main
main()
"""
SERVER = {"ServerApp": {"jpserver_extensions": {"lab.classroom.seat_time": True}}}
CLOCK = "document.getElementById('lab-class-time')"


@dataclass(frozen=True)
class Seat:
    """A JupyterLab with the extension, as the image of a class has it.

    Attributes:
        url: Its address, with a base URL as JupyterHub gives it.
        folder: The directory with the end of the class.
    """

    url: str
    folder: Path

    def answer(self, token: str = TOKEN) -> tuple[int, object]:
        """The HTTP status and the body of its address for the time left."""
        asked = urllib.request.Request(f"{self.url}lab-class/time")  # noqa: S310
        asked.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(asked, timeout=20) as found:  # noqa: S310
                return found.status, json.load(found)
        except urllib.error.HTTPError as error:
            return error.code, None


@pytest.fixture(scope="module")
def seat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seat]:
    home = tmp_path_factory.mktemp("seat")
    (home / "share" / "labextensions").mkdir(parents=True)
    (home / "share" / "labextensions" / "lab-class-time").symlink_to(EXTENSION)
    (home / "config" / "jupyter_server_config.d").mkdir(parents=True)
    (home / "config" / "jupyter_server_config.d" / "lab.json").write_text(json.dumps(SERVER))
    (home / "shared").mkdir()
    own = {"HOME": str(home), "JUPYTER_PATH": str(home / "share")}
    variables = {**os.environ, **own, "JUPYTER_CONFIG_PATH": str(home / "config")}
    port = free_port()
    options = ["--no-browser", "--allow-root", f"--ServerApp.port={port}"]
    options += ["--ServerApp.base_url=/user/ada/", f"--IdentityProvider.token={TOKEN}"]
    command = [sys.executable, "-c", PROGRAM, str(home / "shared"), *options]
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=home, env=variables, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        found = Seat(f"http://127.0.0.1:{port}/user/ada/", home / "shared")
        try:
            wait_for(lambda: _is_up(found), "JupyterLab", S)
            yield found
        finally:
            os.killpg(server.pid, signal.SIGKILL)


def _is_up(seat: Seat) -> bool:
    try:
        return seat.answer()[0] == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    try:
        engine.install("chromium")
    except engine.NoEngine as error:
        lacking(f"no Chromium, so the clock of a seat is NOT tested here: {error}")
    with a_browser() as tab:
        yield tab


def test_the_server_answers_only_its_user(seat: Seat) -> None:
    write_end(seat.folder, None)
    assert seat.answer() == (200, {"left_s": None})
    write_end(seat.folder, time.time() - 60)
    assert seat.answer() == (200, {"left_s": 0.0})
    (seat.folder / "time.json").write_text("{")
    assert seat.answer()[0] == 503
    assert seat.answer("another")[0] == 403


def test_the_clock_in_the_top_bar(seat: Seat, browser: Tab) -> None:
    write_end(seat.folder, time.time() + 2400)
    browser.show_on(1200)
    browser.open(f"{seat.url}lab?token={TOKEN}")
    wait_for(lambda: shown(browser).endswith(" left"), "the clock", S)
    assert browser.run(f"{CLOCK}.closest('#jp-top-panel') !== null")
    colour, text = look(browser), shown(browser)
    wait_for(lambda: shown(browser) not in {text, ""}, "the countdown", S)
    for seconds, pattern, is_red in (
        (4000, r"1:0\d:\d\d left", False),  # extended
        (290, r"[0-4]:\d\d left", True),
        (-1, r"The class is over\.", True),
    ):
        write_end(seat.folder, time.time() + seconds)
        ask(browser)
        wait_for(lambda form=pattern: re.fullmatch(form, shown(browser)), pattern, S)
        assert (look(browser) != colour) is is_red
    write_end(seat.folder, None)
    ask(browser)
    wait_for(lambda: shown(browser) == "", "no end", S)


def test_it_asks_by_itself_and_goes_on_while_the_server_is_away(seat: Seat, browser: Tab) -> None:
    write_end(seat.folder, None)
    browser.open(f"{seat.url}lab?token={TOKEN}")
    wait_for(lambda: browser.run(f"{CLOCK}?.checkVisibility() === false"), "the extension", S)
    write_end(seat.folder, time.time() + 2400)
    wait_for(lambda: shown(browser).endswith(" left"), "an answer", S)
    (seat.folder / "time.json").write_text("{")
    text = shown(browser)
    ask(browser)
    wait_for(lambda: shown(browser) not in {text, ""}, "the countdown", S)


def ask(browser: Tab) -> None:
    """Let the clock ask at once, as when its tab is shown again; otherwise it asks every 15 s."""
    browser.run("document.dispatchEvent(new Event('visibilitychange'))")


def look(browser: Tab) -> str:
    """The colour of the clock."""
    return str(browser.run(f"getComputedStyle({CLOCK}).color"))


def shown(browser: Tab) -> str:
    """The text of the clock that is seen."""
    return str(browser.run(f"{CLOCK}?.checkVisibility() ? {CLOCK}.innerText : ''"))
