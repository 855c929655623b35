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
from unittest import mock

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from lab.backends.environment import Check, Environment
from lab.base.log import LOG, passed_on
from lab.base.threads import in_background
from lab.base.variables import LAB_QUEUE, LAB_STATE
from lab.cluster.config.load import parse_cluster
from lab.cluster.gpu import Gpu, Inventory
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Plan
from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume, control
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import State as RunState
from lab.teach.classroom.backend import ClassBackend, ClassEnvironment
from lab.teach.classroom.planning import SeatPlan
from lab.teach.classroom.protocol import Queue, State
from lab.teach.classroom.queue.host import TEACHER, Host
from lab.teach.classroom.queue.ledger import Entry, Ledger, plan_of
from lab.teach.classroom.queue.service import LIMITS, application
from lab.teach.classroom.queue.turns import Turns
from tests.support.agents import wait_for
from tests.support.classes import granting
from tests.support.fakes import end, record, train, write_records

GPUS = tuple(f"GPU-{index}" for index in range(4))
SLICE_S = 600.0
HOST = Inventory("uuid", tuple(Gpu(n, gpu) for n, gpu in enumerate(GPUS)), 8, 2**35)
SEATS = {"ada": "mnist", "bob": "speech"}
"""The seats, and the names of their environments: in the tests, they share a directory."""

TOKENS = {f"token-of-{seat}": seat for seat in SEATS} | {"token-of-teacher": TEACHER}
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


STOPPED: set[Path] = set()
"""The run volumes whose agents were stopped."""


def plan_in_seat(gpus: int, name: str = "mnist") -> Plan:
    """The plan of a seat, which knows nothing of the host's GPUs."""
    cluster = parse_cluster(CONFIG.format(name=name, gpus=gpus).encode(), "cluster.yaml")
    indices = tuple(Gpu(index, str(index)) for index in range(gpus))
    return place(cluster, Inventory("index", indices, None, None))


def until_cancelled(volume: Volume, request: Request) -> None:
    """A run that trains until it is cancelled, or until its agents are stopped."""
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, "start")])
    status = TaskStatus("worker-0", RunState.TRAINING)
    write_atomically(volume.status(request.run_id, "worker-0"), status.to_json())
    cancel = volume.cancel(request.run_id)
    wait_for(lambda: cancel.exists() or volume.root in STOPPED, "the run is never cancelled")
    for task in request.tasks():
        end(volume, request.run_id, task, RunState.CANCELLED)


@dataclass
class Containers:
    """The containers of an environment, whose agents are a thread."""

    plan: Plan
    volume: Volume
    tasks_do: Callable[[Volume, Request], None]
    is_down: bool = False

    def __post_init__(self) -> None:
        STOPPED.discard(self.volume.root)
        for task in self.plan.tasks:
            gpus = ",".join(task.gpus) or "none"
            about = {"address": f"{task.node}:{task.port}", "gpus": gpus}
            write_atomically(self.volume.agent(task.name), json.dumps(about))
        self._agents = in_background(self._serve)

    def _serve(self) -> None:
        served: set[str] = set()
        while not self.is_down:
            for request in control.requests(self.volume):
                if request.run_id not in served:
                    served.add(request.run_id)
                    self.tasks_do(self.volume, request)
            time.sleep(0.01)

    def stop(self) -> None:
        STOPPED.add(self.volume.root)
        self.is_down = True
        self._agents.result(PATIENCE_S)
        for task in self.plan.tasks:
            self.volume.agent(task.name).unlink(missing_ok=True)


class FakeHost(Host):
    """A host that boots fake containers at once."""

    def __init__(self) -> None:
        self.environments: dict[str, Containers] = {}
        self.booted: list[tuple[str, tuple[str, ...], str]] = []
        self.boots: Callable[[str], object] = lambda _project: None
        self.ends: Callable[[str], object] = lambda _project: None
        self.tasks_do: Callable[[Volume, Request], None] = train

    def boot(self, entry: Entry) -> dict[str, str]:
        plan = place_on_host(entry)
        gpus = tuple(gpu for task in plan.tasks for gpu in task.gpus)
        self.booted.append((plan.name, gpus, entry.network))
        LOG.info(f"booting {plan.name}")
        self.boots(plan.name)
        volume = Volume(Path(entry.order.directory) / "runs")
        self.environments[plan.name] = Containers(plan, volume, self.tasks_do)
        return {"image": "sha256:fake"}

    def end(self, project: str) -> None:
        self.ends(project)
        if self.runs(project):
            self.environments[project].stop()

    def runs(self, project: str) -> bool:
        return project in self.environments and not self.environments[project].is_down

    def stop(self) -> None:
        for each in list(self.environments.values()):  # a boot may still add its own
            each.stop()


