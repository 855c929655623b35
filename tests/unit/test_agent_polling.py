"""How an agent polls its run: how often, and while the volume fails."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lab.task.agent import execution, outcomes, request_queue
from lab.task.agent.agent import Agent
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.protocol import Request, RunSpec, TaskStatus, Volume, files, statuses
from lab.task.protocol.control import submit
from lab.task.protocol.files import read_regular
from lab.task.protocol.states import State
from lab.task.protocol.statuses import write_status

MINE, OTHER = "worker-0", "worker-1"
CLUSTER = {"worker": ["tf1:2222", "tf2:2222"]}
LOOKS = 4  # of each kind that are looked at


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

    def start(self, _request: Request, _environ: Mapping[str, str], _folder: Path) -> object:
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


class Stop:
    """The agent's reason to stop: keeps the duration of each sleep, and advances the run.

    Attributes:
        pauses: State of the agent's own task, as written, to seconds.
    """

    count = 0

    def __init__(self, folder: Path) -> None:
        for name in ("runs", "scripts"):
            (folder / name).mkdir()
        (folder / "scripts/program.py").touch()
        self.reason: str | None = None
        self.pauses: defaultdict[State, list[float]] = defaultdict(list)
        self.volume, self.program, self.out = Volume(folder / "runs"), Talker(), folder / "out"
        self._folder = folder
        submit(self.volume, Request("r1", RunSpec("test", "program.py"), CLUSTER))

    def run_agent(self) -> None:
        volume, scripts = self.volume.root, self._folder / "scripts"
        config = AgentConfig("demo", "tf1", MINE, CLUSTER, volume, scripts, self._folder)
        with self.out.open("wb") as output:
            Agent(config, AgentLog(output.fileno()), self, self.program).run(None)  # type: ignore[arg-type]

    def wait(self, at_most_s: float, also: Sequence[int] = ()) -> None:
        del also
        state = TaskStatus.from_json(self.volume.status("r1", MINE).read_text()).state
        self.pauses[state].append(at_most_s)
        if state is State.READY and self.volume.start("r1", MINE).exists():
            self.program.notify("step", "local_step=1 global_step=1")
        elif len(self.pauses[state]) == LOOKS:
            if state is State.STARTING:
                self.program.notify("event", "status=ready")
            elif state is State.READY:
                write_status(self.volume.status("r1", OTHER), TaskStatus(OTHER, State.READY))
            elif state is State.TRAINING:
                self.reason = "enough"
        time.sleep(at_most_s)


@pytest.fixture
def stop(tmp_path: Path) -> Iterator[Stop]:
    made = Stop(tmp_path)
    yield made
    made.program.close()


def test_agent_of_a_waiting_program_polls_more_often(stop: Stop) -> None:
    """They must start together; while one gets ready, or trains, most polls find no change."""
    stop.run_agent()
    assert set(stop.pauses[State.STARTING]) == {0.1}
    # It may have become ready during the first poll, and polls faster from the next one.
    assert set(stop.pauses[State.READY][1:LOOKS]) == {0.005 * 2}  # 5 ms for each of the tasks
    assert stop.pauses[State.TRAINING][LOOKS - 1] == 0.3


@pytest.fixture
def fail_in_turns(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets reads of the run volume fail and succeed in turns of this length."""

    def fail(turn: int) -> None:
        calls = itertools.count()

        def read(path: Path) -> str:
            if next(calls) // turn % 2 == 0:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return read_regular(path)

        for module in (statuses, outcomes, request_queue):
            monkeypatch.setattr(module, "read_regular", read)

    return fail


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that lasts is an error soon."""
    monkeypatch.setattr(files, "REFUSED_S", 0.3)
    monkeypatch.setattr(execution, "REFUSED_S", 0.3)


def test_short_read_errors_do_not_end_a_training(
    stop: Stop, fail_in_turns: Callable[[int], None]
) -> None:
    fail_in_turns(5)
    stop.run_agent()
    assert stop.pauses.keys() >= {State.STARTING, State.READY, State.TRAINING}


@pytest.mark.usefixtures("impatient")
def test_a_lasting_read_error_ends_the_agent(
    stop: Stop, fail_in_turns: Callable[[int], None]
) -> None:
    fail_in_turns(1_000_000)
    with pytest.raises(OSError, match="Stale file handle"):
        stop.run_agent()
    assert stop.out.read_text().count("Stale file handle; trying again") == 1


@pytest.mark.usefixtures("impatient")
def test_records_that_cannot_be_read_end_the_agent(stop: Stop) -> None:
    """The request and the status are readable: only the execution's constructor fails."""
    folder = stop.volume.records("r1", MINE).parent
    folder.rmdir()
    folder.touch()
    with pytest.raises(NotADirectoryError, match=r"worker-0\.jsonl"):
        stop.run_agent()


@pytest.mark.usefixtures("impatient")
def test_a_stopped_agent_does_not_wait_for_a_volume_that_refuses_its_last_status(
    stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, status: TaskStatus, **options: bool) -> None:
        if stop.reason is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_status(path, status, **options)

    monkeypatch.setattr(statuses, "write_status", write)
    stop.run_agent()
    assert "cannot be written: No space left on device" in stop.out.read_text()
