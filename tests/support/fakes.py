"""An environment without processes: its run volume is real, and the tests write for its tasks."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from lab.backends.base import Backend
from lab.backends.environment import NO_PARTS, Check, Environment, KeepVolume, TaskInfo
from lab.backends.run_volume import DirectoryVolume
from lab.backends.state import Busy
from lab.base.errors import LabError
from lab.base.image_digest import digest
from lab.base.log import LOG
from lab.cluster.gpu.verification import GpuView
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume, control
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import State

PLAN = Plan(
    name="mnist",
    mode="none",
    cluster_sha256="abc",
    nodes=(PlannedNode("tf1"), PlannedNode("tf2"), PlannedNode("tf3")),
    tasks=(
        PlannedTask("ps", 0, "tf1", 2222),
        PlannedTask("worker", 0, "tf2", 2222),
        PlannedTask("worker", 1, "tf3", 2222),
    ),
)

REQUEST = Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec())


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that fails, whatever it is called with."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def record(task: str, seq: int, kind: str = "step", **fields: object) -> dict[str, object]:
    """A record as an agent stores it."""
    job, _, index = task.rpartition("-")
    return {
        "kind": kind,
        "run": "r",
        "attempt": 0,
        "job_name": job,
        "task_index": int(index),
        "seq": seq,
        **fields,
    }


def write_records(volume: Volume, run_id: str, task: str, records: Sequence[object]) -> None:
    """Append records to a task's file."""
    path = volume.records(run_id, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in records)


def end(volume: Volume, run_id: str, task: str, state: State, **fields: object) -> None:
    """Write the state in which a task ended."""
    status = TaskStatus(task, state, started_unix=100.0, ended_unix=112.5, **fields)
    write_atomically(volume.status(run_id, task), status.to_json())


def end_all(volume: Volume, request: Request, state: State, **fields: object) -> None:
    """Write the same state for every task of a run."""
    for task in request.tasks():
        end(volume, request.run_id, task, state, **fields)


def fail(volume: Volume, request: Request) -> None:
    """A run all of whose tasks fail."""
    end_all(volume, request, State.FAILED, reason="exit code 3", exit_code=3)


def train(volume: Volume, request: Request) -> None:
    """The output of a good asynchronous run of two workers: 300 updates."""
    for worker in range(2):
        task = f"worker-{worker}"
        step = {"epoch": 0, "local_step": 100, "global_step": 199 + worker, "loss": 0.5}
        epoch = {"epoch": 0, "local_step": 150, "global_step": 299 + worker, "loss": 0.25}
        records = [
            record(task, 0, "start", time_unix=100.0),
            record(task, 1, **step, staleness=1, time_unix=110.0 + worker, step_time_s=0.01),
            record(
                task, 2, "epoch", **epoch, staleness=2, time_unix=112.0 + worker, step_time_s=0.01
            ),
            record(task, 3, "eval", accuracy=0.5 + worker / 10, global_step=299),
        ]
        write_records(volume, request.run_id, task, records)
    final = {"local_step": 150, "global_step": 299, "accuracy": 0.5, "status": "succeeded"}
    chief = [
        record("worker-0", 4, "eval", accuracy=0.75, global_step=300, probe=300),
        record("worker-0", 5, "final", **final),
    ]
    write_records(volume, request.run_id, "worker-0", chief)
    log = volume.log(request.run_id, "worker-1")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"hello \x1b]0;owned\x07\n")
    end_all(volume, request, State.SUCCEEDED, exit_code=0)


