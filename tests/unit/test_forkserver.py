"""Programs that are forked after the import of TensorFlow; a stand-in replaces TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab.task.agent import forkserver
from lab.task.agent.command import environ_of_import
from lab.task.agent.fork_client import ForkClient
from lab.task.agent.forkserver import Imported
from lab.task.protocol.control import cancel
from lab.task.protocol.states import Cause, State
from tests.support.agents import PATIENCE_S, ROOT, Stage, processes_with, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

COUNTED = """
import os, random
import numpy.random
with open(os.environ["STAND_IN"] + "/imports", "a") as file:
    file.write("imported\\n")
os.environ["TF2_BEHAVIOR"] = "1"
drawn = random.random()
"""
FORKED = "has started, forked from the fork server"


@dataclass
class Home:
    """A stage whose agents have a fork server.

    Attributes:
        stage: The run volume and the agents.
        nurseries: The processes of the fork servers.
    """

    stage: Stage
    nurseries: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of agents and fork server, which import the stand-in."""
        folder = self.stage.folder
        return {
            "PYTHONPATH": f"{ROOT}:{folder / 'stand-in'}",
            "STAND_IN": str(folder),
            "TF2_BEHAVIOR": "0",  # the import sets another
        }

    def stand_in(self, text: str = COUNTED) -> None:
        """Write the package that plays TensorFlow."""
        package = self.stage.folder / "stand-in" / "tensorflow"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(text)

    def agents(self, *tasks: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a fork server, and an agent for each task, which may have other variables."""
        pairs = {task: socket.socketpair() for task in tasks}
        process = self._nursery([pair[1] for pair in pairs.values()])
        for task, (ours, _) in pairs.items():
            own = {"CUDA_VISIBLE_DEVICES": "-1", **self.variables, **more}
            self.stage.agent(task, end=ours, **own)
        return process

    def cradle(self) -> tuple[ForkClient, dict[str, str]]:
        """Start a fork server for the test alone, and return the variables that it expects."""
        ours, theirs = socket.socketpair()
        self._nursery([theirs])
        return ForkClient(ours), environ_of_import(self.stage.environ("", **self.variables), "")

    def _nursery(self, ends: list[socket.socket]) -> subprocess.Popen[bytes]:
        theirs = [end.fileno() for end in ends]
        inherited = self.stage.environ("", **self.variables)
        with (self.stage.folder / "nursery.out").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *forkserver.argv(theirs)],
                env=environ_of_import(inherited, ""),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=theirs,
                process_group=0,
            )
        self.nurseries.append(process)
        for end in ends:
            end.close()
        return process

    def agent_alone(self, task: str) -> None:
        """Start an agent without a fork server, with the same variables."""
        self.stage.agent(task, CUDA_VISIBLE_DEVICES="-1", **self.variables)

    def end_agents(self) -> None:
        """End the agents, and wait until the nurseries have ended, too."""
        for agent in self.stage.agents.values():
            agent.send_signal(signal.SIGTERM)
            agent.wait(PATIENCE_S)
        for process in self.nurseries:
            process.wait(PATIENCE_S)

    def said(self, task: str) -> str:
        """The output of the agent."""
        return self.stage.output(task).read_text()

    def imports(self) -> int:
        """The number of imports of the stand-in."""
        return len((self.stage.folder / "imports").read_text().splitlines())


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(Stage(tmp_path))
    home.stand_in()
    yield home
    home.stage.close()
    for process in home.nurseries:
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
    home.agents("worker-0")
    os.sched_setaffinity(home.stage.agents["worker-0"].pid, first_cpu)
    program = home.stage.program(LOOKS)
    home.stage.submit(program, "--a=1", "two words", "")
    home.stage.wait_state("worker-0", State.SUCCEEDED)
    home.end_agents()
    home.agent_alone("worker-0")
    os.sched_setaffinity(home.stage.agents["worker-0"].pid, first_cpu)
    home.stage.submit(program, "--a=1", "two words", "", run_id="r2")
    home.stage.wait_state("worker-0", State.SUCCEEDED, "r2")
    assert FORKED in home.said("worker-0")
    forked, alone = (
        json.loads(
            home.stage.log("worker-0", run)
            .decode()
            .replace("/r2", "/r1")
            .replace("=r2", "=r1")
            .replace('"r2"', '"r1"')
        )
        for run in ("r1", "r2")
    )
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
        "os.abort()",
        "raise KeyboardInterrupt",
        "sys.excepthook = lambda *told: (print(told[1], told[2].tb_lineno), os._exit(7)); 1 / 0",
        "1 +",
        "import threading; threading.Timer(0.2, print, ['from a thread']).start()",
        "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)",
    ],
)
def test_forked_program_ends_like_a_started_one(home: Home, ends: str) -> None:
    program = home.stage.program(f"import tensorflow\nimport os, sys\n{ends}\n")
    seen = []
    for run, start in (("r1", home.agents), ("r2", home.agent_alone)):
        start("worker-0")
        home.stage.submit(program, run_id=run)
        wait_for(lambda run=run: home.stage.status("worker-0", run).state.ended, "the end")
        status = home.stage.status("worker-0", run)
        log = home.stage.log("worker-0", run).decode()
        # Of the frames of a KeyboardInterrupt those of the fork are visible; no others.
        kept = [line for line in log.splitlines() if "lab/task" not in line]
        seen.append((status.state, status.exit_code, status.signal, status.reason, kept))
        home.end_agents()
    assert FORKED in home.said("worker-0") or ends == "1 +"
    if "KeyboardInterrupt" in ends:
        seen = [(*each[:-1], each[-1][-1]) for each in seen]
    assert seen[0] == seen[1]
    assert processes_with(home.stage.marker) == []


def test_one_import_serves_all_tasks_and_all_runs(home: Home) -> None:
    home.stage.cluster = {"worker": ["tf1:2222", "tf2:2222"]}
    home.agents("worker-0", "worker-1")
    program = home.stage.program(
        "import tensorflow\nimport numpy.random, random\n"
        "print(tensorflow.drawn, random.random(), numpy.random.random(),"
        " open('/proc/self/comm').read())\n"
    )
    drawn = []
    for run in ("r1", "r2"):
        home.stage.submit(program, run_id=run)
        for task in ("worker-0", "worker-1"):
            home.stage.wait_state(task, State.SUCCEEDED, run)
            drawn.append(home.stage.log(task, run).split())
    assert home.imports() == 1
    by_import, by_python, by_numpy, names = zip(*drawn, strict=True)
    assert names == (b"worker-0", b"worker-1") * 2
    assert len({*by_import}) == 1
    assert len({*by_python}) == len({*by_numpy}) == 4


def test_a_run_waits_for_the_import_that_is_under_way(home: Home) -> None:
    home.stand_in(
        COUNTED
        + "import time\nwhile not os.path.exists(os.environ['STAND_IN'] + '/go'): time.sleep(.01)\n"
    )
    home.agents("worker-0")
    home.stage.submit(home.stage.program("import tensorflow\n"))
    wait_for(lambda: "waits for TensorFlow" in home.stage.status("worker-0").message, "a message")
    assert home.stage.status("worker-0").state is State.PENDING
    (home.stage.folder / "go").touch()
    home.stage.wait_state("worker-0", State.SUCCEEDED)
    assert home.imports() == 1


def test_a_program_without_tensorflow_does_not_wait(home: Home) -> None:
    home.stand_in("import time\ntime.sleep(600)\n")
    process = home.agents("worker-0")
    home.stage.submit(home.stage.program("print('hello')\n"))
    home.stage.wait_state("worker-0", State.SUCCEEDED)
    assert "as a new process: it runs code before it imports TensorFlow" in home.said("worker-0")
    process.kill()


@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [
        (
            COUNTED + "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
            "as a new process: its import leaves 1 threads running",
        ),
        (
            COUNTED + "if not os.environ.get('LAB_TASK'): raise RuntimeError('no such library')\n",
            "as a new process: tensorflow cannot be imported here: RuntimeError",
        ),
        (
            COUNTED + "if not os.environ.get('LAB_TASK'): os._exit(1)\n",
            "as a new process: the fork server has ended",
        ),
    ],
)
def test_nothing_is_forked_where_unsafe(home: Home, stand_in: str, reason: str) -> None:
    home.stand_in(stand_in)
    home.agents("worker-0")
    home.stage.submit(home.stage.program("import tensorflow\nprint('it trains')\n"))
    home.stage.wait_state("worker-0", State.SUCCEEDED)
    assert reason in home.said("worker-0")
    assert home.stage.log("worker-0") == b"it trains\n"
    assert home.imports() == 2


FOREVER = """import tensorflow
import signal, subprocess, time
subprocess.Popen(["sleep", "60"])
print("lab kind=step run=r1 job_name=worker task_index=0 seq=1 loss=0.5", flush=True)
time.sleep(600)
"""


def test_killed_agent_ends_a_fork_server_that_hangs(home: Home) -> None:
    home.stand_in("import time\ntime.sleep(600)\n")
    code = (
        "import subprocess, sys, time\n"
        "from lab.task.agent import forkserver\n"
        "subprocess.Popen([sys.executable, *forkserver.argv([])])\n"
        "time.sleep(600)\n"
    )
    environ = home.stage.environ("", **home.variables)
    starter = subprocess.Popen([sys.executable, "-c", code], env=environ, cwd=ROOT)
    try:
        wait_for(lambda: len(processes_with(home.stage.marker)) == 2, "the nursery")
    finally:
        starter.kill()
        starter.wait()
    wait_for(lambda: processes_with(home.stage.marker) == [], "nothing of it is left")


def test_a_killed_agent_ends_its_program(home: Home) -> None:
    home.agents("worker-0")
    home.stage.submit(home.stage.program(FOREVER))
    home.stage.wait_state("worker-0", State.TRAINING)
    home.stage.agents["worker-0"].kill()
    wait_for(lambda: processes_with(home.stage.marker) == [], "nothing of it is left")


def test_a_killed_fork_server_ends_its_program(home: Home) -> None:
    process = home.agents("worker-0")
    home.stage.submit(home.stage.program(FOREVER))
    home.stage.wait_state("worker-0", State.TRAINING)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (cradle,) = map(int, children)
    os.kill(cradle, signal.SIGKILL)
    status = home.stage.wait_state("worker-0", State.FAILED)
    assert (status.signal, status.cause) == ("SIGKILL", Cause.SIGNAL)
    home.stage.submit(home.stage.program("import tensorflow\n"), run_id="r2")
    home.stage.wait_state("worker-0", State.SUCCEEDED, "r2")
    assert "as a new process: the fork server has ended" in home.said("worker-0")


def test_a_cancelled_run_ends_its_forked_program(home: Home) -> None:
    home.agents("worker-0")
    masks = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nprint("
    waits = FOREVER.replace("time.sleep(600)", "signal.sigwait([signal.SIGTERM])")
    program = home.stage.program(waits.replace("print(", masks))
    home.stage.submit(program)
    home.stage.wait_state("worker-0", State.TRAINING)
    cancel(home.stage.volume, "r1", "enough")
    status = home.stage.wait_state("worker-0", State.CANCELLED)
    assert (status.exit_code, status.reason) == (0, "enough")


def test_a_program_that_cannot_be_started_has_not_succeeded(home: Home) -> None:
    cradle, variables = home.cradle()
    wait_for(cradle.is_settled, "the import")
    program = cradle.spawn([sys.executable, "x.py"], variables, home.stage.folder / "none")
    wait_for(program.ended, "the end")
    assert program.reap() == 126
    with os.fdopen(program.output, "rb") as output:
        assert b"error: [Errno 2] No such file" in output.read()
    cradle.disconnect("the test is over")


def test_variables_that_count() -> None:
    imported = Imported({"TF_X": "1", "LAB_TASK": "a", "CUDA_VISIBLE_DEVICES": "-1"}, {})
    assert imported.unavailable_reason({"TF_X": "1", "LAB_TASK": "b", "TF_CONFIG": "{}"}) is None
    assert imported.unavailable_reason({"TF_X": "2"}) == "it needs another value of TF_X"
    assert (
        imported.unavailable_reason({"OMP_NUM_THREADS": "1"})
        == "it needs another value of OMP_NUM_THREADS, TF_X"
    )


def test_openblas_gets_the_cpu_count_of_a_program() -> None:
    code = (
        "import ctypes, numpy\n"
        "from pathlib import Path\n"
        "from lab.task.agent.forkserver import limit_openblas_threads\n"
        "limit_openblas_threads(1)\n"
        "maps = Path('/proc/self/maps').read_text().splitlines()\n"
        "path = next(line.split()[-1] for line in maps if 'openblas' in line)\n"
        "print(ctypes.CDLL(path).scipy_openblas_get_num_threads64_())\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    environ.pop("OPENBLAS_NUM_THREADS", None)
    environ.pop("OMP_NUM_THREADS", None)
    two = code.replace("(1)\n", "(2)\n", 1)
    for asked, more, expected in (
        (code, {}, "1"),
        (two, {"OPENBLAS_NUM_THREADS": "1"}, "1"),
        (two, {"OMP_NUM_THREADS": "1"}, "1"),
        (two, {"OPENBLAS_NUM_THREADS": "2"}, str(min(2, os.cpu_count() or 1))),
    ):
        done = subprocess.run(
            [sys.executable, "-c", asked],
            env=environ | more,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
