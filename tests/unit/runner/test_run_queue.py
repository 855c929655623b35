"""The queue of runs that one environment makes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from lab.backends.state import Busy
from lab.base.errors import LabError
from lab.protocol.volume import Request
from lab.protocol.volume.states import State
from lab.runner import runner
from lab.runner.prepared import PreparedRun
from lab.runner.run_queue import clean, turn
from lab.runner.runner import execute
from tests.support.agents import PATIENCE_S, ROOT, wait_for
from tests.support.disks import fill, read_only, small_disk
from tests.support.fakes import REQUEST, FakeBackend, FakeEnvironment, end
from tests.support.specs import prepared_run

NONE = FakeBackend()

CHILD = """\
import sys
from lab.cli import exit_code_of
from lab.base.log import shown_by
from lab.runner.run_queue import turn
from lab.base.signals import as_interrupt
from tests.support.fakes import FakeBackend

def say(line):
    print(line, flush=True)

def run():
    with shown_by(say), turn(FakeBackend(), "mnist") as mine:
        mine.begin(sys.argv[1])
        say("has its turn")
        input()

with as_interrupt():
    sys.exit(exit_code_of(run, debug=False))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state/local"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    found: list[subprocess.Popen[str]] = []
    yield found
    for each in found:
        each.kill()
        each.communicate()


def ask(children: list[subprocess.Popen[str]], run_id: str) -> subprocess.Popen[str]:
    found = subprocess.Popen(
        [sys.executable, "-c", CHILD, run_id],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children.append(found)
    return found


def line(child: subprocess.Popen[str]) -> str:
    return child.stdout.readline().rstrip("\n")


def waits(run_id: str, position: int) -> str:
    return f"waiting for run {run_id} in environment 'mnist': position {position} in the queue"


def queue_files(folder: Path) -> list[Path]:
    return list(folder.glob("*.queue*"))


def test_first_come_first_served(children: list[subprocess.Popen[str]], folder: Path) -> None:
    first = ask(children, "r1")
    assert line(first) == "has its turn"
    others = []
    for number in (1, 2, 3):
        others.append(ask(children, f"r{number + 1}"))
        assert line(others[-1]) == waits("r1", number)
    # One that is killed, and one that is interrupted, leave the queue; the others move up.
    killed, interrupted, last = others
    killed.kill()
    assert line(interrupted) == waits("r1", 1)
    assert line(last) == waits("r1", 2)
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait(PATIENCE_S) == 130
    assert interrupted.communicate()[1] == "error: interrupted\n"
    assert line(last) == waits("r1", 1)
    first.communicate("\n", timeout=PATIENCE_S)
    assert line(last) == "has its turn"
    late = ask(children, "r5")
    assert line(late) == waits("r4", 1)
    last.communicate("\n", timeout=PATIENCE_S)
    assert line(late) == "has its turn"
    late.communicate("\n", timeout=PATIENCE_S)
    assert not any(folder.glob("*.queue.*"))


def test_a_run_without_its_client_is_awaited(
    tmp_path: Path, notices: list[str], children: list[subprocess.Popen[str]]
) -> None:
    environment = FakeEnvironment(tmp_path / "volume", lambda _volume, _request: None)
    environment.train()
    order: list[str] = []
    behind: list[str] = []

    def finish() -> None:
        wait_for(lambda: notices, "it waits")
        behind.append(line(ask(children, "r2")))
        for task in REQUEST.tasks():
            order.append(task)
            end(environment.volume, "r1", task, State.SUCCEEDED)

    thread = threading.Thread(target=finish)
    thread.start()
    backend = FakeBackend(environment=environment)
    with turn(backend, "mnist") as mine:
        order.append("turn")
        assert mine.waited
    thread.join(PATIENCE_S)
    assert order == [*REQUEST.tasks(), "turn"]
    assert notices == [waits("r1", 1)]
    assert behind == [waits("r1", 2)]


def test_a_removed_environment_is_no_longer_awaited(tmp_path: Path) -> None:
    class Unreadable(FakeEnvironment):
        def runs(self) -> list[Request]:
            self.is_left = is_removed
            raise LabError("its volume cannot be read")

    backend, is_removed = FakeBackend(environment=Unreadable(tmp_path)), False
    unreadable = pytest.raises(LabError, match="cannot be read")
    with unreadable, turn(backend, "mnist"):
        pytest.fail("it had its turn")
    is_removed = True
    with turn(backend, "mnist") as mine:
        assert not mine.waited


def test_a_state_directory_that_cannot_be_written(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("")
    message = f"state directory {folder.parent} cannot be used: .*STATE"
    with pytest.raises(LabError, match=message), turn(NONE, "mnist"):
        pytest.fail("it had its turn")


def test_a_turn_needs_no_space_on_the_disk(
    children: list[subprocess.Popen[str]], folder: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "state"):
        fill(tmp_path / "state")
        with turn(NONE, "mnist") as mine:
            mine.begin("r1")
            other = ask(children, "r2")
            assert line(other) == (
                "waiting for another command in environment 'mnist': position 2 in the queue"
            )
        assert line(other) == "has its turn"
        other.communicate("\n", timeout=PATIENCE_S)
        assert queue_files(folder) == []


def test_a_disk_that_becomes_read_only_does_not_change_the_outcome(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(*_: object) -> str:
        stack.enter_context(read_only(folder))
        return "done"

    monkeypatch.setattr(runner, "_begin", Mock())
    monkeypatch.setattr(runner, "execute_run", once)
    with contextlib.ExitStack() as stack:
        assert execute(prepared_run(Path()), view=Mock()) == "done"
        assert len(queue_files(folder)) == 2
    clean("local", "mnist")
    assert queue_files(folder) == []


def test_the_files_of_a_killed_command_are_removed(
    children: list[subprocess.Popen[str]], folder: Path
) -> None:
    killed = ask(children, "r1")
    assert line(killed) == "has its turn"
    clean("local", "mnist")
    assert len(queue_files(folder)) == 2  # its process runs
    killed.kill()
    killed.communicate(timeout=PATIENCE_S)
    assert len(queue_files(folder)) == 2
    clean("local", "mnist")
    assert queue_files(folder) == []


def test_a_run_that_another_user_was_quicker_than_waits_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lab.runner.run_queue._ASK_S", 0.01)
    run = prepared_run(Path(), backend=NONE)
    tries = Mock(side_effect=[Busy("run r1 is under way"), Busy("run r2 is under way"), "done"])
    looks = Mock(return_value=run)
    monkeypatch.setattr(runner, "_begin", Mock())
    monkeypatch.setattr(runner, "execute_run", tries)
    monkeypatch.setattr(PreparedRun, "placed_again", looks)
    assert execute(run, view=Mock()) == "done"
    assert (tries.call_count, looks.call_count) == (3, 2)
