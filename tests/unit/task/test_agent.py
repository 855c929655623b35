"""One agent and its program."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.base.image_digest import sources
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.control import cancel
from lab.protocol.volume.files import REFUSED_S
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import write_status
from lab.task.agent.agent import Agent
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.ending import GRACE_S
from tests.support.agents import PATIENCE_S, ROOT, Stage, processes_with, wait_for
from tests.support.commands import python
from tests.support.conditions import lacking

START = 'print("lab kind=start run=r1 job_name=worker task_index=0 seq=0", flush=True)\n'
STEP = 'print("lab kind=step run=r1 job_name=worker task_index=0 seq=1 loss=0.5", flush=True)\n'
FOREVER = "import time\nwhile True: time.sleep(60)\n"
AGENT = [sys.executable, "-m", "lab.task.agent"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def submitted(stage: Stage, text: str, state: State = State.READY, **more: object) -> TaskStatus:
    stage.agent("worker-0")
    stage.submit(stage.program(text), **more)
    return stage.wait_state("worker-0", state)


@pytest.mark.parametrize(("code", "state"), [(0, State.SUCCEEDED), (1, State.FAILED)])
def test_an_agent_for_one_run_ends_with_it(stage: Stage, code: int, state: State) -> None:
    stage.submit(stage.program(f"{START}raise SystemExit({code})\n"))
    environ = stage.environ("worker-0")
    done = subprocess.run([*AGENT, "--once"], env=environ, check=False, timeout=PATIENCE_S)
    assert (done.returncode, stage.status("worker-0").state) == (0, state)
    assert not stage.volume.agent("worker-0").exists()


def test_program_succeeds_and_its_output_is_sorted(stage: Stage) -> None:
    program = f"{START}{STEP}import sys; print(sys.argv[1:]); print('it 5')\n"
    status = submitted(stage, program, State.SUCCEEDED, record=r"it (?P<step>\d+)")
    assert (status.exit_code, status.signal, status.reason, status.pid) == (0, None, "", None)
    assert status.started_unix is not None
    assert status.ended_unix is not None
    assert [record["kind"] for record in stage.records("worker-0")] == ["start", "step"]
    assert stage.records("worker-0")[1]["loss"] == 0.5
    arguments = "['--job_name=worker', '--task_index=0', '--worker_hosts=tf1:2222']"
    assert stage.log("worker-0").decode().splitlines() == [arguments, "it 5"]
    assert b"it 5\n" in stage.output("worker-0").read_bytes()


class Idle:
    """Instead of the signals: a wait only advances the clock; the first one damages the volume."""

    def __init__(self, damaged: Path, patch: pytest.MonkeyPatch) -> None:
        self.reason, self.now, self._damaged = None, 100.0, damaged
        patch.setattr(time, "monotonic", lambda: self.now)

    def wait(self, at_most_s: float, _also: object = ()) -> None:
        if self._damaged.is_dir():
            shutil.rmtree(self._damaged)
            self._damaged.touch()
        self.now += at_most_s


@pytest.mark.parametrize("name", ["agents", "requests"])
def test_an_idle_agent_ends_if_a_directory_of_the_volume_cannot_be_used(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    damaged = stage.volume.root / name
    damaged.mkdir()
    idle = Idle(damaged, monkeypatch)
    config = AgentConfig.from_environ(stage.environ("worker-0"))
    agent = Agent(config, AgentLog(1), idle)
    with pytest.raises(NotADirectoryError):
        agent.run()
    assert REFUSED_S <= idle.now - 100 < REFUSED_S + 3
    assert capfd.readouterr().out.count("trying again") == 1


def test_program_gets_its_task(stage: Stage) -> None:
    stage.cluster = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}
    stage.agent("ps-0")
    stage.agent("worker-0")
    stage.agent("worker-1", http_proxy="http://proxy:3128", no_proxy="a.b")
    program = stage.program(
        "import json, os, sys\n"
        "print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sys.stdin.read()]))\n"
        "import lab.protocol.records\n"
    )
    stage.submit(program, "--epochs=2", data_dir="own")
    stage.wait_state("worker-1", State.SUCCEEDED)
    argv, environ, cwd, stdin = json.loads(stage.log("worker-1").splitlines()[0])
    assert argv == [
        "--job_name=worker",
        "--task_index=1",
        "--ps_hosts=tf1:2222",
        "--worker_hosts=tf2:2222,tf3:2222",
        f"--data_dir={stage.folder / 'data' / 'own'}",
        "--epochs=2",
    ]
    assert json.loads(environ.pop("TF_CONFIG")) == {
        "cluster": stage.cluster,
        "task": {"type": "worker", "index": 1},
    }
    assert (cwd, stdin) == (str(stage.volume.files("r1")), "")
    # A file, unlike an engine, adds no times of its own.
    assert re.match(r"\d{4}-\d\d-\d\dT\S+Z lab: ", stage.output("worker-1").read_text())
    assert (
        environ.items()
        >= {
            "LAB_ATTEMPT": "0",
            "LAB_TASK": "worker-1",
            "LAB_RUN_DIR": str(stage.volume.run("r1")),
            "PYTHONUNBUFFERED": "1",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            "TF_USE_LEGACY_KERAS": "1",
            "LAB_LAZY_KERAS": "1",
            "no_grpc_proxy": "a.b,tf1,tf2,tf3,localhost,127.0.0.1,::1",
        }.items()
    )


def test_each_task_starts_its_own_program_and_a_service_without_one_has_ended(
    stage: Stage,
) -> None:
    stage.cluster = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}
    for task in ("ps-0", "worker-0", "worker-1"):
        stage.agent(task)
    for name in ("a", "b"):
        stage.program(f"import sys; print('{name}', sys.argv[1:])", f"{name}.py")
    programs = {"worker-0": "a.py", "worker-1": "b.py"}
    stage.submit("worker-0=a.py,worker-1=b.py", "--x", programs=programs)
    ended = [stage.wait_state(f"worker-{index}", State.SUCCEEDED) for index in (0, 1)]
    assert all(status.exit_code == 0 for status in ended)
    for name, task in (("a", "worker-0"), ("b", "worker-1")):
        assert re.fullmatch(rf"{name} \[.*'--x'\]\n", stage.log(task).decode())
    alone = stage.wait_state("ps-0", State.SUCCEEDED)
    assert (alone.reason, alone.exit_code) == ("this task has no program in this run", None)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "no program {0}/nowhere.py; put it into {0}"),
        ("import sys; sys.exit('no data')", "exit code 1; its last line: no data"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("raise ValueError('\\x1b[2Jb\\x07ad\\n more')", "program.py:1: ValueError: b\\x07ad"),
    ],
)
def test_failure_has_a_reason(stage: Stage, program: str | None, reason: str) -> None:
    stage.agent("worker-0")
    stage.submit("nowhere.py" if program is None else stage.program(program))
    status = stage.wait_state("worker-0", State.FAILED)
    assert status.reason == reason.format(stage.scripts)
    assert (status.exit_code is None) == ("killed" in reason or program is None)
    assert (status.signal is not None) == ("killed" in reason)


def test_service_that_ended_by_itself_can_be_stopped(stage: Stage) -> None:
    stage.cluster = {"ps": ["tf1:2222"], "worker": ["tf2:2222"]}
    agent = stage.agent("ps-0")
    stage.submit(stage.program("print('served')"))
    wait_for(lambda: "has ended" in stage.status("ps-0").reason, "the ps waits")
    assert not stage.status("ps-0").state.ended
    agent.terminate()
    assert agent.wait(timeout=PATIENCE_S) == 0
    assert stage.status("ps-0").state is State.CANCELLED


def test_orphans_of_a_program_are_ended(stage: Stage) -> None:
    program = (
        "import subprocess, sys\n"
        "code = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);'\n"
        "code += 'print(\"child\", flush=True); time.sleep(600)'\n"
        "for session in (False, True):\n"
        "    p = subprocess.Popen([sys.executable, '-c', code], start_new_session=session,\n"
        "        stdout=subprocess.PIPE)\n"
        "    p.stdout.readline()\n"
    )
    submitted(stage, program, State.SUCCEEDED)
    assert processes_with(stage.marker) == [stage.agents["worker-0"].pid]


@pytest.mark.parametrize(
    ("handler", "ended", "log"),
    [
        ("signal.SIG_IGN", (None, "SIGKILL"), b""),
        ("lambda *_: (print('saved'), sys.exit(0))", (0, None), b"saved\n"),
    ],
    ids=["ignores it", "ends well"],
)
def test_cancel_ends_a_program_by_sigterm_or_later_by_sigkill(
    stage: Stage, handler: str, ended: tuple[int | None, str | None], log: bytes
) -> None:
    program = f"import signal, sys\nsignal.signal(signal.SIGTERM, {handler})\n"
    submitted(stage, program + START + FOREVER)
    cancel(stage.volume, "r1", "the \x1bteacher said so")
    status = stage.wait_state("worker-0", State.CANCELLED)
    assert status.reason == "the \\x1bteacher said so"
    assert (status.exit_code, status.signal) == ended
    assert stage.log("worker-0") == log


def test_cancelled_before_start(stage: Stage) -> None:
    stage.submit(stage.program("print('never')"))
    cancel(stage.volume, "r1", "changed my mind")
    stage.agent("worker-0")
    assert stage.wait_state("worker-0", State.CANCELLED).reason == "changed my mind"
    assert not stage.volume.log("r1", "worker-0").exists()


def test_second_stop_does_not_wait(stage: Stage) -> None:
    program = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('deaf'))\n"
    submitted(stage, program + START + FOREVER)
    agent = stage.agents["worker-0"]
    agent.terminate()
    wait_for(lambda: stage.log("worker-0") == b"deaf\n", "the program was told")
    # A signal that follows at once is the same one.
    asked = time.monotonic()
    wait_for(lambda: agent.terminate() or agent.poll() is not None, "the agent ends")
    assert agent.returncode == 0
    assert stage.status("worker-0").state is State.CANCELLED
    assert time.monotonic() - asked < GRACE_S


def test_a_repeated_signal_leaves_the_program_its_time(stage: Stage) -> None:
    seen = stage.folder / "seen"
    program = (
        "import os, signal, sys, time\n"
        f"def save(*_):\n  while not os.path.exists({str(seen)!r}): time.sleep(0.01)\n"
        "  print('saved')\n  sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
    )
    submitted(stage, program + START + FOREVER)
    agent = stage.agents["worker-0"]
    agent.terminate()
    agent.send_signal(signal.SIGHUP)
    stage.wait_for_looks("worker-0")
    seen.touch()
    assert agent.wait(timeout=PATIENCE_S) == 0
    status = stage.status("worker-0")
    assert (status.state, status.exit_code) == (State.CANCELLED, 0)
    assert (status.reason, status.cause) == ("the agent was stopped (SIGTERM)", Cause.INTERRUPTED)
    assert stage.log("worker-0") == b"saved\n"
    assert not stage.volume.agent("worker-0").exists()


def test_program_of_a_killed_agent_ends_and_the_run_is_lost(stage: Stage) -> None:
    pid = submitted(stage, START + FOREVER).pid
    agent = stage.agents["worker-0"]
    assert pid in processes_with(stage.marker)
    agent.kill()
    agent.wait()
    wait_for(lambda: pid not in processes_with(stage.marker), "the program is gone")
    assert stage.status("worker-0").state is State.READY
    stage.agent("worker-0")
    status = stage.wait_state("worker-0", State.LOST)
    assert status.reason == "its agent restarted during the run"
    stage.submit(stage.program("print(2)"), run_id="r2")
    stage.wait_state("worker-0", State.SUCCEEDED, "r2")


TIME_OVER = "the time limit of 600 s is reached; start it again"
KILLS = "kill worker-0 after 600s"


@pytest.mark.parametrize(
    ("terms", "state", "reason"),
    [
        ({"max_time_s": 600.0}, State.CANCELLED, TIME_OVER),
        ({"faults": (KILLS,)}, State.FAILED, f"killed by SIGKILL (the injected fault `{KILLS}`)"),
    ],
)
def test_a_restarted_agent_counts_times_from_the_start_of_the_run(
    stage: Stage, terms: dict[str, object], state: State, reason: str
) -> None:
    program = stage.program(START + FOREVER)
    stage.submit(program, restarts=1, submitted_unix=time.time() - 601, **terms)
    path = stage.volume.status("r1", "worker-0")
    write_status(path, TaskStatus("worker-0", State.STARTING))  # by the agent's earlier process
    stage.agent("worker-0")
    assert stage.wait_state("worker-0", state, within_s=30).reason == reason


def test_a_fault_without_a_time_waits_for_the_first_step(stage: Stage, tmp_path: Path) -> None:
    go, step = tmp_path / "go", STEP.replace("seq=1", "seq=1 local_step=1 global_step=1")
    waits = (
        f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
    )
    submitted(stage, START + waits + step + FOREVER, faults=("kill worker-0",))
    stage.wait_for_looks("worker-0")
    assert stage.status("worker-0").state is State.READY
    go.touch()
    status = stage.wait_state("worker-0", State.FAILED)
    assert status.reason == "killed by SIGKILL (the injected fault `kill worker-0`)"


def test_closed_stdin(stage: Stage) -> None:
    reading, writing = os.pipe()
    environ = stage.environ("worker-0")
    agent = subprocess.Popen(
        [*AGENT, "--leash"], env=environ, stdin=reading, stdout=subprocess.DEVNULL
    )
    stage.agents["worker-0"] = agent
    os.close(reading)
    stage.submit(stage.program(START + FOREVER))
    stage.wait_state("worker-0", State.READY)
    os.close(writing)
    assert agent.wait(timeout=PATIENCE_S) == 0
    assert stage.status("worker-0").reason == "the supervisor has ended"


def test_strange_files_among_the_requests(stage: Stage) -> None:
    stage.volume.requests.mkdir()
    (stage.volume.requests / "bad.json").write_text("{")
    (stage.volume.requests / "list.json").write_text("[1]")
    (stage.volume.requests / ".hidden.json").write_text("x")
    evil = '{"run_id": "evil", "experiment": "", "program": "p", "args": [], "services": [],'
    (stage.volume.requests / "evil.json").write_text(evil + '"cluster": {"../../x": ["a:1"]}}')
    stage.agent("worker-0")
    stage.submit(stage.program("print(1)"))
    stage.wait_state("worker-0", State.SUCCEEDED)
    output = stage.output("worker-0").read_text()
    assert output.count("requests/bad.json is not a request") == 1
    assert output.count("requests/evil.json is not a request") == 1


def test_an_agent_greets_and_sends_heartbeats(stage: Stage) -> None:
    stage.agent("worker-0", CUDA_VISIBLE_DEVICES="GPU-1,GPU-2")
    path, output = stage.volume.agent("worker-0"), stage.output("worker-0")
    before = path.stat().st_mtime_ns
    wait_for(lambda: path.stat().st_mtime_ns > before, "a heartbeat")
    about = json.loads(path.read_text())
    assert (about["task"], about["address"]) == ("worker-0", "tf1:2222")
    assert [line.partition(" ")[2] for line in output.read_text().splitlines()] == [
        "lab: worker-0 of demo runs on tf1, address tf1:2222, GPUs: GPU-1,GPU-2",
        "lab: waiting for a run; start one with: python -m lab run async",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"LAB_NODE": ""}, "LAB_NODE not set"),
        ({"LAB_TASK": "worker-7"}, "LAB_CLUSTER is not a cluster spec with worker-7"),
    ],
)
def test_an_agent_refuses_a_wrong_environment(
    stage: Stage, changes: dict[str, str], line: str
) -> None:
    environ = {**stage.environ("worker-0"), **changes}
    done = subprocess.run(AGENT, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert line in done.stderr
    assert not stage.volume.agents.exists()


def test_program_whose_files_cannot_be_opened_ends(stage: Stage) -> None:
    agent = stage.agent("worker-0")
    agent.send_signal(signal.SIGSTOP)
    os.waitpid(agent.pid, os.WUNTRACED)  # it sees the request together with the obstacle
    stage.submit(stage.program(FOREVER))
    stage.volume.log("r1", "worker-0").mkdir(parents=True)
    agent.send_signal(signal.SIGCONT)
    status = stage.wait_state("worker-0", State.FAILED)
    assert status.reason.endswith("program.py cannot be started: Is a directory")
    assert processes_with(stage.marker) == [agent.pid]
    opened = [str(each.readlink()) for each in Path(f"/proc/{agent.pid}/fd").iterdir()]
    assert not [each for each in opened if each.startswith("pipe:") or "worker-0.jsonl" in each]


@contextlib.contextmanager
def unusable(folder: Path) -> Iterator[None]:
    """A file is in the place of a directory of the run volume."""
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.touch()
    yield
    folder.unlink()
    moved.rename(folder)


def test_an_agent_waits_for_a_volume_that_fails_for_a_moment(stage: Stage, tmp_path: Path) -> None:
    def notices() -> int:
        return stage.output("worker-0").read_bytes().count(b"; trying again")

    def fail_for_a_moment(folder: Path) -> None:
        seen = notices()
        with unusable(folder):
            wait_for(lambda: notices() > seen, "a notice")

    stage.agent("worker-0")
    fail_for_a_moment(stage.volume.agents)
    go_on = tmp_path / "go-on"
    waits = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
    stage.submit(stage.program(f"{START}{waits}print('goes on')\n"))
    stage.wait_state("worker-0", State.READY)
    fail_for_a_moment(stage.volume.run("r1"))
    go_on.touch()
    stage.wait_state("worker-0", State.SUCCEEDED)
    assert stage.log("worker-0") == b"goes on\n"


def test_an_agent_ends_if_its_volume_does_not_recover(stage: Stage) -> None:
    submitted(stage, START + FOREVER)
    agent = stage.agents["worker-0"]
    with unusable(stage.volume.run("r1")):
        assert agent.wait(timeout=PATIENCE_S) == 1
    assert "cannot be used: [Errno 20] Not a directory" in stage.output("worker-0").read_text()


FULL_DISK = """
import json, os, subprocess, sys
from pathlib import Path
from lab.protocol.volume import Request, RunSpec, Volume
from lab.protocol.volume.status import read_status
from lab.protocol.volume.transfer import stream
from lab.protocol.volume.control import submit
volume = Volume(Path(os.environ["LAB_RUNS"]))
agent = subprocess.Popen([sys.executable, "-m", "lab.task.agent"], stdout=subprocess.DEVNULL)
submit(volume, Request("r1", RunSpec("t", "fill.py"), {"worker": ["tf1:2222"]}))
for _ in stream(volume, "r1", {}, follow=True):
    pass
