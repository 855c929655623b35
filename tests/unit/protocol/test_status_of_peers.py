"""Several agents: which one ends which, and the reasons."""

from __future__ import annotations

import signal

import pytest

from lab.protocol.volume import Request, TaskStatus
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import write_status
from tests.support.agents import PATIENCE_S, TASKS, Crew, wait_for
from tests.support.commands import python


@pytest.mark.parametrize(
    ("task", "code", "reason", "cause"),
    [
        ("worker-1", "sys.exit(3)", "exit code 3", Cause.EXIT_CODE),
        (
            "worker-1",
            "say('final', 'status=failed message=\"lost contact with ps-0; see\"'); sys.exit(1)",
            "exit code 1",
            Cause.PEER_LOST,
        ),
        ("ps-0", "os.kill(os.getpid(), 9)", "killed by SIGKILL", Cause.SIGNAL),
    ],
)
def test_failure_of_one_ends_all(
    crew: Crew, task: str, code: str, reason: str, cause: Cause
) -> None:
    crew.begin()
    crew.tell("worker-0", "pass" if task == "worker-1" else "time.sleep(600)")
    if task == "worker-1":
        crew.wait_state("worker-0", State.SUCCEEDED)
    crew.tell(task, code)
    failed = crew.wait_state(task, State.FAILED)
    assert (failed.reason, failed.cause) == (reason, cause)
    other = crew.wait_state("ps-0" if task == "worker-1" else "worker-0", State.CANCELLED)
    assert (other.reason, other.cause) == (f"{task} failed: {reason}", Cause.PEER_LOST)
    if task == "worker-1":  # a success is final
        assert crew.status("worker-0").state is State.SUCCEEDED


def test_succeeded_ps_waits_for_the_other_outcomes(crew: Crew) -> None:
    crew.begin()
    crew.tell("ps-0", "pass")
    wait_for(lambda: crew.status("ps-0").exit_code == 0, "the ps's program has ended")
    assert not crew.status("ps-0").state.ended
    crew.tell("worker-0", "pass")
    crew.tell("worker-1", "pass")
    crew.wait_state("ps-0", State.SUCCEEDED)


LOGS = (
    "while True: print('I0000 00:00:1.2 3 a.cc:4] CreateSession still waiting for response from"
    " worker: /job:ps/replica:0/task:0'); time.sleep(0.1)"
)
HANGS = "time.sleep(600)"


@pytest.mark.parametrize(
    ("first", "second", "start", "stalled"),
    [
        (LOGS, LOGS, {}, "(worker-0 waits for ps-0, worker-1 waits for ps-0)"),
        (HANGS, "while True: pass", {}, ""),
        (HANGS, HANGS, {"worker-1": "600s"}, ""),
    ],
    ids=["silent", "computes", "starts late"],
)
def test_a_program_without_steps_is_stalled_if_no_task_is_alive(
    crew: Crew, first: str, second: str, start: dict[str, str], stalled: str
) -> None:
    code = (
        "import json, os, time\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        f"if task['type'] == 'ps': {HANGS}\n"
        f"elif task['index'] == 0:\n {first}\nelse:\n {second}\n"
    )
    for task in TASKS:
        crew.agent(task)
    crew.submit(str(crew.scripts / crew.program(code)), own=True, stall_s=3.0, start=start)
    if stalled:
        failed = crew.wait_state("worker-0", State.FAILED)
        assert failed.cause is Cause.STALLED
        assert failed.reason == f"no sign of life for 3 s {stalled}"
        return

    def lives_on() -> bool:
        assert not crew.status("worker-0").state.ended
        return crew.status("worker-1").signs_of_life > 6  # at most one a second

    wait_for(lives_on, "signs of life of worker-1")


def test_program_that_replaces_its_status_by_a_directory_ends_the_run(crew: Crew) -> None:
    crew.begin()
    path = crew.volume.status("r1", "worker-1")
    crew.tell("worker-1", f"os.remove({str(path)!r}); os.mkdir({str(path)!r}); time.sleep(600)")
    why = "its status cannot be read: it is not a regular file"
    for task in ("ps-0", "worker-0"):
        assert crew.wait_state(task, State.CANCELLED).reason == f"worker-1 failed: {why}"
    wait_for(lambda: f"run r1: failed: {why}" in crew.output("worker-1").read_text(), "its end")
    assert crew.status("worker-1").cause is Cause.UNREADABLE
    (crew.scripts / "worker-1.0").unlink()
    crew.submit("program.py", run_id="r2")
    for task in TASKS:
        crew.wait_state(task, State.TRAINING, "r2")


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGSTOP, "its agent has sent no heartbeat for 15 s"),
        (signal.SIGKILL, "its agent process has ended"),
    ],
)
def test_an_agent_that_hangs_or_ends_is_lost(
    crew: Crew, number: signal.Signals, reason: str
) -> None:
    crew.begin()
    crew.agents["worker-1"].send_signal(number)
    lost = crew.wait_state("worker-1", State.LOST)
    assert (lost.reason, lost.cause) == (reason, Cause.NODE_LOST)
    for task in ("ps-0", "worker-0"):
        assert crew.wait_state(task, State.CANCELLED).reason == f"worker-1 was lost: {reason}"


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
    status = crew.status("worker-1")
    assert (status.state, status.reason) == (State.LOST, "silent")


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_without_a_client(crew: Crew, code: int) -> None:
    program = f"""\
import sys, time
if sys.argv[1] == "--job_name=ps":
    time.sleep(600)
if sys.argv[2] == "--task_index=1":
    print(sys.argv[6:])
    sys.exit({code})
"""
    crew.program(program, "mnist_async.py")
    agents = [crew.agent(task) for task in TASKS]
    run = {"LAB_RUN": "async --epochs 2 --note 'a b'", "LAB_RUN_TERMS": "{}", "LAB_ONCE": "1"}
    done = python("-m", "lab.task.agent.autorun", env=crew.environ("", **run))
    (request,) = crew.volume.requests.glob("*.json")
    run_id = Request.from_json(request.read_text()).run_id
    assert (done.returncode, done.stderr) == (code, "")
    assert f"lab: run {run_id}: {'failed' if code else 'succeeded'}\n" in done.stdout
    assert ("lab: worker-1: exit code 1" in done.stdout) is bool(code)
    assert crew.log("worker-1", run_id) == b"['--epochs', '2', '--note', 'a b']\n"
    assert [agent.poll() for agent in agents] == [None, None, None]  # compose ends them