@dataclass
class Clock:
    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now


@dataclass
class QueueUnderTest:
    """The service, and what the tests may do with it."""

    host: FakeHost
    turns: Turns
    url: str
    root: Path
    clock: Clock
    loop: asyncio.AbstractEventLoop

    def client(self, name: str) -> Queue:
        return Queue(self.url, f"token-of-{name}")

    def up(self, seat: str, gpus: int, check: Check | None = None) -> Environment:
        plan = plan_in_seat(gpus, SEATS[seat])
        return self.seat(seat).up(plan, root=self.root, check=check)

    def waiting(self, seat: str, gpus: int) -> tuple[Future[Environment], list[str]]:
        """The same in a thread, which waits for its turn or has it; and its lines."""
        lines: list[str] = []

        def up() -> Environment:
            with passed_on(lines.append):
                return self.up(seat, gpus)

        future = in_background(up)
        wait_for(lambda: lines or future.done(), f"{seat} has no place")
        return future, lines

    def seat(self, name: str) -> ClassBackend:
        with mock.patch.dict(os.environ, {LAB_QUEUE: f"{self.url} token-of-{name}"}):
            return ClassBackend()

    def found(self, seat: str) -> ClassEnvironment:
        found = self.seat(seat).find_any(SEATS[seat])
        assert isinstance(found, ClassEnvironment)
        return found

    def volume(self, seat: str) -> Volume:
        return Volume(self.root / "state" / "class" / SEATS[seat] / "runs")

    def cancel_reason(self, seat: str) -> str:
        return control.cancel_reason(self.volume(seat), RUN) or ""

    def entry(self, seat: str) -> Entry:
        return self.turns.ledger.entries[seat]

    def state(self, seat: str) -> State | None:
        found = self.turns.ledger.entries.get(seat)
        return found.state if found else None

    def wait(self, seat: str, state: State | None) -> None:
        wait_for(lambda: self.state(seat) is state, f"{seat} is {self.state(seat)}, not {state}")


def place_on_host(entry: Entry) -> Plan:
    return plan_of(entry, HOST, SeatPlan(entry.seat, (), None, 6.0, 6 << 30, None))


@contextmanager
def a_queue(folder: Path, host: FakeHost) -> Iterator[QueueUnderTest]:
    """A service of its own thread; when the block ends, it is gone as after `kill -9`.

    Its clients ask often.
    """
    folder.mkdir(exist_ok=True)
    clock = Clock()
    plan = replace(granting(GPUS, "abcdyz", SLICE_S), name="demo")
    ready: list[QueueUnderTest] = []
    started = threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        turns = Turns(
            Ledger(folder / "ledger.json", plan),
            host,
            clock=clock,
            tick_s=0.02,
            check_s=0.02,
            retry_s=0.02,
            follows_s=PATIENCE_S,
        )
        (socket,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(application(turns, TOKENS), **LIMITS)
        server.add_socket(socket)
        work = asyncio.create_task(turns.run())
        url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        loop = asyncio.get_running_loop()
        ready.append(QueueUnderTest(host, turns, url, folder.parent, clock, loop))
        started.set()
        await stop.wait()
        work.cancel()
        server.stop()
        await server.close_all_connections()

    home = {"HOME": str(folder.parent), LAB_STATE: str(folder.parent / "state")}
    client = "lab.teach.classroom"
    with (
        mock.patch.dict(os.environ, home),
        mock.patch.multiple(f"{client}.backend", _FRESH_S=0.05, _PATIENCE_S=0.0, _POLL_S=0.02),
        mock.patch(f"{client}.protocol._PAUSE_S", 0.02),
    ):
        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        assert started.wait(PATIENCE_S)
        try:
            yield ready[0]
        finally:
            ready[0].loop.call_soon_threadsafe(stop.set)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def request(environment: Environment, run_id: str = RUN) -> Request:
    return Request(run_id, RunSpec("async"), environment.cluster_spec())


def collected(environment: Environment) -> dict[str, bytes]:
    """The files of the run of an environment."""
    files: dict[str, bytes] = defaultdict(bytes)
    for chunk in filter(None, environment.stream(RUN, {}, follow=True)):
        files[chunk.path] += chunk.data
    return files
