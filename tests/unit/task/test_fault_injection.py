"""The agent's faults on its own program: each signal is in time, and never after the end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.protocol.volume import Request, RunSpec, Volume, control
from lab.protocol.volume.control import submit
from lab.task.agent import fault_injection
from lab.task.agent.fault_injection import FaultInjector, Throttle
from lab.task.agent.process import ChildProcess
from tests.support.agents import wait_for
from tests.support.fakes import Clock


class Victim:
    def __init__(self) -> None:
        self.got: list[str] = []
        self.has_ended = False

    def ended(self) -> bool:
        return self.has_ended

    def signal(self, number: int) -> None:
        self.got.append(signal.Signals(number).name.removeprefix("SIG"))


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    made = Volume(tmp_path / "runs")
    made.root.mkdir()
    submit(made, Request("r1", RunSpec("t", "p.py"), {"worker": ["tf1:1", "tf2:1"]}))
    return made


Make = Callable[..., FaultInjector]


@pytest.fixture
def make(volume: Volume) -> Iterator[Make]:
    made = []

    def one(*texts: str, task: str = "worker-1") -> FaultInjector:
        request = Request("r1", RunSpec("t", "p.py", faults=texts), {})
        made.append(FaultInjector(request, task, "tf2", volume))
        return made[-1]

    yield one
    for each in made:
        each.release()
    assert throttles() == []


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ChildProcess]:
    program = ChildProcess([sys.executable, "-c", "while True: pass"], {}, tmp_path)
    yield program
    program.reap()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(fault_injection, "time", SimpleNamespace(monotonic=made))
    return made


def throttles() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "throttle"]


def state(program: ChildProcess) -> str:
    return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_due_faults_happen_once(make: Make) -> None:
    victim = Victim()
    faulty = make("stop worker-1 after 5s", "kill tf2 after 500 steps", "kill worker-0")
    assert faulty.step(victim, 4.9, 499, trains=True) == []
    assert faulty.step(victim, 5.0, None, trains=True) == ["fault: stop worker-1 after 5s"]
    assert faulty.step(victim, 6.0, 500, trains=True) == ["fault: kill tf2 after 500 steps"]
    assert faulty.step(victim, 7.0, 501, trains=True) == []
    assert victim.got == ["TERM", "KILL"]


def test_a_fault_waits_for_a_program(make: Make) -> None:
    victim = Victim()
    faulty = make("kill worker-1")
    victim.has_ended = True
    assert (
        faulty.step(None, 1.0, None, trains=True)
        == faulty.step(victim, 1.0, None, trains=True)
        == []
    )
    victim.has_ended = False
    assert faulty.step(victim, 1.0, None, trains=True) == ["fault: kill worker-1"]
    assert victim.got == ["KILL"]


def test_a_restarted_agent_does_not_repeat_faults(make: Make, volume: Volume) -> None:
    control.inject_fault(volume, "r1", "stop worker-1")
    victim = Victim()
    both = ["fault: kill worker-1", "fault: stop worker-1"]
    assert make("kill worker-1").step(victim, 1.0, None, trains=True) == both
    assert make("kill worker-1").step(victim, 1.0, None, trains=True) == []
    noted = sorted((volume.faults("r1") / "worker-1").iterdir())
    assert [path.name for path in noted] == ["0.json", "request-0.json"]
    assert json.loads(noted[0].read_text())["fault"] == "stop worker-1"


def test_a_fault_is_injected_once_on_an_unwritable_volume(make: Make, volume: Volume) -> None:
    (volume.run("r1") / "faults").write_text("in the way")
    victim = Victim()
    faulty = make("kill worker-1")
    assert faulty.step(victim, 1.0, None, trains=True) == ["fault: kill worker-1"]
    assert faulty.step(victim, 1.0, None, trains=True) == []


def test_network_faults_of_the_client_are_recorded(
    make: Make, volume: Volume, clock: Clock
) -> None:
    faulty = make("cut:5s tf2")
    assert faulty.step(None, 1.0, None, trains=True) == []
    control.inject_fault(volume, "r1", "cut:5s tf2")
    assert faulty.current_fault == ""
    assert faulty.step(None, 1.0, None, trains=False) == ["fault: cut:5s tf2"]
    clock.now += 4.9
    assert faulty.step(None, 6.0, None, trains=True) == []
    assert faulty.current_fault == "is under the fault cut:5s tf2"
    clock.now += 0.2
    assert faulty.step(None, 6.1, None, trains=True) == ["fault over: cut:5s tf2"]
    assert faulty.current_fault == ""


def test_invalid_faults_are_reported(make: Make, volume: Volume) -> None:
    faulty = make("hurt worker-1", "stop worker-1")
    victim = Victim()
    output = faulty.step(victim, 1.0, None, trains=True)
    assert output[0].startswith("fault skipped: no fault 'hurt'")
    assert output[1] == "fault: stop worker-1"
    volume.faults("r1").mkdir(exist_ok=True)
    (volume.faults("r1") / "7.json").write_text("{")
    assert faulty.step(victim, 1.0, None, trains=True)[0].startswith("fault skipped: ")
    assert faulty.step(victim, 1.0, None, trains=True) == []


def test_a_fault_within_the_same_clock_tick_is_seen(make: Make, volume: Volume) -> None:
    victim, folder = Victim(), volume.faults("r1")
    faulty = make()
    for number, text in enumerate(("stop worker-1", "kill worker-1")):
        control.inject_fault(volume, "r1", text)
        os.utime(folder, ns=(1, 1))  # the directory's time does not change
        assert faulty.step(victim, 1.0, None, trains=True) == [f"fault: {text}"], number


def test_a_pause_stops_the_program_for_its_time(make: Make, sleeper: ChildProcess) -> None:
    faulty = make("pause:0.5s worker-1")
    began = time.monotonic()
    assert faulty.step(sleeper, 1.0, None, trains=True) == ["fault: pause:0.5s worker-1"]
    # The kernel reports this only of a stopped program: a poll could be too late.
    assert os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED) is not None
    assert time.monotonic() - began > 0.45
    assert state(sleeper) != "T"
    wait_for(
        lambda: faulty.step(sleeper, 2.0, None, trains=True) == ["fault over: pause:0.5s worker-1"],
        "said",
    )


def test_a_paused_program_receives_sigterm(make: Make, sleeper: ChildProcess, clock: Clock) -> None:
    faulty = make("pause:60s worker-1")
    faulty.step(sleeper, 1.0, None, trains=True)
    wait_for(lambda: state(sleeper) == "T", "the program stands still")
    faulty.release()
    sleeper.signal(signal.SIGTERM)
    wait_for(sleeper.ended, "the program's end")
    clock.now += 61.0
    assert (
        faulty.step(sleeper, 99.0, None, trains=True) == []
    )  # a pause that was broken off is not over


def test_a_slowed_program_runs_for_its_share_of_the_time(make: Make, sleeper: ChildProcess) -> None:
    """Its signals leave it this share, and it uses no more; a busy host may give it less."""
    share = 0.2
    faulty = make("slow:0.2,60s worker-1")
    signals: list[tuple[float, int]] = []
    send = sleeper.signal

    def noted(number: int) -> None:
        signals.append((time.monotonic(), number))
        send(number)

    sleeper.signal = noted
    before_s = cpu_s(sleeper)
    faulty.step(sleeper, 1.0, None, trains=True)
    wait_for(lambda: len(signals) > 40, "twenty periods")
    faulty.release()
    used_s = cpu_s(sleeper) - before_s
    assert state(sleeper) != "T"
    assert [number for _, number in signals[:4]] == [signal.SIGSTOP, signal.SIGCONT] * 2
    # The median: a thread of a busy host wakes late now and then.
    turns = [end - begin for (begin, _), (end, _) in itertools.pairwise(signals)]
    stopped_s, ran_s = statistics.median(turns[::2]), statistics.median(turns[1::2])
    assert ran_s / (ran_s + stopped_s) == pytest.approx(share, abs=0.15)
    all_s = signals[-1][0] - signals[0][0]
    assert 0 < used_s < all_s * (share + 0.2) + 0.1


def cpu_s(program: ChildProcess) -> float:
    fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_pause_of_a_slowed_program(make: Make) -> None:
    victim = Victim()
    faulty = make("slow:0.9,60s worker-1", "pause:60s worker-1 after 2s")
    faulty.step(victim, 1.0, None, trains=True)
    faulty.step(victim, 2.0, None, trains=True)
    wait_for(lambda: victim.got[-1:] == ["STOP"], "the program stands still")
    before = len(victim.got)
    until = time.monotonic() + 0.3
    wait_for(lambda: time.monotonic() > until, "three periods")
    assert len(victim.got) <= before + 1
    assert victim.got[-1] == "STOP"
    faulty.release()
    assert victim.got[-1] == "CONT"


def test_nothing_is_sent_after_release() -> None:
    for _ in range(200):
        victim = Victim()
        brake = Throttle(victim)
        brake.hold(60.0, 0.5)
        brake.release()
        after = list(victim.got)
        assert after[-1:] != ["STOP"]
        brake.release()
        assert victim.got == after
    assert throttles() == []


def test_an_ended_program_gets_no_signal() -> None:
    victim = Victim()
    brake = Throttle(victim)
    victim.has_ended = True
    brake.hold(60.0)
    wait_for(lambda: not throttles(), "the brake's end")
    assert victim.got == []


def test_the_next_program_has_its_own_throttle(make: Make) -> None:
    first, second = Victim(), Victim()
    faulty = make("pause:60s worker-1", "pause:60s worker-1 after 2s")
    faulty.step(first, 1.0, None, trains=True)
    wait_for(lambda: first.got == ["STOP"], "the first stands still")
    faulty.step(second, 2.0, None, trains=True)
    wait_for(lambda: second.got == ["STOP"], "the second stands still")
    assert first.got == ["STOP", "CONT"]
