"""How often an agent polls its run: rarely, but often if its program waits for the others."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from lab.task.agent import outcomes, request_queue
from lab.task.agent.agent import Agent
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.protocol import Request, RunSpec, TaskStatus, Volume, files, statuses
from lab.task.protocol.control import submit
from lab.task.protocol.files import MAX_BYTES, read_regular
from lab.task.protocol.states import State
from lab.task.protocol.statuses import write_status

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
        text = self._volume.status("r1", MINE).read_text()
        state = TaskStatus.from_json(text).state
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
    looks = Looks(volume, program)
    submit(volume, Request("r1", RunSpec("test", "program.py"), CLUSTER))
    with (tmp_path / "out").open("wb") as output:
        agent_in(volume, program, tmp_path, looks, output).run(None)
    assert looks.reason == "enough"
    assert set(looks.pauses[State.STARTING]) == {0.1}
    # It may have become ready during the first poll, and polls faster from the next one.
    assert set(looks.pauses[State.READY][1:LOOKS]) == {0.005 * 2}  # 5 ms for each of the tasks
    assert looks.pauses[State.TRAINING][LOOKS - 1] == 0.3


def fail_in_turns(monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    """Let reads of the run volume succeed and fail in turns of this length, from the first on."""
    calls = itertools.count()

    def read(path: Path, max_bytes: int = MAX_BYTES) -> str:
        if next(calls) // turn % 2 == 0:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read_regular(path, max_bytes)

    for module in (statuses, outcomes, request_queue):
        monkeypatch.setattr(module, "read_regular", read)


def agent_in(
    volume: Volume, program: Talker, tmp_path: Path, looks: Looks, output: IO[bytes]
) -> Agent:
    place = AgentConfig("demo", "tf1", MINE, CLUSTER, volume.root, tmp_path / "scripts", tmp_path)
    return Agent(place, AgentLog(output.fileno()), looks, program)  # type: ignore[arg-type]


def test_short_read_errors_do_not_end_a_training(
    volume: Volume, program: Talker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(volume, program)
    submit(volume, Request("r1", RunSpec("test", "program.py"), CLUSTER))
    fail_in_turns(monkeypatch, 5)
    with (tmp_path / "out").open("wb") as output:
        agent_in(volume, program, tmp_path, looks, output).run(None)
    assert looks.reason == "enough"
    assert looks.pauses.keys() >= {State.STARTING, State.READY, State.TRAINING}


def test_a_lasting_read_error_ends_the_agent(
    volume: Volume, program: Talker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "REFUSED_S", 0.3)
    submit(volume, Request("r1", RunSpec("test", "program.py"), CLUSTER))
    fail_in_turns(monkeypatch, 1_000_000)
    with (tmp_path / "out").open("wb") as output:
        agent = agent_in(volume, program, tmp_path, Looks(volume, program), output)
        with pytest.raises(OSError, match="Stale file handle"):
            agent.run(None)
    assert (tmp_path / "out").read_text().count("Stale file handle; trying again") == 1


def test_records_that_cannot_be_read_end_the_agent(
    volume: Volume, program: Talker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request and the status are readable: only the execution's constructor fails."""
    monkeypatch.setattr(files, "REFUSED_S", 0.3)
    submit(volume, Request("r1", RunSpec("test", "program.py"), CLUSTER))
    folder = volume.records("r1", MINE).parent
    folder.rmdir()
    folder.touch()
    with (tmp_path / "out").open("wb") as output:
        agent = agent_in(volume, program, tmp_path, Looks(volume, program), output)
        with pytest.raises(NotADirectoryError, match=r"worker-0\.jsonl"):
            agent.run(None)
