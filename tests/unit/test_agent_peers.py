"""Several agents: which one ends which, and the reasons."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.task.protocol import Request, RunSpec, TaskStatus, Volume, heartbeat
from lab.task.protocol.control import VolumeBusy, cancel, submit
from lab.task.protocol.heartbeat import PeerMonitor
from lab.task.protocol.states import Cause, State, run_state
from lab.task.protocol.statuses import Statuses, read_status, write_status
from tests.support.agents import PATIENCE_S, Stage, wait_for

PROGRAM = """
import os, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
task = flags["job_name"] + "-" + flags["task_index"]
print(f"lab kind=start job_name={flags['job_name']} task_index={flags['task_index']}")
gate = os.path.join(os.environ["LAB_SCRIPTS"], task)
while not os.path.exists(gate):
    time.sleep(0.01)
exec(open(gate).read())
"""


class Crew(Stage):
    """One ps and two workers, whose actions the test controls."""

    def begin(self, *tasks: str, **more: object) -> None:
        for task in tasks or ("ps-0", "worker-0", "worker-1"):
            self.agent(task)
        self.submit(self.program(PROGRAM), **more)
        for task in tasks or ("ps-0", "worker-0", "worker-1"):
            self.wait_state(task, State.READY)

    def tell(self, task: str, code: str) -> None:
        part = self.scripts / f"{task}.part"
        part.write_text(code)
        part.rename(self.scripts / task)


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path, {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]})
    yield crew
    crew.close()


def test_ps_ends_when_every_worker_has(crew: Crew) -> None:
    crew.begin()
    crew.tell("worker-0", "pass")
    crew.wait_state("worker-0", State.SUCCEEDED)
    time.sleep(0.5)  # the ps must not end now: it has no task to wait for
    assert not crew.status("ps-0").state.ended
    crew.tell("worker-1", "pass")
    crew.wait_state("worker-1", State.SUCCEEDED)
    status = crew.wait_state("ps-0", State.SUCCEEDED)
    assert status.signal == "SIGTERM"


def test_failure_of_one_ends_all(crew: Crew) -> None:
    crew.begin()
    crew.tell("worker-1", "raise RuntimeError('the cat sat on it')")
    assert crew.wait_state("worker-1", State.FAILED).exit_code == 1
    for task in ("ps-0", "worker-0"):
        status = crew.wait_state(task, State.CANCELLED)
        assert status.reason == ("worker-1 failed: program.py:9: RuntimeError: the cat sat on it")


def test_success_is_final(crew: Crew) -> None:
    crew.begin()
    crew.tell("worker-0", "pass")
    crew.wait_state("worker-0", State.SUCCEEDED)
    crew.tell("worker-1", "sys.exit(4)")
    crew.wait_state("worker-1", State.FAILED)
    assert crew.wait_state("ps-0", State.CANCELLED).reason == "worker-1 failed: exit code 4"
    assert crew.status("worker-0").state is State.SUCCEEDED


def test_failure_of_a_ps_ends_all(crew: Crew) -> None:
    crew.begin()
    crew.tell("ps-0", "os.kill(os.getpid(), 9)")
    assert crew.wait_state("ps-0", State.FAILED).reason == "killed by SIGKILL"
    for task in ("worker-0", "worker-1"):
        assert crew.wait_state(task, State.CANCELLED).reason == "ps-0 failed: killed by SIGKILL"


def test_succeeded_ps_waits_for_the_other_outcomes(crew: Crew) -> None:
    crew.begin()
    crew.tell("ps-0", "pass")
    wait_for(lambda: crew.status("ps-0").exit_code == 0, "the ps's program has ended")
    assert not crew.status("ps-0").state.ended
    crew.tell("worker-0", "pass")
    crew.tell("worker-1", "pass")
    crew.wait_state("ps-0", State.SUCCEEDED)


def test_a_run_that_reaches_its_time_limit_is_cancelled_once_for_all_tasks(crew: Crew) -> None:
    crew.begin(max_time_s=1.5)
    saves = "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))"
    for task in ("ps-0", "worker-0", "worker-1"):
        crew.tell(task, f"import signal; {saves}; time.sleep(60)")
    for task in ("ps-0", "worker-0", "worker-1"):
        status = crew.wait_state(task, State.CANCELLED)
        assert status.reason == "the time limit of 1.5 s is reached; start it again"
        assert "saved" in crew.volume.log("r1", task).read_text()


STEP = "print('lab kind=step job_name=worker task_index={} local_step=1 global_step={}')"


def test_stalled_training_fails_and_names_waiting_tasks(crew: Crew) -> None:
    crew.begin(stall_s=1.5)
    crew.tell("worker-0", f"{STEP.format(0, 7)}; time.sleep(60)")
    waits = "print('lab kind=event job_name=worker task_index=1 message=\"waits for the chief\"')"
    crew.tell("worker-1", f"{waits}; time.sleep(60)")
    failed = crew.wait_state("worker-0", State.FAILED)
    assert failed.cause is Cause.STALLED
    assert failed.reason == (
        "no new global step for 1.5 s, the last one was 7"
        " (worker-0 made its last step at 7, worker-1 waits for the chief)"
    )
    for task in ("ps-0", "worker-1"):
        status = crew.wait_state(task, State.CANCELLED)
        assert status.cause is Cause.PEER_LOST
        assert status.reason.startswith("worker-0 failed: no new global step")


def test_steps_of_one_task_prevent_a_stall(crew: Crew) -> None:
    crew.begin(stall_s=1.5)
    loop = "i = 0\nwhile i < 40:\n    i += 1; time.sleep(0.1); "
    notify = "lab kind=step job_name=worker task_index=0 local_step={i} global_step={i}"
    crew.tell("worker-0", f'{loop}print(f"{notify}")')
    crew.tell("worker-1", f"{STEP.format(1, 1)}; time.sleep(4.5)")
    crew.wait_state("worker-1", State.SUCCEEDED)
    assert crew.wait_state("worker-0", State.SUCCEEDED).global_step == 40
    crew.wait_state("ps-0", State.SUCCEEDED)


def begin_own(crew: Crew, code: str, **more: object) -> None:
    """Begin a run of a user's own program."""
    for task in ("ps-0", "worker-0", "worker-1"):
        crew.agent(task)
    crew.submit(str(crew.scripts / crew.program(code)), own=True, **more)


