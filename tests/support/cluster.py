"""Starts the tasks of a training program as plain processes, and always ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.protocol.records import Record, parse_record
from tests.support.agents import wait_for

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0


@dataclass
class Task:
    """One process of the cluster."""

    name: str
    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    @property
    def lines(self) -> list[str]:
        return self.stdout.read_text().splitlines()

    @property
    def records(self) -> list[Record]:
        return [record for line in self.lines if (record := parse_record(line)) is not None]

    def kind(self, *kinds: str) -> list[Record]:
        return [record for record in self.records if record["kind"] in kinds]

    @property
    def is_ready(self) -> bool:
        return any(record.get("status") == "ready" for record in self.records)

    @property
    def final(self) -> Record:
        last = self.records[-1]
        assert last["kind"] == "final"
        return last

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the exit code; a process that does not end in time fails with its output."""
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            tail = "\n".join(self.lines[-5:])
            raise AssertionError(
                f"{self.name} did not end:\n{tail}\n{self.stderr.read_text()[-3000:]}"
            ) from None


def assert_staleness_adds_up(tasks: Sequence[Task]) -> None:
    """The sums cover every step: they rise by each recorded staleness, and between records."""
    between = 0
    for task in tasks:
        steps = total = 0
        for record in task.kind("step", "epoch"):
            rise, passed = int(record["staleness_sum"]) - total, int(record["local_step"]) - steps
            assert rise >= int(record["staleness"])
            assert passed > 1 or rise == int(record["staleness"])
            between += rise > int(record["staleness"])
            total, steps = total + rise, steps + passed
        assert task.final["staleness_sum"] == total
    assert between > 0  # a sum over the recorded steps alone does not rise between them


def mean_staleness(finals: Sequence[Record]) -> float:
    """The mean over all steps of these workers, from their final records."""
    total = sum(int(final["staleness_sum"]) for final in finals)
    return total / sum(int(final["local_step"]) for final in finals)


@dataclass
class Cluster:
    """The tasks of one run of one program."""

    program: Path
    directory: Path
    ps: int = 1
    workers: int = 1
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    python: Sequence[str] = (sys.executable,)
    own_variables: Callable[[str, int], Mapping[str, str]] = lambda *_: {}
    tasks: dict[str, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hosts = [f"localhost:{port}" for port in free_ports(self.ps + self.workers)]
        self.ps_hosts, self.worker_hosts = hosts[: self.ps], hosts[self.ps :]

    def start(self, job_name: str, index: int) -> Task:
        name = f"{job_name}-{index}"
        command = [
            *(*self.python, str(self.program)),
            *(f"--job_name={job_name}", f"--task_index={index}"),
            *([f"--ps_hosts={','.join(self.ps_hosts)}"] if self.ps else []),
            f"--worker_hosts={','.join(self.worker_hosts)}",
            *self.flags,
        ]
        ours = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
        stdout, stderr = (self.directory / f"{name}.{stream}" for stream in ("out", "err"))
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdout=out,
                stderr=err,
                env={
                    **ours,
                    "PYTHONPATH": str(ROOT),
                    "TF_CPP_MIN_LOG_LEVEL": "1",
                    "CUDA_VISIBLE_DEVICES": "-1",
                    **self.environment,
                    **self.own_variables(job_name, index),
                },
            )
        self.tasks[name] = Task(name, process, stdout, stderr)
        return self.tasks[name]

    def start_all(self) -> None:
        for index in range(self.ps):
            self.start("ps", index)
        for index in range(self.workers):
            self.start("worker", index)

    @property
    def worker_tasks(self) -> list[Task]:
        return [task for name, task in sorted(self.tasks.items()) if name.startswith("worker")]

    def wait_ready(self) -> None:
        wait_for(lambda: all(task.is_ready for task in self.worker_tasks), "ready", PATIENCE_S)

    @property
    def chief(self) -> Task:
        return self.tasks["worker-0"]

    def succeed(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until every worker has ended, and see that each succeeded."""
        deadline = time.monotonic() + patience_s
        for task in self.worker_tasks:
            code = task.wait(max(0.1, deadline - time.monotonic()))
            assert code == 0, f"{task.name}: exit code {code}\n{task.stderr.read_text()[-3000:]}"

    def outcome(self) -> Record:
        """The chief's evaluation of the final parameters: the record with the probe."""
        (record,) = [record for record in self.chief.kind("eval") if "probe" in record]
        return record


@contextlib.contextmanager
def cluster(
    program: str, directory: Path, *flags: str, ps: int = 1, workers: int = 1, **environment: str
) -> Iterator[Cluster]:
    """Make a cluster whose tasks, started or not, are removed when the block ends."""
    made = Cluster(ROOT / "scripts" / program, directory, ps, workers, flags, environment)
    with removed_at_end(made):
        yield made


@contextlib.contextmanager
def removed_at_end(made: Cluster) -> Iterator[None]:
    try:
        yield
    finally:
        for task in made.tasks.values():
            task.process.send_signal(signal.SIGKILL)
        for task in made.tasks.values():
            task.process.wait()


def free_ports(count: int) -> list[int]:
    """Find free ports; all are held until the last is found, so all differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("", 0))
        return [found.getsockname()[1] for found in sockets]
