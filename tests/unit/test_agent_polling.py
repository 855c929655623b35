"""How often an agent polls its run: rarely, but often if its program waits for the others."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lab.task.agent.agent import Agent
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.protocol import Request, RunSpec, TaskStatus, Volume
from lab.task.protocol.control import submit
from lab.task.protocol.states import State
from lab.task.protocol.statuses import read_status, write_status

MINE, OTHER = "worker-0", "worker-1"
CLUSTER = {"worker": ["tf1:2222", "tf2:2222"]}
LOOKS = 4  # of each kind that are looked at
PATIENCE_S = 20.0


class Talker:
    """A program without a process, whose output the test sets; it is its own launcher."""

    wake_fds = ()
    pid = 0

    def __init__(self) -> None:
        self.output, self._writing = os.pipe()
        self._signals: list[int] = []

    def notify(self, kind: str, rest: str) -> None:
        os.write(self._writing, f"lab kind={kind} job_name=worker task_index=0 {rest}\n".encode())

    def is_ready(self, _request: Request) -> bool:
        return True

    def start(
        self, _request: Request, _environ: Mapping[str, str], _folder: Path
    ) -> tuple[Talker, str]:
        self.notify("start", "status=starting")
        return self, ""

    def ended(self) -> bool:
        return bool(self._signals)

    def signal(self, number: int) -> None:
        self._signals.append(number)
        self.close()

    def reap(self) -> int:
        return -self._signals[0] if self._signals else -signal.SIGKILL

    def close(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


class Looks:
    """Replaces the agent's sleep: keeps the duration of each sleep, and advances the run.

    Attributes:
        pauses: State of the agent's own task, as written, to seconds.
    """

    count = 0

    def __init__(self, volume: Volume, program: Talker) -> None:
        self.reason: str | None = None
        self.pauses: defaultdict[State, list[float]] = defaultdict(list)
        self._volume = volume
        self._program = program
        self._deadline = time.monotonic() + PATIENCE_S

    def wait(self, at_most_s: float, also: Sequence[int] = ()) -> None:
        del also
        state = read_status(self._volume.status("r1", MINE), MINE).state
        self.pauses[state].append(at_most_s)
        if state is State.READY and self._volume.start("r1", MINE).exists():
            self._program.notify("step", "local_step=1 global_step=1")
        elif len(self.pauses[state]) == LOOKS:
            self._go_on(state)
        if time.monotonic() > self._deadline:
            self.reason = f"the test waited in vain: {dict(self.pauses)}"
        time.sleep(at_most_s)

    def _go_on(self, state: State) -> None:
        if state is State.STARTING:
            self._program.notify("event", "status=ready")
        elif state is State.READY:
            write_status(self._volume.status("r1", OTHER), TaskStatus(OTHER, State.READY))
        elif state is State.TRAINING:
            self.reason = "enough"


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    (tmp_path / "runs").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/program.py").touch()
    return Volume(tmp_path / "runs")


@pytest.fixture
def program() -> Iterator[Talker]:
    made = Talker()
    yield made
    made.close()


def test_agent_of_a_waiting_program_polls_more_often(
    volume: Volume, program: Talker, tmp_path: Path
) -> None:
    """They must start together; while one gets ready, or trains, most polls find no change."""
    place = AgentConfig("demo", "tf1", MINE, CLUSTER, volume.root, tmp_path / "scripts", tmp_path)
    looks = Looks(volume, program)
    submit(volume, Request("r1", RunSpec("test", "program.py"), CLUSTER))
    with (tmp_path / "out").open("wb") as out:
        agent = Agent(place, AgentLog(out.fileno()), looks, program)  # type: ignore[arg-type]
        agent.run(None)
    assert looks.reason == "enough"
    assert set(looks.pauses[State.STARTING]) == {0.1}
    # It may have become ready during the first poll, and polls faster from the next one.
    assert set(looks.pauses[State.READY][1:LOOKS]) == {0.005 * 2}  # 5 ms for each of the tasks
    assert looks.pauses[State.TRAINING][LOOKS - 1] == 0.3
