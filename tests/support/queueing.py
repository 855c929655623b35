"""A queue on 127.0.0.1 whose host has fake containers, and its seats."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from lab.backends.base import Backend
from lab.backends.classroom.backend import ClassBackend
from lab.backends.classroom.client import Queue
from lab.backends.classroom.environment import ClassEnvironment
from lab.backends.classroom.protocol import MAX_JSON_BYTES, TOKEN, State
from lab.backends.environment import Check, Environment, no_check
from lab.classroom.planning import SeatPlan
from lab.classroom.queue.admission import cluster_of, plan_of
from lab.classroom.queue.handlers import MAX_REQUESTS, TEACHER, application
from lab.classroom.queue.ledger import Capacity, Entry, Ledger
from lab.classroom.queue.turns import Delays, Turns
from lab.config.load import parse_cluster
from lab.gpu import Gpu, Inventory
from lab.log import LOG, passed_on
from lab.placement.place import place
from lab.placement.plan import Plan
from lab.threads import in_background
from lab.variables import LAB_QUEUE_URL
from lab.volume import Request, RunSpec, TaskStatus, Volume
from lab.volume.files import write_atomically
from lab.volume.states import State as RunState
from tests.support.agents import wait_for
from tests.support.fakes import FakeEnvironment, end, record, train, write_records

GPUS = tuple(f"GPU-{index}" for index in range(4))
SLICE_S = 600.0
HOST = Inventory("uuid", tuple(Gpu(n, gpu) for n, gpu in enumerate(GPUS)), 8, 2**35)
SEATS = ("ada", "bob")
PATIENCE_S = 60.0
RUN = "20261124-0600-async-8602"

CONFIG = """\
version: 1
name: {name}
nodes:
  tf1: {{gpus: {gpus}}}
  tf2: {{}}
jobs:
  ps: {{on: [tf2]}}
  worker: {{on: [tf1, tf2]}}
"""


def plan_in_seat(gpus: int) -> Plan:
    """The plan of a seat, which knows nothing of the host's GPUs."""
    cluster = parse_cluster(CONFIG.format(name="mnist", gpus=gpus).encode(), "cluster.yaml")
    indices = tuple(Gpu(index, str(index)) for index in range(gpus))
    return place(cluster, Inventory("index", indices, None, None))


def until_cancelled(volume: Volume, request: Request, step: int | None = None) -> None:
    """A run that trains until it is cancelled, with a global step."""
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, "start")])
    status = TaskStatus("worker-0", RunState.TRAINING, global_step=step)
    write_atomically(volume.status(request.run_id, "worker-0"), status.to_json())
    wait_for(volume.cancel(request.run_id).exists, "the run is never cancelled")
    for task in request.tasks():
        end(volume, request.run_id, task, RunState.CANCELLED)


@dataclass
class Containers(FakeEnvironment):
    """An environment of the fake host."""

    backend: str = "compose"
    is_local: bool = False

    @property
    def is_up(self) -> bool:
        return not self.is_down


@dataclass
class Host(Backend):
    """A host that boots fake environments at once.

    Attributes:
        folder: The run volumes.
        booted: The names of the environments in the order of their boots, with GPUs and network.
        boots: What happens at each boot.
        network: The range of the next network.
    """

    folder: Path
    name: str = "compose"
    environments: dict[str, Containers] = field(default_factory=dict)
    booted: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    boots: Callable[[str], None] = lambda _project: None
    tasks_do: Callable[[Volume, Request], None] = train
    network: str = ""

    def unavailable_reason(self) -> None:
        return None

    def missing_image(self, plan: Plan, *, root: Path) -> None:
        return None

    def boot(self, plan: Plan, *, root: Path) -> Any:
        raise NotImplementedError("`up` has no steps")

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        check: Check = no_check,
        share: bool = False,
    ) -> Environment:
        assert share  # the class itself holds the GPUs
        gpus = tuple(gpu for task in plan.tasks for gpu in task.gpus)
        self.booted.append((plan.name, gpus, self.network))
        LOG.info(f"booting {plan.name}")
        self.boots(plan.name)
        known = {"cluster_sha256": plan.cluster_sha256, "tensorflow": plan.tensorflow}
        return self.add(plan.name, plan=plan, tasks_do=self.tasks_do, **known)

    def add(self, project: str, **fields: Any) -> Containers:
        """Add an environment."""
        volume = self.folder / project
        (volume / "requests").mkdir(parents=True, exist_ok=True)
        self.environments[project] = Containers(volume, project=project, **fields)
        return self.environments[project]

    def find_any(self, project: str) -> Containers | None:
        found = self.environments.get(project)
        return found if found and not (found.is_down and not found.volume_stays) else None

    def projects(self) -> list[str]:
        return [name for name in self.environments if self.find_any(name)]


