"""An agent's heartbeat on a volume that refuses writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lab.task.agent.agent import Agent
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.execution import Execution
from lab.task.protocol import Volume
from lab.task.protocol.heartbeat import Heartbeat


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
