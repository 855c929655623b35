"""Signals while something is built up or taken down."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import signals
from lab.backends.compose import ComposeBackend
from lab.backends.compose import backend as compose
from lab.backends.compose.removal import NOTHING
from lab.backends.local import backend as local
from lab.backends.local.state import Place
from lab.cli import main
from lab.cli.commands import up
from lab.cli.failures import INTERRUPTED
from lab.errors import LabError
from tests.unit.fakes import FakeBackend, FakeEnvironment
from tests.unit.test_cli import CLUSTER

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[int]]:
    """The signals that reach this process; each test leaves the handlers as it found them."""
    numbers: list[int] = []
    before = {number: signal.getsignal(number) for number in ALL}
    for number in ALL:
        signal.signal(number, lambda number, _frame: numbers.append(number))
    installed = {number: signal.getsignal(number) for number in ALL}
    yield numbers
    left = {number: signal.signal(number, handler) for number, handler in before.items()}
    assert left == installed


def hit(number: int) -> None:
    """Send this thread a signal; it is heard before the next line, unless it is blocked."""
    signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_like_ctrl_c(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), signals.as_interrupt():
        hit(number)


def test_a_hangup_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.as_interrupt():
            hit(signal.SIGHUP)
            with signals.undisturbed():
                pass
            hit(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_is_deferred_comes_later() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), signals.as_interrupt(), signals.deferred():
        hit(signal.SIGTERM)
        done.append(True)
    assert done


def hit_by_all(and_then: Callable[[], None] = lambda: None) -> None:
    for number in ALL:
        hit(number)
    and_then()


def test_a_failed_boot_of_containers_is_cleaned_up_whatever_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[int]
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    file = compose.state.keep("mnist", "services: {}\n")

    def refuses() -> None:
        raise LabError("the engine refused")

    said: list[str] = []
    monkeypatch.setattr(compose, "remove", lambda *_args, **_more: hit_by_all(refuses))
    ComposeBackend()._undo("mnist", NOTHING, said.append)
    assert said == ["not all of mnist could be removed: the engine refused; try `lab down mnist`"]
    assert not file.exists()
    assert heard == []


def test_a_failed_boot_of_processes_is_cleaned_up_whatever_comes(
    tmp_path: Path, heard: list[int]
) -> None:
    class Interrupted(Place):
        def read(self) -> None:
            hit_by_all()

    place = Interrupted(tmp_path / "demo")
    place.directory.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as supervisor:
        local._undo(place, supervisor)
        assert supervisor.poll() == -signal.SIGKILL
    assert not place.directory.exists()
    assert heard == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_up_that_is_told_to_go_takes_down_what_it_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class Booting(FakeBackend):
        def up(self, *_args: object, **_more: object) -> FakeEnvironment:
            try:
                hit(number)
            except KeyboardInterrupt:
                undone.append(True)
                raise
            pytest.fail("it booted on")

    undone: list[bool] = []
    monkeypatch.setattr(up, "backends", lambda: [Booting()])
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(CLUSTER)
    Path("scripts").mkdir()
    assert main(["up", "--gpus", "none"]) == INTERRUPTED
    assert undone
