"""Programs that are forked after the import of TensorFlow; a stand-in replaces TensorFlow."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.protocol.volume import TaskStatus
from lab.protocol.volume.control import cancel
from lab.protocol.volume.states import Cause, State
from lab.task.agent import forkserver
from lab.task.agent.command import environ_of_import
from lab.task.agent.fork_client import ForkClient
from tests.support.agents import PATIENCE_S, ROOT, Stage, processes_with, wait_for

COUNTED = """
import os, random
import numpy.random
with open(os.environ["STAND_IN"] + "/imports", "a") as file:
    file.write("imported\\n")
os.environ["TF2_BEHAVIOR"] = "1"
drawn = random.random()
"""
FORKED = "has started, forked from the fork server"
IT_TRAINS = "import tensorflow\nprint('it trains')\n"


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(type=socket.SOCK_SEQPACKET)


class Home(Stage):
    """A stage whose agents have a fork server, which imports a stand-in of TensorFlow."""

    def __init__(self, folder: Path, cluster: dict[str, list[str]]) -> None:
        super().__init__(folder, cluster)
        self.servers: list[subprocess.Popen[bytes]] = []
        self.variables = {
            "PYTHONPATH": f"{ROOT}:{folder / 'stand-in'}",
            "STAND_IN": str(folder),
            "TF2_BEHAVIOR": "0",  # the import sets another
        }
        self.stand_in(COUNTED)

    def stand_in(self, text: str) -> None:
        package = self.folder / "stand-in" / "tensorflow"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(text)

    def serve(self, ends: list[socket.socket]) -> subprocess.Popen[bytes]:
        theirs = [end.fileno() for end in ends]
        with (self.folder / "server.out").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *forkserver.argv(theirs)],
                env=environ_of_import(self.environ("", **self.variables), ""),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=theirs,
                process_group=0,
            )
        self.servers.append(process)
        for end in ends:
            end.close()
        return process

    def forking(self, *tasks: str, **more: str) -> subprocess.Popen[bytes]:
        pairs = {task: pair() for task in tasks or ("worker-0",)}
        process = self.serve([pair[1] for pair in pairs.values()])
        for task, (ours, _) in pairs.items():
            own = {"CUDA_VISIBLE_DEVICES": "-1", **self.variables, **more}
            self.agent(task, end=ours, **own)
        return process

    def starting(self) -> None:
        self.agent("worker-0", CUDA_VISIBLE_DEVICES="-1", **self.variables)

    def run(self, program: str, state: State = State.SUCCEEDED, run_id: str = "r1") -> TaskStatus:
        self.submit(self.program(program), run_id=run_id)
        return self.wait_state("worker-0", state, run_id)

    def end_agents(self) -> None:
        for agent in self.agents.values():
            agent.send_signal(signal.SIGTERM)
            agent.wait(PATIENCE_S)
        for process in self.servers:
            process.wait(PATIENCE_S)

    def said(self) -> str:
        return self.output("worker-0").read_text()

    def imports(self) -> int:
        return len((self.folder / "imports").read_text().splitlines())


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path, {"worker": ["tf1:2222"]})
    yield home
    home.close()
    for process in home.servers:
        process.wait(PATIENCE_S)


LOOKS = """
import tensorflow
import json, os, signal, sys, threading, resource, multiprocessing
from pathlib import Path

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line.split()[1] for line in lines if line.startswith(name + ":"))
    return int(found, 16) & 0x7FFFFFFF  # without those that the C library keeps for itself

def child(queue):
    queue.put([__name__, sys.argv, tensorflow.__name__])

if __name__ == "__main__":
    descriptors = sorted(os.listdir("/proc/self/fd"))
    spawning = multiprocessing.get_context("spawn")
    queue = spawning.SimpleQueue()
    process = spawning.Process(target=child, args=(queue,))
    process.start()
    print(json.dumps({
        "child": queue.get(),
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "flags": str(sys.flags),
        "environ": dict(os.environ),
        "main": {
            name: str(value).partition(" at 0x")[0]
            for name, value in globals().items() if name.startswith("__")
        },
        "cwd": os.getcwd(),
        "leads its group": os.getpgrp() == os.getpid(),
        "descriptors": descriptors,
        "signals": [status("SigIgn"), status("SigCgt"), status("SigBlk")],
        "handlers": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM)],
        "threads": [threading.active_count(), threading.current_thread().name],
        "cpus": sorted(os.sched_getaffinity(0)),
        "limits": [resource.getrlimit(n) for n in range(10)],
        "umask": os.umask(0),
        "stdin": sys.stdin.read(),
        "streams": [str(each) + str(each.line_buffering) for each in (sys.stdout, sys.stderr)],
        "lab": sorted(name for name in sys.modules if name.partition(".")[0] == "lab"),
    }))
    process.join()
    if "--wait" in sys.argv:
        signal.pause()