COMPUTES = "end = time.monotonic() + 5\nwhile time.monotonic() < end: pass\n"
PRINTS = "for each in range(10): print(each); time.sleep(0.5)\n"
LOGS = (
    "while True: print('I0000 00:00:1.2 3 a.cc:4] CreateSession still waiting for response from"
    " worker: /job:ps/replica:0/task:0'); time.sleep(0.1)\n"
)


def test_a_silent_program_without_steps_is_stalled(crew: Crew) -> None:
    program = f"import sys, time\nif 'worker' in sys.argv[1]:\n    {LOGS}"
    begin_own(crew, program, stall_s=3.0)
    failed = crew.wait_state("worker-0", State.FAILED)
    assert failed.cause is Cause.STALLED
    assert failed.reason == (
        "no sign of life for 3 s (worker-0 waits for ps-0, worker-1 waits for ps-0)"
    )


@pytest.mark.parametrize("works", [COMPUTES, PRINTS], ids=["computes", "prints"])
def test_one_living_program_prevents_a_stall(crew: Crew, works: str) -> None:
    program = (
        f"import sys, time\nif sys.argv[2] == '--task_index=0': time.sleep(6)\nelse:\n {works}"
    )
    begin_own(crew, program.replace("\nwhile", "\n while"), stall_s=3.0)
    crew.wait_state("worker-1", State.SUCCEEDED)
    crew.wait_state("worker-0", State.SUCCEEDED)


