"""Signals while an environment is booted or removed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.backends.boot import Boot, boot
from lab.backends.gpu_record import Handover
from lab.base import signals
from lab.base.signals import EXIT_INTERRUPTED, way_to_end
from tests.support.fakes import PLAN

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


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
    """Send this thread a signal; it is handled before the next line, unless it is blocked."""
    signal.raise_signal(number)


class Dying:
    """Receives a signal while Python ignores exceptions."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        hit(self.number)
        raise AssertionError  # the signal ends this method before


@pytest.mark.parametrize("number", ALL)
def test_a_signal_is_sent_again_after_python_ignores_exceptions(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def slowly() -> Iterator[None]:
        yield
        time.sleep(0.1)  # as on a busy host

    monkeypatch.setattr(signals, "signals_blocked", slowly)
    with pytest.raises(KeyboardInterrupt), signals.as_interrupt():
        Dying(number)
        time.sleep(10)
        pytest.fail("it was not sent again")


@pytest.mark.parametrize("number", ALL)
def test_a_signal_is_like_ctrl_c_also_if_python_ignores_its_interrupt(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), signals.as_interrupt():
        hit(number)
    usual = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), signals.as_interrupt():
        Dying(number)
        time.sleep(10)
        pytest.fail("it was not sent again")
    assert sys.unraisablehook is usual


def interrupts(*numbers: int) -> int:
    """How many KeyboardInterrupts these signals make, one after the other."""
    count = 0
    with signals.as_interrupt():
        for number in numbers:
            try:
                hit(number)
            except KeyboardInterrupt:
                count += 1
    return count


@pytest.mark.parametrize(
    ("repeat_s", "numbers", "count"),
    [
        (60.0, (signal.SIGTERM, signal.SIGTERM, signal.SIGINT), 1),  # they follow closely
        (0.0, (signal.SIGHUP, signal.SIGINT), 2),
        (0.0, (signal.SIGHUP, signal.SIGQUIT), 2),
        (0.0, (signal.SIGHUP, signal.SIGHUP), 1),  # a terminal closes once
    ],
)
def test_a_second_signal_is_another_interrupt(
    monkeypatch: pytest.MonkeyPatch, repeat_s: float, numbers: tuple[int, ...], count: int
) -> None:
    monkeypatch.setattr(signals, "REPEAT_S", repeat_s)
    assert interrupts(*numbers) == count


def test_a_signal_of_an_inner_block_is_the_first_of_the_outer_one() -> None:
    with signals.as_interrupt():
        with pytest.raises(KeyboardInterrupt), signals.as_interrupt():
            hit(signal.SIGINT)
        hit(signal.SIGINT)


@pytest.fixture
def no_timer() -> Iterator[None]:
    """No timer of the tests themselves, which limits the time of each."""
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.setitimer(signal.ITIMER_REAL, left_s)


@pytest.mark.usefixtures("no_timer")
def test_a_time_limit_interrupts_once() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt), signals.time_limit(0.01):
        signal.pause()
    with signals.time_limit(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.usefixtures("no_timer")
def test_a_time_limit_leaves_the_timer_of_its_caller() -> None:
    with pytest.raises(KeyboardInterrupt), signals.time_limit(1000):
        with signals.time_limit(60):
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 60
        assert 60 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with signals.time_limit(60):  # the outer time ends in here, and is reported after it
            time.sleep(0.2)
            was_inside = True
        signal.pause()
    assert was_inside


def test_ignored_ctrl_z_stays_ignored() -> None:
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        with signals.on_suspend(pytest.fail, pytest.fail):
            hit(signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)


KILLED = "os.kill(os.getpid(), signal.SIGTERM)"
AT_IMPORT = (
    "sys.meta_path.insert(0, type('F', (), {{'find_spec': staticmethod("
    f"lambda name, *_: {KILLED} if name == '{{}}' else None)}}}})())\n"
)


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGINT, AT_IMPORT.format("lab.base.signals")),
        *((number, AT_IMPORT.format("lab.cli")) for number in ALL),
        *((number, f"import atexit\natexit.register(lambda: {KILLED})\n") for number in ALL),
    ],
)
def test_a_signal_shows_no_traceback_and_dumps_no_core(number: signal.Signals, line: str) -> None:
    """At any moment of a command's life, from its first line on."""
    line = line.replace("SIGTERM", number.name)
    program = f"import sys, os, signal\nfrom lab import __main__ as lab\n{line}lab.main()\n"
    command = [sys.executable, "-c", program, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "")


def test_an_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.as_interrupt():
            hit(signal.SIGHUP)
            with signals.ignore_signals():
                pass
            hit(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("deferred", [False, True])
def test_signals_are_deferred_from_the_call_on(deferred: bool) -> None:
    done = []
    with (
        pytest.raises(KeyboardInterrupt),
        signals.as_interrupt(),
        signals.blockable_interrupts() as defer,
    ):
        if deferred:
            defer()
        hit(signal.SIGTERM)
        done.append(True)
    assert bool(done) is deferred


def hit_by_all() -> None:
    for number in ALL:
        hit(number)


class Interrupted(Boot[Any]):
    """A boot that is interrupted, and again by all signals while it is undone."""

    backend = "local"
    undone = False

    def prepare(self) -> None:
        pass

    def start(self, lock: int | None, hold: Handover) -> Any:
        raise KeyboardInterrupt

    def undo(self) -> None:
        hit_by_all()
        self.undone = True


def test_an_interrupted_boot_is_always_undone(
    tmp_path: Path, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    steps = Interrupted(PLAN, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        boot(steps, share=False)
    assert steps.undone
    assert heard == []


def interrupting(at: object) -> Callable[[int, object], object]:
    """A `pthread_sigmask` whose first calls with this mask are interrupted."""
    block, early = signal.pthread_sigmask, [True, True]

    def told_late(how: int, mask: object) -> object:
        before = block(how, mask)
        if mask == at and early:
            early.pop()
            raise KeyboardInterrupt
        return before

    return told_late


def test_signals_while_a_clean_up_begins_do_not_keep_it_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore, blocked = signal.signal, signal.pthread_sigmask(signal.SIG_BLOCK, ())
    done = []

    def hit_first(number: int, handler: object) -> object:
        if handler is signal.SIG_IGN:
            hit_by_all()
        return ignore(number, handler)

    with signals.as_interrupt():
        monkeypatch.setattr(signal, "signal", hit_first)
        monkeypatch.setattr(signal, "pthread_sigmask", interrupting(signals.HANDLED))
        with signals.ignore_signals():
            done.append(True)
        monkeypatch.undo()
    assert done
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


def test_how_a_process_ended_is_said_by_code_or_signal() -> None:
    ways = [way_to_end(code) for code in (0, 3, -signal.SIGKILL, -signal.SIGRTMIN - 1)]
    assert ways == ["exit code 0", "exit code 3", "SIGKILL", f"signal {signal.SIGRTMIN + 1}"]
