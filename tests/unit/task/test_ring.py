"""Real agents whose programs form a ring of Horovod: its variables and its rendezvous.

A small HTTP server replaces Horovod's own, so that the tests do not need Horovod.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume.control import cancel
from lab.protocol.volume.states import State
from lab.task.agent.ring import WAITS
from tests.support.agents import ROOT, Stage, processes_with, wait_for

SERVER = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class RendezvousHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())

class RendezvousHTTPServer(HTTPServer):
    def __init__(self, address, handler, verbose):
        super().__init__(address, handler)
"""
PROGRAM = """
import json, os, signal, sys, time, urllib.request
own = {name[8:]: os.environ[name] for name in os.environ if name.startswith("HOROVOD_")}
if own:
    url = "http://{GLOO_RENDEZVOUS_ADDR}:{GLOO_RENDEZVOUS_PORT}".format_map(own)
    server = urllib.request.urlopen(url).read().decode()
    print(json.dumps({**own, "server": server}), flush=True)
    rank, attempt = int(own["RANK"]), int(os.environ["LAB_ATTEMPT"])
    open(f"{attempt}.{rank}", "w").close()
    while len([name for name in os.listdir() if name.startswith(f"{attempt}.")]) < 2:
        time.sleep(0.01)  # as `hvd.init` waits for all ranks
    exec(sys.argv[1])
"""
TASKS = ("ps-0", "worker-0", "worker-1")


class Crew(Stage):
    """A ps, which has no rank, and two workers."""

    def begin(self, code: str = "", library: str = SERVER, **more: object) -> None:
        package = self.folder / "packages/horovod/runner/http"
        package.mkdir(parents=True)
        (package / "http_server.py").write_text(library)
        for task in TASKS:
            self.agent(task, PYTHONPATH=f"{ROOT}:{self.folder / 'packages'}")
        path = self.volume.incoming("r1") / "program"
        path.mkdir(parents=True)
        (path / "own.py").write_text(PROGRAM)
        spec = {"own": True, "horovod": True, "gang": True}
        self.submit("own.py", code, **spec, **more)

    def wait_agents_only(self) -> None:
        """Wait until no other process of the stage is left."""
        agents = {agent.pid for agent in self.agents.values()}
        wait_for(lambda: set(processes_with(self.marker)) == agents, "the end of the rendezvous")

    def rings(self, task: str) -> list[dict[str, str]]:
        """What the attempts of a task have printed: their variables and the process that serves."""
        lines = self.log(task).decode().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    hosts = ["127.0.0.1:2223", "127.0.0.1:2224"]
    crew = Crew(tmp_path, {"ps": ["127.0.0.1:2222"], "worker": hosts})
    yield crew
    crew.close()


def test_every_rank_finds_the_others(crew: Crew) -> None:
    crew.begin(start={"worker-1": "1s"})
    for task in TASKS:
        crew.wait_state(task, State.SUCCEEDED)
    (first,), (second,) = crew.rings("worker-0"), crew.rings("worker-1")
    assert {name: (first[name], second[name]) for name in first if first[name] != second[name]} == {
        "RANK": ("0", "1"),
        "CROSS_RANK": ("0", "1"),
        "HOSTNAME": ("worker-0", "worker-1"),
    }
    del first["server"]
    port = first.pop("GLOO_RENDEZVOUS_PORT")
    assert int(port) not in {2222, 2223, 2224}
    assert first == {
        "RANK": "0",
        "SIZE": "2",
        "LOCAL_RANK": "0",  # of its own GPUs a task takes the first
        "LOCAL_SIZE": "1",
        "CROSS_RANK": "0",
        "CROSS_SIZE": "2",
        "HOSTNAME": "worker-0",
        "CONTROLLER": "gloo",
        "CPU_OPERATIONS": "gloo",
        "GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "GLOO_TIMEOUT_SECONDS": "121",  # worker-1 starts a second later
    }
    assert crew.rings("ps-0") == []
    crew.wait_agents_only()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_ring_is_formed_anew_after_a_failure(crew: Crew, rank: int) -> None:
    code = f"if attempt == 0: sys.exit(1) if rank == {rank} else signal.pause()"
    crew.begin(code, on_failure=OnFailure.RESTART, restarts=1)
    for task in TASKS:
        crew.wait_state(task, State.SUCCEEDED)
    # The second rendezvous may get the port of the first one, which has ended.
    servers = [crew.rings(task)[-1]["server"] for task in TASKS[1:]]
    first = crew.rings(f"worker-{rank}")[0]["server"]
    assert servers[0] == servers[1] != first


def test_a_rendezvous_that_cannot_start_ends_the_run(crew: Crew) -> None:
    crew.begin(library="raise SystemExit(3)")
    reason = crew.wait_state("worker-0", State.FAILED).reason
    assert reason.endswith("Horovod's rendezvous has ended; see the agent's output")
    crew.wait_state("worker-1", State.CANCELLED)


def test_a_rendezvous_ends_if_the_run_is_cancelled_before_its_programs_start(crew: Crew) -> None:
    crew.begin(library="import time\ntime.sleep(1000)")
    for task in TASKS[1:]:
        wait_for(lambda task=task: crew.status(task).message == WAITS, f"the message of {task}")
    cancel(crew.volume, "r1", "cancelled")
    for task in TASKS:
        crew.wait_state(task, State.CANCELLED)
    crew.wait_agents_only()