def test_a_task_that_starts_late_is_awaited(crew: Crew) -> None:
    program = "import sys, time; time.sleep(4 if sys.argv[2] == '--task_index=0' else 0)"
    begin_own(crew, program, stall_s=2.5, start={"worker-1": "4s"})
    crew.wait_state("worker-1", State.SUCCEEDED)
    crew.wait_state("worker-0", State.SUCCEEDED)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("sys.exit(3)", Cause.EXIT_CODE),
        ("os.kill(os.getpid(), 9)", Cause.SIGNAL),
        (
            "print('lab kind=final job_name=worker task_index=1 status=failed"
            ' message="lost contact with ps-0; see how it ended"\'); sys.exit(1)',
            Cause.PEER_LOST,
        ),
    ],
)
def test_failure_reason_is_reported(crew: Crew, code: str, cause: Cause) -> None:
    crew.begin()
    crew.tell("worker-1", code)
    assert crew.wait_state("worker-1", State.FAILED).cause is cause
    assert crew.wait_state("worker-0", State.CANCELLED).cause is Cause.PEER_LOST
    crew.wait_state("ps-0", State.CANCELLED)


def test_cancel_reaches_all(crew: Crew) -> None:
    crew.begin()
    cancel(crew.volume, "r1", "enough")
    for task in ("ps-0", "worker-0", "worker-1"):
        assert crew.wait_state(task, State.CANCELLED).reason == "enough"


def test_agent_that_is_stopped_ends_the_run(crew: Crew) -> None:
    crew.begin()
    crew.agents["worker-0"].terminate()
    assert crew.wait_state("worker-0", State.CANCELLED).reason.startswith("the agent was stopped")
    reason = "worker-0 was cancelled: the agent was stopped (SIGTERM)"
    assert crew.wait_state("worker-1", State.CANCELLED).reason == reason


def test_one_run_at_a_time(crew: Crew) -> None:
    crew.begin()
    with pytest.raises(VolumeBusy, match="run r1 is under way"):
        crew.submit("program.py", run_id="r2")
    assert not crew.volume.run("r2").exists()
    cancel(crew.volume, "r1", "enough")
    for task in ("ps-0", "worker-0", "worker-1"):
        crew.wait_state(task, State.CANCELLED)
    crew.submit("program.py", run_id="r2")


def test_program_that_replaces_its_status_by_a_directory_ends_the_run(crew: Crew) -> None:
    crew.begin()
    path = crew.volume.status("r1", "worker-1")
    crew.tell("worker-1", f"os.remove({str(path)!r}); os.mkdir({str(path)!r}); time.sleep(600)")
    why = "its status cannot be read: it is not a regular file"
    for task in ("ps-0", "worker-0"):
        ended = crew.wait_state(task, State.CANCELLED)
        assert ended.reason == f"worker-1 failed: {why}"
    wait_for(lambda: f"run r1: failed: {why}" in crew.output("worker-1").read_text(), "its end")
    assert crew.status("worker-1").cause is Cause.UNREADABLE
    for task in ("ps-0", "worker-0", "worker-1"):
        (crew.scripts / task).unlink(missing_ok=True)
    crew.submit("program.py", run_id="r2")
    for task in ("ps-0", "worker-0", "worker-1"):
        crew.wait_state(task, State.READY, "r2")


def test_late_agent_joins(crew: Crew) -> None:
    crew.begin("ps-0", "worker-0")
    assert crew.status("worker-1").state is State.PENDING
    crew.agent("worker-1")
    crew.wait_state("worker-1", State.READY)


def test_stopped_agent_is_lost(crew: Crew) -> None:
    crew.begin()
    crew.agents["worker-1"].send_signal(signal.SIGSTOP)
    status = crew.wait_state("worker-1", State.LOST)
    assert status.reason == "its agent has sent no heartbeat for 15 s"
    reason = "worker-1 was lost: its agent has sent no heartbeat for 15 s"
    for task in ("ps-0", "worker-0"):
        assert crew.wait_state(task, State.CANCELLED).reason == reason


@pytest.mark.parametrize("told_to_go", [False, True])
def test_agent_that_others_declared_lost_ends(crew: Crew, told_to_go: bool) -> None:
    crew.begin()
    agent = crew.agents["worker-1"]
    agent.send_signal(signal.SIGSTOP)
    lost = TaskStatus("worker-1", State.LOST, reason="silent", pid=crew.status("worker-1").pid)
    write_status(crew.volume.status("r1", "worker-1"), lost)
    crew.wait_state("worker-0", State.CANCELLED)
    if told_to_go:  # It receives both at once, and the others have reacted to the loss already.
        agent.terminate()
    agent.send_signal(signal.SIGCONT)
    if not told_to_go:
        wait_for(lambda: crew.status("worker-1").ended_unix is not None, "the end of worker-1")
        agent.terminate()
    agent.wait(timeout=PATIENCE_S)
    assert crew.status("worker-1").state is State.LOST
    assert crew.status("worker-1").reason == "silent"