agent.terminate()
log = volume.log("r1", "worker-0").read_bytes()
records = volume.records("r1", "worker-0").read_bytes()
print(json.dumps([read_status(volume.status("r1", "worker-0"), "worker-0").to_json(),
    agent.wait(), len(log), log[-1:].decode(), records[-1:].decode()]))
"""


def test_full_disk_ends_the_run_with_a_reason(stage: Stage) -> None:
    stage.program(
        "import time\n" + STEP + "while True: print('x' * 99); print('lab kind=step loss=0.5')\n",
        "fill.py",
    )
    mount = 'mount -t tmpfs -o size=300k tmpfs "$LAB_RUNS" && exec "$0" -c "$1"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    done = subprocess.run(
        [*unshare, "sh", "-c", mount, sys.executable, FULL_DISK],
        env=stage.environ("worker-0"),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if b"unshare failed" in done.stderr or b"mount:" in done.stderr:
        lacking("this kernel allows no mount namespaces to this user")
    assert done.returncode == 0, done.stderr.decode()
    text, code, size, end_of_log, end_of_records = json.loads(done.stdout)
    status = json.loads(text)
    assert (status["state"], status["cause"], code) == ("failed", "volume", 0)
    assert status["reason"] == (
        f"the run volume {stage.volume.root} cannot be written: No space left on device;"
        " make room on it"
    )
    assert status["records_lost"] > 0
    assert size > 50_000
    assert size % 100 == 0
    assert (end_of_log, end_of_records) == ("\n", "\n")


def test_agent_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, lab.task.agent.agent\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in"
        " ('numpy', 'pyroute2', 'tensorflow', 'pydantic', 'docker')),"
        " *sorted(m for m in sys.modules if m.startswith('lab.')))"
    )
    done = python("-c", code, cwd=ROOT, check=True)
    heavy, *of_lab = done.stdout.split()
    assert heavy == "[]"
    in_image = {name.removesuffix(".py").removesuffix("/__init__") for name in sources()}
    assert {name.removeprefix("lab.").replace(".", "/") for name in of_lab} <= in_image
