"""An agent's heartbeat on a volume that refuses writes."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from lab.task.agent.agent import Agent
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.execution import Execution
from lab.task.protocol import Volume
from lab.task.protocol.heartbeat import Heartbeat, PeerMonitor


@pytest.fixture
def place(tmp_path: Path) -> AgentConfig:
    (tmp_path / "runs").mkdir()
    folders = (tmp_path / name for name in ("runs", "scripts", "data"))
    return AgentConfig("demo", "tf1", "worker-0", {"worker": ["tf1:2222"]}, *folders)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_an_agent_survives_a_volume_that_refuses(
    place: AgentConfig, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    presence = Heartbeat(Volume(place.runs), place.task)
    presence.announce()

    def refuse(_path: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "utime", refuse)
    presence.beat()


@pytest.mark.parametrize("skew_s", [-60.0, 0.0, 60.0])
def test_an_agent_without_a_lock_is_known_by_its_heartbeat_only(
    place: AgentConfig, monkeypatch: pytest.MonkeyPatch, skew_s: float
) -> None:
    variables = {
        "LAB_PROJECT": "demo",
        "LAB_NODE": "tf1",
        "LAB_TASK": "worker-0",
        "LAB_CLUSTER": json.dumps(place.cluster),
        "LAB_RUNS": str(place.runs),
        "LAB_SCRIPTS": str(place.scripts),
        "LAB_DATA": str(place.data),
    }
    assert AgentConfig.from_environ(variables).locks
    config = AgentConfig.from_environ({**variables, "LAB_LOCKS": "0"})
    volume = Volume(place.runs)
    Heartbeat(volume, place.task, locks=config.locks).announce()
    assert not volume.agent_lock(place.task).exists()
    beats = [skew_s + second for second in (0.0, 1.0, *[2.0] * 16)]
    clock_s, start = [0.0], time.time()
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    peers = PeerMonitor(volume, [place.task])
    reasons = []
    for beat in beats:
        os.utime(volume.agent(place.task), (start + beat, start + beat))
        clock_s[0] += 1.0
        peers.check()
        reasons.append(peers.lost_reason(place.task))
    assert reasons == [*[None] * 17, "its agent has sent no heartbeat for 15 s"]


@pytest.mark.parametrize("skew_s", [-60.0, 0.0, 60.0])
def test_without_locks_an_old_heartbeat_is_not_judged_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew_s: float
) -> None:
    volume = Volume(tmp_path)
    Heartbeat(volume, "worker-0", locks=False).announce()
    beat = time.time() + skew_s
    os.utime(volume.agent("worker-0"), (beat, beat))
    clock_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    peers = PeerMonitor(volume, ["worker-0"])
    for _ in range(119):
        clock_s[0] += 1.0
        peers.check()
        assert peers.lost_reason("worker-0") is None  # a new agent may be starting
    clock_s[0] += 1.0
    peers.check()
    clock_s[0] += 1.0
    peers.check()
    assert peers.lost_reason("worker-0") == "its agent did not start within 120 s"


def test_another_fault_of_the_volume_ends_the_agent(
    place: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = Heartbeat(Volume(place.runs), place.task)
    presence.announce()

    def fail(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "utime", fail)
    with pytest.raises(OSError, match="Input/output"):
        presence.beat()


def test_a_stopped_agent_does_not_wait_for_a_refusing_volume() -> None:
    class Refused(Execution):
        """A task that has ended, and whose status cannot be written."""

        cannot_end = True
        wake_fds = ()

        def __init__(self) -> None:
            """Nothing is started."""

        def interrupt(self, reason: str, *, grace_s: float = 0.0) -> None:
            """No process is left."""

        def step(self) -> bool:
            return False

    agent = Agent.__new__(Agent)
    agent._execution = Refused()
    agent._shut_down("told to go")
    assert agent._execution is None
