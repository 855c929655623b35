"""Real agents with tiny programs, for tests: no TensorFlow, no containers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lab.protocol.volume import Request, TaskStatus, Volume
from lab.protocol.volume.control import submit
from lab.protocol.volume.states import State
from lab.protocol.volume.status import read_status
from tests.support import specs

ROOT = Path(__file__).parents[2]


PATIENCE_S = 240.0
"""A time limit far above what a busy machine needs; it only bounds a wait."""


def wait_for(condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait until something is true, and fail the test with its name when it does not become so."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.02)


def processes_with(marker: str) -> list[int]:
    """Every process of this machine that has the marker among its environment variables."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


@dataclass
class Stage:
    """A run volume, a scripts directory, and agents."""

    folder: Path
    cluster: dict[str, list[str]] = field(default_factory=lambda: {"worker": ["tf1:2222"]})
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.volume = Volume(self.folder / "runs")
        self.scripts = self.folder / "scripts"
        self.volume.root.mkdir()
        self.scripts.mkdir()

    def program(self, text: str, name: str = "program.py") -> str:
        (self.scripts / name).write_text(text)
        return name

    def environ(self, task: str, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LAB_PROJECT": "demo",
            "LAB_NODE": "tf1",
            "LAB_TASK": task,
            "LAB_CLUSTER": json.dumps(self.cluster),
            "LAB_RUNS": str(self.volume.root),
            "LAB_SCRIPTS": str(self.scripts),
            "LAB_DATA": str(self.folder / "data"),
            "LAB_TEST_MARKER": self.marker,
            **more,
        }

    @property
    def marker(self) -> str:
        """The variables that identify the processes of this stage."""
        return str(self.folder)

    def agent(
        self, task: str, *, end: socket.socket | None = None, **more: str
    ) -> subprocess.Popen[bytes]:
        """Start an agent and wait for its lock.

        Args:
            task: The agent's task.
            end: Its end of the socket pair to a fork server; closed in this process.
            **more: Further variables.
        """
        options = [] if end is None else ["--forkserver", str(end.fileno())]
        with self.output(task).open("ab") as output:
            agent = subprocess.Popen(
                [sys.executable, "-m", "lab.task.agent", *options],
                env=self.environ(task, **more),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[] if end is None else [end.fileno()],
            )
        if end is not None:
            end.close()
        self.agents[task] = agent
        wait_for(
            lambda: self.volume.agent(task).exists() or agent.poll() is not None,
            f"the agent of {task}",
        )
        return agent

    def output(self, task: str) -> Path:
        return self.folder / f"{task}.out"

    def submit(
        self,
        program: str,
        *args: str,
        run_id: str = "r1",
        experiment: str = "test",
        **more: object,
    ) -> Request:
        request = specs.request(
            run_id, experiment, self.cluster, program=program, args=args, **more
        )
        submit(self.volume, request)
        return request

    def status(self, task: str, run_id: str = "r1") -> TaskStatus:
        return read_status(self.volume.status(run_id, task), task)

    def wait_state(
        self, task: str, state: State, run_id: str = "r1", within_s: float = PATIENCE_S
    ) -> TaskStatus:
        """Wait until a task reaches a state; another end state fails at once."""

        def there() -> bool:
            now = self.status(task, run_id)
            assert not now.state.ended or now.state is state, f"{task}: {now}"
            return now.state is state

        wait_for(there, f"{task} {state}", within_s)
        return self.status(task, run_id)

    def wait_for_looks(self, task: str) -> None:
        """Wait until an agent has seen what is on the volume now, and has acted on it.

        It sends a heartbeat once a second, and looks several times between two of them.
        """
        path = self.volume.agent(task)

        def beat() -> int:
            return path.stat().st_mtime_ns if path.exists() else 0

        for _ in range(2):
            last = beat()
            wait_for(lambda last=last: beat() != last, f"a heartbeat of {task}")

    def log(self, task: str, run_id: str = "r1") -> bytes:
        return self.volume.log(run_id, task).read_bytes()

    def records(self, task: str, run_id: str = "r1") -> list[dict[str, object]]:
        text = self.volume.records(run_id, task).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def close(self) -> None:
        """End every agent; check that none leaves a process."""
        for agent in self.agents.values():
            if agent.poll() is None:
                agent.send_signal(signal.SIGCONT)
                agent.send_signal(signal.SIGTERM)
        for agent in self.agents.values():
            agent.wait(timeout=PATIENCE_S)
        wait_for(lambda: not processes_with(self.marker), f"no process of {self.marker}")


TASKS = ("ps-0", "worker-0", "worker-1")

CONTROLLED = """
import os, signal, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
task, attempt = flags["job_name"] + "-" + flags["task_index"], os.environ["LAB_ATTEMPT"]
head = f"job_name={flags['job_name']} task_index={flags['task_index']}"
def path(name):
    return os.path.join(os.environ["LAB_SCRIPTS"], name)
def say(kind, rest=""):
    print(f"lab kind={kind} {head} {rest}")
def wait(path):
    while not os.path.exists(path):
        time.sleep(0.01)
say("start", "status=starting")
wait(path(f"{task}.{attempt}.ready"))
say("event", "status=ready")
wait(os.environ["LAB_START"])
say("step", f"local_step=1 global_step={1 + int(attempt)}")
wait(path(f"{task}.{attempt}"))
exec(open(path(f"{task}.{attempt}")).read())
"""
"""A program that gets ready, makes a step, and then executes the code that the test has written."""


class Crew(Stage):
    """One ps and two workers, whose attempts the test controls."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]})

    def launch(self, *ready: str, **more: object) -> None:
        for task in TASKS:
            self.agent(task)
        self.submit(self.program(CONTROLLED), **more)
        if ready:
            self.ready(0, *ready)

    def begin(self, **more: object) -> None:
        self.launch(*TASKS, **more)
        for task in TASKS:
            self.wait_state(task, State.TRAINING)

    def ready(self, attempt: int, *tasks: str) -> None:
        for task in tasks or TASKS:
            (self.scripts / f"{task}.{attempt}.ready").touch()

    def tell(self, task: str, code: str, attempt: int = 0) -> None:
        """Write the code that a task's program executes after its first step."""
        part = self.scripts / "part"
        part.write_text(code)
        part.rename(self.scripts / f"{task}.{attempt}")

    def wait_attempt(self, task: str, attempt: int, state: State = State.TRAINING) -> None:
        """Wait until a task is in this state of this attempt."""
        wait_for(
            lambda: (self.status(task).attempt, self.status(task).state) == (attempt, state),
            f"{task} {state} in attempt {attempt}, not {self.status(task)}",
        )
