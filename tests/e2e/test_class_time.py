"""The time of a class on a real engine: its board counts down."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from lab.board.class_feed import ClassFeed
from lab.board.server import encoded, serve, token
from lab.classroom.config import parse_class
from lab.classroom.environment import down, up
from lab.classroom.planning import HostFacts, plan_class
from lab.classroom.state import ClassDir, StoredClass
from lab.classroom.status import seat_statuses
from lab.config import parse_cluster
from lab.gpu import Inventory
from tests.support import engine as engines
from tests.support.agents import wait_for
from tests.support.chromium import Tab, a_browser
from tests.support.commands import free_port
from tests.support.conditions import lacking

pytestmark = pytest.mark.engine

NAME = "e2e-time"
CONFIG = """\
version: 1
name: e2e-time
seats: [ada]
seat: {{cpus: 2, memory: 2GiB}}
network: 10.88.2.0/24
address: 127.0.0.1:{port}
"""
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1]}}
"""


@pytest.fixture(scope="module")
def room(class_image: str) -> Iterator[ClassDir]:
    """A class with one seat."""
    plan = plan_class(
        parse_class(CONFIG.format(port=free_port()).encode(), "class.yaml"),
        HostFacts(Inventory("none", (), None, None)),
        parse_cluster(CLUSTER.encode(), "cluster"),
    )
    root = Path(__file__).parents[2]
    up(StoredClass(plan, class_image, CLUSTER, str(root)))
    folder = ClassDir(NAME)
    yield folder
    down(folder, folder.path.parent / "left.zip")


def class_time(*arguments: str) -> str:
    """The output of the teacher's command."""
    command = [sys.executable, "-m", "lab", "class", "time", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def a_board(room: ClassDir) -> Iterator[str]:
    """The board of the class; its address."""
    port, loop = free_port(), asyncio.new_event_loop()
    serving = loop.create_task(serve(partial(encoded, "class", ClassFeed(room)), port))
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([serving])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/?token={token()}"
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(60)
        assert not thread.is_alive()


def left_s(text: str) -> int:
    """The seconds of `4:59 left`; -1: another text."""
    found = re.fullmatch(r"(\d+):(\d\d) left", text.strip())
    return int(found[1]) * 60 + int(found[2]) if found else -1


def counts_down(tab: Tab, most_s: float) -> None:
    """Check that the board shows the time left, and less of it later."""

    def shown() -> int:
        return left_s(str(tab.run("document.querySelector('#clock')?.innerText ?? ''")))

    wait_for(lambda: 0 < shown() <= most_s, "the board shows the time", 120)
    first = shown()
    wait_for(lambda: 0 < shown() < first, "the board counts down", 30)


def test_the_board_counts_down_and_nothing_ends(room: ClassDir) -> None:
    class_time("40m")
    assert "the class ends at" in class_time()
    try:
        with a_board(room) as address, a_browser() as tab:
            tab.show_on(1400)
            wait_for(lambda: tab.open(address) is None, "the board", 60)
            counts_down(tab, 2400)
            class_time("30m")
            counts_down(tab, 1800)
            class_time("1s")
            over = "document.querySelector('#clock').innerText === 'The class is over.'"
            wait_for(lambda: tab.run(over), "the end", 30)
    except engines.NoEngine as reason:
        lacking(str(reason))
    assert "the class ended at" in class_time()
    found = seat_statuses(room)
    assert [each.state for each in found] == ["ready"]
