"""An agent's heartbeat, and the monitor that declares other agents lost."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume
from lab.protocol.volume.control import submit
from lab.protocol.volume.heartbeat import Heartbeat, PeerMonitor
from lab.protocol.volume.states import State
from lab.protocol.volume.status import read_status, write_status
from tests.support.fakes import os_error, raising

TASK = "worker-0"
SILENT = "its agent has sent no heartbeat for 15 s"
ABSENT = "its agent did not start within 120 s"
ENDED = "its agent process has ended"


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    made = Volume(tmp_path)
    made.agents.mkdir()
    return made


class Watch:
    def __init__(self, volume: Volume, patch: pytest.MonkeyPatch) -> None:
        self.monotonic_s, self.time_s = 100.0, time.time()
        patch.setattr(time, "monotonic", lambda: self.monotonic_s)
        patch.setattr(time, "time", lambda: self.time_s)
        self.heart = volume.agent(TASK)
        self.peers = PeerMonitor(volume, [TASK])

    def lost_after(self, seconds: float) -> str | None:
        """Check twice a second for a while; why the agent is lost then."""
        for _ in range(round(seconds * 2)):
            self.monotonic_s += 0.5
            self.peers.check()
        return self.peers.lost_reason(TASK)


@pytest.fixture
def watch(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(volume, monkeypatch)


@pytest.fixture
def heart(watch: Watch) -> Path:
    watch.heart.write_text("{}")
    watch.peers.check()
    watch.heart.touch()
    watch.peers.check()
    return watch.heart


def test_agent_is_lost_after_15_s_without_a_heartbeat(watch: Watch, heart: Path) -> None:
    assert watch.lost_after(14.5) is None
    assert watch.lost_after(0.5) == SILENT
    heart.touch()
    assert watch.lost_after(0.5) is None


@pytest.mark.usefixtures("heart")
def test_a_changed_clock_and_an_own_long_sleep_cause_no_loss(watch: Watch) -> None:
    watch.time_s += 86400
    assert watch.lost_after(10) is None
    watch.monotonic_s += 600
    watch.peers.check()
    assert watch.peers.lost_reason(TASK) is None


@pytest.mark.parametrize("old", [False, True], ids=["none", "of a former agent"])
def test_missing_agent_is_lost_after_2_min(volume: Volume, watch: Watch, old: bool) -> None:
    if old:
        watch.heart.write_text("{}")
        volume.agent_lock(TASK).touch()
        watch.time_s += 3600
        watch.peers.check()
    assert watch.lost_after(119) is None
    assert watch.lost_after(2) == ABSENT


def test_free_lock_and_old_heartbeat_mean_lost(volume: Volume, watch: Watch) -> None:
    watch.heart.write_text("{}")
    patient = PeerMonitor(volume, [TASK], patient=True)
    with volume.agent_lock(TASK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for each in (watch.peers, patient):
            each.check()
        assert watch.lost_after(5) is None  # it is held: this agent is alive
    assert watch.lost_after(1.5) == ENDED
    watch.heart.touch()
    assert watch.lost_after(1) is None  # a heart that beats where no lock is seen
    watch.peers = patient
    assert watch.lost_after(5) is None


@pytest.mark.parametrize("skew_s", [-60.0, 0.0, 60.0])
@pytest.mark.parametrize("beats", [2, 0])
def test_an_agent_without_a_lock_is_known_by_changes_of_its_heartbeat_only(
    volume: Volume, watch: Watch, skew_s: float, beats: int
) -> None:
    Heartbeat(volume, TASK, locks=False).announce()
    assert not volume.agent_lock(TASK).exists()
    for beat in range(beats + 1):
        stamp = watch.time_s + skew_s + beat
        os.utime(watch.heart, (stamp, stamp))
        assert watch.lost_after(1) is None
    limit_s, reason = (15, SILENT) if beats else (120, ABSENT)  # a new agent may be starting
    assert watch.lost_after(limit_s - 1) is None
    assert watch.lost_after(1) == reason


@pytest.mark.parametrize("before", [State.PENDING, State.TRAINING])
def test_an_agent_that_begins_a_run_while_others_watch_has_started(
    volume: Volume, watch: Watch, before: State
) -> None:
    submit(volume, Request("r1", RunSpec("t", "p.py"), {"worker": ["a:1"]}))
    for state in (before, State.TRAINING):
        watch.peers.declare_lost(volume, "r1", {TASK: TaskStatus(TASK, state)})
    # Without a change, the status may be older than the boot of the environment.
    limit_s, reason = (15, SILENT) if before is State.PENDING else (120, ABSENT)
    assert watch.lost_after(limit_s - 1) is None
    assert watch.lost_after(1) == reason


@pytest.mark.parametrize(
    ("known", "written", "then"),
    [
        (State.TRAINING, State.TRAINING, State.LOST),
        (State.TRAINING, State.SUCCEEDED, State.SUCCEEDED),  # its agent wrote the end meanwhile
        (State.SUCCEEDED, State.SUCCEEDED, State.SUCCEEDED),
    ],
)
def test_only_a_task_that_has_not_ended_is_declared_lost(
    volume: Volume, watch: Watch, known: State, written: State, then: State
) -> None:
    submit(volume, Request("r1", RunSpec("t", "p.py"), {"worker": ["a:1"]}))
    path = volume.status("r1", TASK)
    write_status(path, TaskStatus(TASK, written))
    assert watch.lost_after(130) == ABSENT
    watch.peers.declare_lost(volume, "r1", {TASK: TaskStatus(TASK, known)})
    assert read_status(path, TASK).state is then


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_an_agent_survives_a_volume_that_is_full_but_no_other_fault(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    heartbeat = Heartbeat(volume, TASK)
    heartbeat.announce()
    monkeypatch.setattr(os, "utime", raising(os_error(number)))
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output"):
            heartbeat.beat()
    else:
        heartbeat.beat()