@dataclass
class Clock:
    """A clock that the tests set."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now


@dataclass
class QueueUnderTest:
    """The service, and what the tests may do with it.

    Attributes:
        host: The host.
        turns: The turns of the service.
        url: Its address.
        root: The project's directory in the seats.
        clock: The clock of the service.
    """

    host: Host
    turns: Turns
    url: str
    root: Path
    clock: Clock
    loop: asyncio.AbstractEventLoop

    def client(self, name: str) -> Queue:
        """The client in a seat."""
        return Queue(self.url, f"token-of-{name}")

    def up(self, seat: str, gpus: int, check: Check = no_check) -> ClassEnvironment:
        """`lab up` in a seat."""
        plan = plan_in_seat(gpus)
        return self.seat(seat).up(plan, root=self.root, check=check)

    def waiting(self, seat: str, gpus: int) -> tuple[Future[ClassEnvironment], list[str]]:
        """The same in a thread, which waits for its turn or has it; and its lines."""
        lines: list[str] = []

        def up() -> ClassEnvironment:
            with passed_on(lines.append):
                return self.up(seat, gpus)

        future = in_background(up)
        wait_for(lambda: lines or future.done(), f"{seat} has no place")
        return future, lines

    def seat(self, name: str) -> ClassBackend:
        """The backend in a seat."""
        with mock.patch.dict(os.environ, {LAB_QUEUE_URL: self.url, TOKEN: f"token-of-{name}"}):
            return ClassBackend()

    def cancel_reason(self, seat: str, run_id: str) -> str:
        """Why a run of the newest environment of a seat was cancelled."""
        environment = self.host.environments[self.entry(seat).project]
        return str(json.loads(environment.volume.cancel(run_id).read_bytes())["reason"])

    def entry(self, seat: str) -> Entry:
        """The newest entry of a seat."""
        return [each for each in self.turns.ledger.entries if each.seat == seat][-1]

    def state(self, seat: str) -> State | None:
        """The state of the newest environment of a seat; None without one."""
        found = [each for each in self.turns.ledger.entries if each.seat == seat]
        return found[-1].state if found else None

    def wait(self, seat: str, state: State | None) -> None:
        """Wait until the newest environment of a seat has a state; None: it is gone."""
        wait_for(lambda: self.state(seat) is state, f"{seat} is {self.state(seat)}, not {state}")


async def seat_of(token: str) -> str | None:
    """The tokens of the seats and of the teacher."""
    if token == "token-of-teacher":  # noqa: S105
        return TEACHER
    name = token.removeprefix("token-of-")
    return name if name in SEATS else None


def place_on_host(entry: Entry, config: str) -> Plan:
    """The plan of an entry on the fake host."""
    seat = SeatPlan(entry.seat, (), None, 6.0, 6 << 30, None)
    return plan_of(entry, cluster_of(config), HOST, seat)


@contextmanager
def a_queue(folder: Path, host: Host, max_requests: int = MAX_REQUESTS) -> Iterator[QueueUnderTest]:
    """A service of its own thread; when the block ends, it is gone as after `kill -9`."""
    folder.mkdir(exist_ok=True)
    clock = Clock()
    capacity = Capacity(GPUS, tuple("abcd"), ("y", "z"), SLICE_S)
    ready: list[QueueUnderTest] = []
    started = threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        turns = Turns(
            "demo",
            Ledger(folder / "ledger.json"),
            capacity,
            folder,
            backend=lambda network: replace(host, network=network),
            plan=place_on_host,
            root=folder,
            clock=clock,
            delays=Delays(tick_s=0.02, check_s=0.02, poll_s=0.02),
        )
        (socket,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(application(turns, seat_of, max_requests), max_body_size=MAX_JSON_BYTES)
        server.add_socket(socket)
        work = asyncio.create_task(turns.run())
        ready.append(
            QueueUnderTest(
                host,
                turns,
                f"http://127.0.0.1:{socket.getsockname()[1]}",
                folder.parent,
                clock,
                asyncio.get_running_loop(),
            )
        )
        started.set()
        await stop.wait()
        work.cancel()
        server.stop()
        await server.close_all_connections()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(PATIENCE_S)
    try:
        yield ready[0]
    finally:
        ready[0].loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def request(environment: ClassEnvironment, run_id: str = RUN) -> Request:
    return Request(run_id, RunSpec("async"), environment.cluster_spec())


def collected(environment: ClassEnvironment | None) -> dict[str, bytes]:
    """The files of the run of an environment."""
    assert environment is not None
    files: dict[str, bytes] = defaultdict(bytes)
    for chunk in filter(None, environment.stream(RUN, {}, follow=True)):
        files[chunk.path] += chunk.data
    return files