@dataclass
class FakeEnvironment(Environment):
    """An environment where `tasks_do` replaces the agents, in a thread, once a request arrives."""

    root: Path
    tasks_do: Callable[[Volume, Request], None] = train
    backend: str = "local"
    project: str = "mnist"
    folder: str = ""
    cluster_sha256: str = "abc"
    runtime: str = "tensorflow"
    sources_sha256: str = digest()
    plan: Plan = PLAN
    is_down: bool = False
    is_left: bool = False
    volume_stays: bool = False
    is_local: bool = True
    sights: Mapping[str, GpuView] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    disturbed: list[tuple[str, ...]] = field(default_factory=list)
    unshakable: str = ""
    blocked_before: list[list[str]] = field(default_factory=list)
    shares: bool = False

    def __post_init__(self) -> None:
        self.run_volume = DirectoryVolume(self.root)
        self.root.mkdir(parents=True, exist_ok=True)

    @property
    def volume(self) -> Volume:
        return Volume(self.root)

    @property
    def is_up(self) -> bool:
        return not self.is_left

    def cluster_spec(self) -> dict[str, list[str]]:
        return self.plan.cluster_spec()

    def tasks(self) -> list[TaskInfo]:
        return [
            TaskInfo(each.name, each.node, f"{each.node}:{each.port}", each.gpus, True, "pid 1")
            for each in self.plan.tasks
        ]

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        try:
            for name, folder in parts.items():
                shutil.copytree(folder, self.volume.incoming(request.run_id) / name)
            control.submit(self.volume, request)
        except control.VolumeBusy as error:
            raise Busy(str(error), "wait until it has ended") from error
        thread = threading.Thread(target=self.tasks_do, args=(self.volume, request))
        thread.start()
        self.threads.append(thread)

    def train(self) -> Request:
        """Submit `REQUEST`, and wait until the tasks have done their part."""
        self.submit(REQUEST)
        self.threads.pop().join()
        return self.runs()[-1]

    def block_host(self) -> None:
        self.blocked_before.append([each.run_id for each in self.runs()])

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        if self.unshakable:
            raise LabError(f"node {node}: {self.unshakable}")
        self.disturbed.append((node, *arguments))

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        known = {info.task: info.task for info in self.tasks()}
        yield from (f"{self.known_task(known, task)}  | \x1b[31mred" for task in tasks)

    def shell(self, task: str) -> list[str]:
        known = {info.task: info.task for info in self.tasks()}
        return ["echo", self.known_task(known, task)]

    def probe_gpus(self) -> dict[str, GpuView]:
        unasked = GpuView(why="nobody was asked")
        return {each.name: self.sights.get(each.name, unasked) for each in self.plan.tasks}

    def provenance(self) -> dict[str, str]:
        return {"interpreter": "fake"}

    def boot_file(self) -> tuple[str, str]:
        return "processes.json", "{}\n"

    def check_followed(self, run_id: str) -> None:
        if not self.is_up:
            raise LabError(f"environment {self.project!r} has stopped")

    def is_recorded(self) -> bool:
        return True

    def end(self, *, keep_volume: bool = False) -> None:
        self.volume_stays, self.is_down = keep_volume, True

    def down(self, *, keeps: KeepVolume = lambda: False) -> None:
        self.end(keep_volume=keeps())


@dataclass
class FakeBackend(Backend):
    """A backend with at most one environment, and what is left of others.

    Attributes:
        made: The environment that it boots; otherwise that is `environment`.
        booted: How many times it has booted.
    """

    name: str = "local"
    environment: FakeEnvironment | None = None
    fault: str | None = None
    no_image: str | None = None
    builds: bool = False
    others: Sequence[FakeEnvironment] = ()
    made: FakeEnvironment | None = None
    booted: int = 0

    def unavailable_reason(self) -> str | None:
        return self.fault

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        return self.no_image

    def must_build(self, plan: Plan, *, root: Path) -> bool:
        return self.builds

    def notices(self, plan: Plan) -> Sequence[str]:
        return ["local: links are not applied"] if self.environment is None else []

    def boot(self, plan: Plan, *, root: Path) -> Any:
        raise NotImplementedError("`up` has no steps")

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        check: Check | None = None,
        share: bool = False,
    ) -> FakeEnvironment:
        environment = self.made or self.environment
        if self.made is not None:
            environment.plan, environment.is_down = plan, False
        self.booted += 1
        environment.shares = share
        LOG.info("booting")
        if check is not None:
            check(environment)
        return environment

    def projects(self) -> set[str]:
        return {each.project for each in (self.environment, *self.others) if each}

    def find_any(self, project: str) -> FakeEnvironment | None:
        known = (each for each in (self.environment, *self.others) if each)
        return next((each for each in known if each.project == project), None)


CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {}, tf3: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf3]}}
"""
