"""The time of a class on a real engine: real trainings in a seat and in the queue end with it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from lab.board.class_feed import ClassFeed
from lab.board.server import serve, token
from lab.board.source import encoded
from lab.classroom import names
from lab.classroom.config import parse_class
from lab.classroom.environment import down, up
from lab.classroom.planning import plan_class
from lab.classroom.remains import read_class
from lab.classroom.shortages import HostFacts
from lab.classroom.state import ClassDir, StoredClass
from lab.classroom.status import seat_statuses
from lab.config import parse_cluster
from lab.gpu import Inventory
from lab.threads import in_background
from tests.support import engine as engines
from tests.support.agents import wait_for
from tests.support.browser import page_of
from tests.support.chromium import Tab, a_browser
from tests.support.commands import free_port
from tests.support.conditions import lacking
from tests.support.docker import docker

pytestmark = pytest.mark.engine

NAME = "e2e-time"
S = 600.0
"""Much more than a training needs to start."""

CONFIG = """\
version: 1
name: e2e-time
seats: [ada, bob, cy]
seat: {{cpus: 2, memory: 2GiB}}
cpu_runs: 1
network: 10.88.2.0/24
address: 127.0.0.1:{port}
"""
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1]}}
"""
LONG = ("async", "--epochs", "1000", "--gpus", "none")
SHORT = "print('done')\n"
SERVICES = {"lab.classroom.end_service", "lab.classroom.queue.service"}
OVER = "the time of the class is over"


@pytest.fixture(scope="module")
def room(class_image: str) -> Iterator[ClassDir]:
    """A class with a queue for runs on CPUs."""
    plan = plan_class(
        parse_class(CONFIG.format(port=free_port()).encode(), "class.yaml"),
        HostFacts(Inventory("none", (), None, None)),
        parse_cluster(CLUSTER.encode(), "cluster"),
    )
    root = Path(__file__).parents[2]
    up(StoredClass(plan, class_image, CLUSTER, ("async",), str(root)))
    folder = ClassDir(NAME)
    yield folder
    down(folder, folder.path.parent / "left.zip")


def in_seat(seat: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the home directory of a seat."""
    execute = ["docker", "exec", "--workdir", names.MOUNT, names.seat_object(NAME, seat)]
    return subprocess.run([*execute, *command], capture_output=True, text=True, check=False)


def run(seat: str, *arguments: str) -> Future[subprocess.CompletedProcess[str]]:
    return in_background(lambda: in_seat(seat, "lab", "run", *arguments))


def class_time(*arguments: str) -> str:
    """The output of the teacher's command."""
    command = [sys.executable, "-m", "lab", "class", "time", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def paused(seat: str) -> Iterator[None]:
    """A seat that gives no answer."""
    container = names.seat_object(NAME, seat)
    docker("pause", container)
    try:
        yield
    finally:
        docker("unpause", container)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that goes on only when the block has ended."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def steps(room: ClassDir) -> dict[str, int | None]:
    """The step of the newest run of each seat."""
    found = seat_statuses(*read_class(room))
    return {each.seat: each.run.global_step for each in found if each.run}


def services(room: ClassDir) -> dict[str, int]:
    """The processes of the services below JupyterHub."""
    hub, found = room.hub(), {}
    assert hub is not None
    for each in psutil.Process(hub.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found |= dict.fromkeys(SERVICES & set(each.cmdline()), each.pid)
    return found


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


def counts_down(tab: Tab, selector: str, most_s: float) -> None:
    """Check that a page shows the time left, and less of it later."""

    def shown() -> int:
        return left_s(str(tab.run(f"document.querySelector('{selector}')?.innerText ?? ''")))

    wait_for(lambda: 0 < shown() <= most_s, f"{selector} shows the time", 120)
    first = shown()
    wait_for(lambda: 0 < shown() < first, f"{selector} counts down", 30)


def test_seats_read_the_end_and_cannot_change_it(room: ClassDir) -> None:
    class_time("50m")
    assert "the class ends at" in class_time()
    assert re.fullmatch("(50|49) min left\n", in_seat("ada", "lab", "class", "time").stdout)
    refused = in_seat("ada", "lab", "class", "time", "+5h")
    assert refused.returncode == 2
    assert "only the teacher changes the end" in refused.stderr
    for attack in ("echo {} > /srv/lab-class/time.json", "rm /srv/lab-class/time.json"):
        assert in_seat("ada", "sh", "-c", attack).returncode != 0
    assert json.loads(class_time("--json"))["left_s"] < 3000
    assert in_seat("ada", "ls", "/srv/lab-class").stdout == "time.json\n"


def test_the_board_and_a_seat_count_down(room: ClassDir) -> None:
    class_time("40m")
    plan = room.stored().plan
    try:
        with a_board(room) as address, a_browser() as tab:
            tab.show_on(1400)
            wait_for(lambda: tab.open(address) is None, "the board", 60)
            counts_down(tab, "#clock", 2400)
            tab.sign_in(plan.url, "ada", room.tokens().seats["ada"])
            tab.open(page_of(plan, "ada", "lab"))
            counts_down(tab, "#jp-top-panel #lab-class-time", 2400)
            class_time("30m")
            counts_down(tab, "#jp-top-panel #lab-class-time", 1800)
    except engines.NoEngine as reason:
        lacking(str(reason))


def test_runs_end_with_a_checkpoint_and_orders_wait_for_an_extension(room: ClassDir) -> None:
    class_time("2h")
    local, queued = run("ada", *LONG), run("bob", *LONG, "--backend", "class")
    wait_for(lambda: min(steps(room).get(each) or 0 for each in ("ada", "bob")) > 0, "steps", S)
    assert not local.done() and not queued.done()
    before, hub = services(room), room.hub()
    assert set(before) == SERVICES
    assert hub is not None
    with paused("cy"):
        with stopped(hub.pid):  # it starts no service, so the end passes while none runs
            for pid in before.values():
                os.kill(pid, signal.SIGKILL)
            class_time("1s")
            wait_for(lambda: json.loads(class_time("--json"))["left_s"] == 0, "the end", 60)
        for done in (local.result(S), queued.result(S)):
            assert done.returncode == 1, done.stderr
            reason = rf"{OVER}; continue with --resume \S+-async-"
            assert re.search(reason, done.stderr), done.stderr
    assert not set(before.values()) & set(services(room).values())
    for seat in ("ada", "bob"):
        found = in_seat(seat, "sh", "-c", "ls runs/*/checkpoints/model-*.index").stdout.split()
        assert any(int(re.findall(r"model-(\d+)\.index", each)[0]) > 0 for each in found), found

    assert in_seat("bob", "sh", "-c", f'printf "%s" "{SHORT}" > short.py').returncode == 0
    short = ("short.py", "--gpus", "none", "--backend", "class")
    refused = run("bob", *short).result(S)
    assert refused.returncode == 2
    assert f"{OVER}; ask your teacher to extend it" in refused.stderr
    assert in_seat("bob", "lab", "class", "time").stdout == f"{OVER}\n"
    class_time("+15m")
    done = run("bob", *short).result(S)
    assert done.returncode == 0, done.stderr