def once(crew: Crew, task: str, **environ: str) -> subprocess.Popen[bytes]:
    return crew.agent(task, LAB_EXPERIMENT="async", LAB_FLAGS="--epochs 2 --note 'a b'", **environ)


@pytest.mark.parametrize(("code", "exit_code"), [("pass", 0), ("sys.exit(1)", 1)])
def test_leader_without_a_client(crew: Crew, code: str, exit_code: int) -> None:
    crew.program(PROGRAM.replace("sys.argv[1:]", "sys.argv[1:5]"), "mnist_async.py")
    worker = once(crew, "worker-0")
    leader = once(crew, "ps-0")
    crew.tell("worker-0", "print(sys.argv[-4:])")
    crew.tell("worker-1", code)
    once(crew, "worker-1")
    assert leader.wait(timeout=PATIENCE_S) == exit_code
    assert worker.poll() is None  # it lingers, because its exit would end the others
    (request,) = crew.volume.requests.glob("*.json")
    run_id = Request.from_json(request.read_text()).run_id
    assert "-async-" in run_id
    if exit_code == 0:
        line = "['--epochs', '2', '--note', 'a b']\n"
        assert crew.log("worker-0", run_id).decode() == line
    output = crew.output("ps-0").read_text()
    assert ("worker-1: failed: exit code 1" in output) == bool(exit_code)
    assert output.count("worker-0: ") == 1


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"LAB_EXPERIMENT": "asinc"}, "no experiment 'asinc'; did you mean 'async'?"),
        ({"LAB_EXPERIMENT": "async", "LAB_FLAGS": "'"}, "LAB_FLAGS: No closing quotation"),
        (
            {"LAB_EXPERIMENT": "async", "LAB_CLUSTER": '{"ps": ["a:1"]}'},
            "async needs the job 'worker'; change `jobs:` in the config",
        ),
        (
            {
                "LAB_EXPERIMENT": "async",
                "LAB_CLUSTER": '{"ps": ["a:1"], "worker": ["b:1"], "chief": ["c:1"]}',
            },
            "async does not use the job 'chief'; change `jobs:` in the config",
        ),
    ],
)
def test_leader_with_bad_request(crew: Crew, environ: dict[str, str], line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.agent"],
        env={**crew.environ("ps-0"), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not crew.volume.agents.exists()


def test_stopped_leader_has_not_succeeded(crew: Crew) -> None:
    leader = once(crew, "ps-0")
    wait_for(lambda: list(crew.volume.requests.glob("*.json")), "the request")
    leader.terminate()
    assert leader.wait(timeout=PATIENCE_S) == 1


class Clock:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monotonic_s = 100.0
        self.time_s = time.time()
        monkeypatch.setattr(heartbeat.time, "monotonic", lambda: self.monotonic_s)
        monkeypatch.setattr(heartbeat.time, "time", lambda: self.time_s)


@pytest.fixture
def heart(tmp_path: Path) -> Path:
    path = Volume(tmp_path).agent("worker-0")
    path.parent.mkdir()
    path.write_text("{}")
    return path


def beat_for(clock: Clock, pulses: PeerMonitor, seconds: float) -> None:
    for _ in range(round(seconds * 2)):
        clock.monotonic_s += 0.5
        pulses.check()


def test_agent_is_lost_after_15_s(
    heart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    pulses = PeerMonitor(Volume(tmp_path), ["worker-0"])
    pulses.check()
    heart.touch()
    pulses.check()
    beat_for(clock, pulses, 14.5)
    assert pulses.lost_reason("worker-0") is None
    beat_for(clock, pulses, 0.5)
    assert pulses.lost_reason("worker-0") == "its agent has sent no heartbeat for 15 s"
    heart.touch()
    beat_for(clock, pulses, 0.5)
    assert pulses.lost_reason("worker-0") is None


def test_changed_clock_causes_no_loss(
    heart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    pulses = PeerMonitor(Volume(tmp_path), ["worker-0"])
    pulses.check()
    clock.time_s += 86400
    beat_for(clock, pulses, 10)
    assert heart.exists()
    assert pulses.lost_reason("worker-0") is None


def test_own_long_sleep_causes_no_loss(
    heart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    pulses = PeerMonitor(Volume(tmp_path), ["worker-0"])
    pulses.check()
    clock.monotonic_s += 600
    pulses.check()
    assert heart.exists()
    assert pulses.lost_reason("worker-0") is None


def test_missing_agent_is_lost_after_2_min(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    volume = Volume(tmp_path)
    pulses = PeerMonitor(volume, ["worker-0"])
    beat_for(clock, pulses, 119)
    assert pulses.lost_reason("worker-0") is None
    beat_for(clock, pulses, 2)
    assert pulses.lost_reason("worker-0") == "its agent did not start within 120 s"
    submit(volume, Request("r1", RunSpec("t", "p.py"), {"worker": ["a:1"]}))
    statuses = Statuses(volume, "r1", ["worker-0"])
    pulses.declare_lost(volume, "r1", statuses.refresh())
    assert statuses.refresh()["worker-0"].state is State.LOST


def test_free_lock_and_old_heartbeat_mean_lost(
    heart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    volume = Volume(tmp_path)
    with volume.agent_lock("worker-0").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pulses = PeerMonitor(volume, ["worker-0"])
        patient = PeerMonitor(volume, ["worker-0"], patient=True)
        for each in (pulses, patient):
            each.check()
        beat_for(clock, pulses, 5)
        assert pulses.lost_reason("worker-0") is None  # it is held: this agent is alive
    beat_for(clock, pulses, 1.5)
    assert pulses.lost_reason("worker-0") == "its agent process has ended"
    heart.touch()
    beat_for(clock, pulses, 1)
    assert pulses.lost_reason("worker-0") is None  # a heart that beats where no lock is seen
    beat_for(clock, patient, 5)
    assert patient.lost_reason("worker-0") is None


def test_an_end_written_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    volume = Volume(tmp_path)
    submit(volume, Request("r1", RunSpec("t", "p.py"), {"worker": ["a:1"]}))
    pulses = PeerMonitor(volume, ["worker-0"])
    beat_for(clock, pulses, 130)
    done = TaskStatus("worker-0", State.SUCCEEDED)
    write_status(volume.status("r1", "worker-0"), done)
    stale = {"worker-0": TaskStatus("worker-0", State.TRAINING)}
    pulses.declare_lost(volume, "r1", stale)
    assert read_status(volume.status("r1", "worker-0"), "worker-0") == done


def test_ended_task_cannot_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    volume = Volume(tmp_path)
    submit(volume, Request("r1", RunSpec("t", "p.py"), {"worker": ["a:1"]}))
    done = TaskStatus("worker-0", State.SUCCEEDED)
    write_status(volume.status("r1", "worker-0"), done)
    pulses = PeerMonitor(volume, ["worker-0"])
    beat_for(clock, pulses, 130)
    pulses.declare_lost(volume, "r1", {"worker-0": done})
    assert read_status(volume.status("r1", "worker-0"), "worker-0") == done


def test_old_heartbeats_of_a_former_agent(
    heart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    clock.time_s += 3600
    pulses = PeerMonitor(Volume(tmp_path), ["worker-0"])
    pulses.check()
    beat_for(clock, pulses, 100)
    assert pulses.lost_reason("worker-0") is None
    beat_for(clock, pulses, 30)
    assert heart.exists()
    assert pulses.lost_reason("worker-0") == "its agent did not start within 120 s"


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ("pending pending", "pending"),
        ("pending starting", "starting"),
        ("ready starting", "starting"),
        ("ready ready", "ready"),
        ("ready training", "training"),
        ("succeeded pending", "training"),
        ("succeeded succeeded", "succeeded"),
        ("succeeded cancelled", "cancelled"),
        ("lost cancelled", "lost"),
        ("lost failed", "failed"),
    ],
)
def test_state_of_a_run(states: str, state: str) -> None:
    assert run_state(map(State, states.split())) is State(state)