"""


def test_forked_program_equals_a_started_one(home: Home) -> None:
    first_cpu = {min(os.sched_getaffinity(0))}
    program = home.program(LOOKS)
    found = []
    for run, start in (("r1", home.forking), ("r2", home.starting)):
        start()
        os.sched_setaffinity(home.agents["worker-0"].pid, first_cpu)
        home.submit(program, "--a=1", "two words", "", run_id=run)
        home.wait_state("worker-0", State.SUCCEEDED, run)
        log = home.log("worker-0", run).decode()
        found.append(json.loads(re.sub(r"(?<=[/=\"])r[12]\b", "r1", log)))
        home.end_agents()
    assert FORKED in home.said()
    forked, alone = found
    # The import has set it.
    assert alone["environ"]["TF2_BEHAVIOR"] == "1"
    for name in alone:
        assert forked[name] == alone[name], name


@pytest.mark.parametrize(
    "ends",
    [
        "sys.exit(3)",
        "sys.exit('said at the end')",
        "raise ValueError('wrong')",
        "import atexit; atexit.register(print, 'at exit'); print('last', end='')",
        "os.kill(os.getpid(), 9)",
        "raise KeyboardInterrupt",
        "sys.excepthook = lambda *told: (print(told[1], told[2].tb_lineno), os._exit(7)); 1 / 0",
        "1 +",
        "import threading; threading.Timer(0.2, print, ['from a thread']).start()",
        "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)",
    ],
)
def test_forked_program_ends_like_a_started_one(home: Home, ends: str) -> None:
    program = home.program(f"import tensorflow\nimport os, sys\n{ends}\n")
    seen = []
    for run, start in (("r1", home.forking), ("r2", home.starting)):
        start()
        home.submit(program, run_id=run)
        wait_for(lambda run=run: home.status("worker-0", run).state.ended, "the end")
        status = home.status("worker-0", run)
        log = home.log("worker-0", run).decode()
        # Of the frames of a KeyboardInterrupt those of the fork are visible; no others.
        kept = [line for line in log.splitlines() if "lab/task" not in line]
        kept = kept[-1:] if "KeyboardInterrupt" in ends else kept
        seen.append((status.state, status.exit_code, status.signal, status.reason, kept))
        home.end_agents()
    assert FORKED in home.said() or ends == "1 +"
    assert seen[0] == seen[1]
    assert processes_with(home.marker) == []


def test_one_import_serves_all_tasks_and_all_runs(home: Home) -> None:
    home.cluster = {"worker": ["tf1:2222", "tf2:2222"]}
    home.forking("worker-0", "worker-1")
    program = (
        "import tensorflow\nimport numpy.random, random\n"
        "print(tensorflow.drawn, random.random(), numpy.random.random(),"
        " open('/proc/self/comm').read())\n"
    )
    drawn = []
    for run in ("r1", "r2"):
        home.run(program, run_id=run)
        home.wait_state("worker-1", State.SUCCEEDED, run)
        drawn += [home.log(task, run).split() for task in ("worker-0", "worker-1")]
    assert home.imports() == 1
    by_import, by_python, by_numpy, names = zip(*drawn, strict=True)
    assert names == (b"worker-0", b"worker-1") * 2
    assert len({*by_import}) == 1
    assert len({*by_python}) == len({*by_numpy}) == 4


def test_a_run_waits_for_the_import_that_is_under_way(home: Home) -> None:
    go = home.folder / "go"
    home.stand_in(f"{COUNTED}import time\nwhile not os.path.exists({str(go)!r}): time.sleep(.01)\n")
    home.forking()
    home.submit(home.program("import tensorflow\n"))
    wait_for(lambda: "waits for TensorFlow" in home.status("worker-0").message, "a message")
    assert home.status("worker-0").state is State.PENDING
    go.touch()
    home.wait_state("worker-0", State.SUCCEEDED)
    assert home.imports() == 1


HANGS = "import time\ntime.sleep(600)\n"
ALONE = "if not os.environ.get('LAB_TASK'): "


@pytest.mark.parametrize(
    ("stand_in", "program", "variables", "reason"),
    [
        (HANGS, "print('it trains')", {}, "it runs code before it imports TensorFlow"),
        (
            COUNTED + "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
            IT_TRAINS,
            {},
            "its import leaves 1 threads running",
        ),
        (
            f"{COUNTED}{ALONE}raise RuntimeError('no such library')\n",
            IT_TRAINS,
            {},
            "tensorflow cannot be imported here: RuntimeError",
        ),
        (f"{COUNTED}{ALONE}os._exit(1)\n", IT_TRAINS, {}, "the fork server has ended"),
        (
            COUNTED,
            IT_TRAINS,
            {"TF_ENABLE_ONEDNN_OPTS": "0"},
            "it needs another value of TF_ENABLE_ONEDNN_OPTS",
        ),
        (COUNTED, IT_TRAINS, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, "it uses GPUs"),
    ],
)
def test_nothing_is_forked_where_unsafe(
    home: Home, stand_in: str, program: str, variables: dict[str, str], reason: str
) -> None:
    home.stand_in(stand_in)
    server = home.forking(**variables)
    home.run(program)
    assert f"as a new process: {reason}" in home.said()
    assert home.log("worker-0") == b"it trains\n"
    if stand_in != HANGS:  # the server may import after the program
        wait_for(lambda: home.imports() == 2, "the server's import and the program's")
    server.kill()


TRAINS = """import tensorflow
import signal, subprocess, time
subprocess.Popen(["sleep", "60"])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("lab kind=step run=r1 job_name=worker task_index=0 seq=1 loss=0.5", flush=True)
signal.sigwait([signal.SIGTERM])
"""


def test_killed_agent_ends_a_fork_server_that_hangs(home: Home) -> None:
    home.stand_in(HANGS)
    code = (
        "import subprocess, sys, time\n"
        "from lab.task.agent import forkserver\n"
        "subprocess.Popen([sys.executable, *forkserver.argv([])])\n"
        "time.sleep(600)\n"
    )
    environ = home.environ("", **home.variables)
    starter = subprocess.Popen([sys.executable, "-c", code], env=environ, cwd=ROOT)
    try:
        wait_for(lambda: len(processes_with(home.marker)) == 2, "the fork server")
    finally:
        starter.kill()
        starter.wait()
    wait_for(lambda: processes_with(home.marker) == [], "nothing of it is left")


def test_a_killed_agent_ends_its_program(home: Home) -> None:
    home.forking()
    home.run(TRAINS, State.TRAINING)
    home.agents["worker-0"].kill()
    wait_for(lambda: processes_with(home.marker) == [], "nothing of it is left")


def test_a_killed_fork_server_ends_its_program(home: Home) -> None:
    process = home.forking()
    home.run(TRAINS, State.TRAINING)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (parent,) = map(int, children)
    os.kill(parent, signal.SIGKILL)
    status = home.wait_state("worker-0", State.FAILED)
    assert (status.signal, status.cause) == ("SIGKILL", Cause.SIGNAL)
    home.run("import tensorflow\n", run_id="r2")
    assert "as a new process: the fork server has ended" in home.said()


def test_a_cancelled_run_ends_its_forked_program(home: Home) -> None:
    home.forking()
    home.run(TRAINS, State.TRAINING)
    cancel(home.volume, "r1", "enough")
    status = home.wait_state("worker-0", State.CANCELLED)
    assert (status.exit_code, status.reason) == (0, "enough")


def test_a_program_that_cannot_be_started_has_not_succeeded(home: Home) -> None:
    ours, theirs = pair()
    home.serve([theirs])
    client = ForkClient(ours)
    wait_for(client.is_settled, "the import")
    variables = environ_of_import(home.environ("", **home.variables), "")
    program = client.spawn([sys.executable, "x.py"], variables, home.folder / "none")
    wait_for(program.ended, "the end")
    assert program.reap() == 126
    with os.fdopen(program.output, "rb") as output:
        assert b"error: [Errno 2] No such file" in output.read()
    client.disconnect("the test is over")
