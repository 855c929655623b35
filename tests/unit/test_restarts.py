"""Real agents whose programs fail: which are restarted, which continue, which are awaited."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.task.protocol.control import cancel, kill
from lab.task.protocol.policy import OnFailure
from lab.task.protocol.states import Cause, State
from tests.support.agents import PATIENCE_S, Stage, wait_for

PROGRAM = """
import os, signal, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
task = flags["job_name"] + "-" + flags["task_index"]
attempt = os.environ["LAB_ATTEMPT"]
head = f"job_name={flags['job_name']} task_index={flags['task_index']}"
def say(kind, rest=""):
    print(f"lab kind={kind} {head} {rest}")
def wait(name):
    while not os.path.exists(os.path.join(os.environ["LAB_SCRIPTS"], name)):
        time.sleep(0.01)
say("start", "status=starting")
wait(f"{task}.{attempt}.ready")
say("event", "status=ready")
while not os.path.exists(os.environ["LAB_START"]):
    time.sleep(0.01)
say("step", f"local_step=1 global_step={1 + int(attempt)}")
wait(f"{task}.{attempt}")
exec(open(os.path.join(os.environ["LAB_SCRIPTS"], f"{task}.{attempt}")).read())
"""
TASKS = ("ps-0", "worker-0", "worker-1")


class Crew(Stage):
    """One ps and two workers, whose attempts the test controls."""

    def begin(self, **more: object) -> None:
        for task in TASKS:
            self.agent(task)
        self.submit(self.program(PROGRAM), **more)

    def ready(self, attempt: int, *tasks: str) -> None:
        for task in tasks or TASKS:
            (self.scripts / f"{task}.{attempt}.ready").touch()

    def tell(self, task: str, attempt: int, code: str) -> None:
        part = self.scripts / "part"
        part.write_text(code)
        part.rename(self.scripts / f"{task}.{attempt}")

    def wait_attempt(self, task: str, attempt: int, state: State = State.TRAINING) -> None:
        wait_for(
            lambda: (self.status(task).attempt, self.status(task).state) == (attempt, state),
            f"{task} {state} in attempt {attempt}, not {self.status(task)}",
        )


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path, {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]})
    yield crew
    crew.close()


def test_no_task_trains_before_the_last_is_ready(crew: Crew) -> None:
    crew.begin()
    crew.ready(0, "ps-0", "worker-0")
    crew.wait_state("worker-0", State.READY)
    wait_for(lambda: crew.status("worker-0").message == "waits for worker-1", "its message")
    assert not crew.volume.start("r1", "worker-0").exists()
    crew.ready(0, "worker-1")
    crew.wait_state("worker-0", State.TRAINING)
    crew.wait_state("worker-1", State.TRAINING)


def test_a_program_that_does_not_get_ready_fails_and_is_named(crew: Crew) -> None:
    crew.begin(ready_s=1.0)
    crew.ready(0, "ps-0", "worker-0")
    status = crew.wait_state("worker-1", State.FAILED)
    assert status.cause is Cause.TIME_OUT
    assert status.reason == "not ready within 1 s"
    reason = crew.wait_state("worker-0", State.CANCELLED).reason
    assert reason == "worker-1 failed: not ready within 1 s"


def test_a_later_task_joins_at_its_step(crew: Crew) -> None:
    crew.begin(start={"worker-1": "after 5 steps"})
    crew.ready(0)
    crew.wait_state("worker-0", State.TRAINING)
    wait_for(lambda: "after 5 steps" in crew.status("worker-1").message, "what it waits for")
    assert crew.status("worker-1").state is State.READY
    crew.tell("worker-0", 0, "say('step', 'local_step=5 global_step=5'); wait('end')")
    crew.wait_state("worker-1", State.TRAINING)


def test_a_self_checking_program_receives_its_step(crew: Crew) -> None:
    crew.begin(experiment="async", start={"worker-1": "after 5,000 steps"})
    crew.ready(0)
    late, other = (crew.volume.start("r1", f"worker-{index}") for index in (1, 0))
    wait_for(lambda: late.exists() and other.exists(), "the words of both")
    assert (late.read_text(), other.read_text()) == ("5000", "")


def test_a_task_with_a_time_is_pending_until_then(crew: Crew) -> None:
    crew.begin(start={"worker-1": "1.5s"})
    crew.ready(0)
    wait_for(lambda: "1.5s after" in crew.status("worker-1").message, "what it waits for")
    assert crew.status("worker-1").state is State.PENDING
    crew.wait_state("worker-0", State.TRAINING)  # no task waits for it
    crew.wait_state("worker-1", State.TRAINING)


def test_a_worker_that_fails_is_started_again_alone(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.RESTART, restarts=2)
    crew.ready(0)
    crew.wait_state("worker-1", State.TRAINING)
    crew.tell("worker-1", 0, "os.kill(os.getpid(), signal.SIGKILL)")
    crew.ready(1, "worker-1")
    crew.wait_attempt("worker-1", 1)
    (earlier,) = crew.status("worker-1").earlier
    assert (earlier.reason, earlier.cause) == ("killed by SIGKILL", Cause.SIGNAL)
    assert earlier.global_step == 1
    assert crew.status("worker-1").reason == ""  # it trains again
    assert crew.status("worker-0").attempt == crew.status("ps-0").attempt == 0
    crew.tell("worker-0", 0, "pass")
    crew.tell("worker-1", 1, "pass")
    for task in TASKS:
        crew.wait_state(task, State.SUCCEEDED)
    told = [each for each in crew.records("worker-1") if "attempt 1 begins" in str(each)]
    assert [each["message"] for each in told] == ["attempt 1 begins: killed by SIGKILL"]
    assert crew.records("worker-1")[-1]["attempt"] == 1


def test_a_worker_that_is_started_again_does_not_wait_for_its_step_again(crew: Crew) -> None:
    """It has joined once; a restarted training may be far behind that step."""
    crew.begin(
        experiment="async",
        on_failure=OnFailure.RESTART,
        restarts=1,
        start={"worker-1": "after 5,000 steps"},
    )
    crew.ready(0)
    crew.wait_attempt("worker-1", 0)
    word = crew.volume.start("r1", "worker-1")
    assert word.read_text() == "5000"
    crew.tell("worker-1", 0, "sys.exit(3)")
    crew.ready(1, "worker-1")
    crew.wait_attempt("worker-1", 1)
    assert word.read_text() == ""


def test_restarts_are_limited(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.RESTART, restarts=1)
    crew.ready(0)
    crew.ready(1)
    for attempt in (0, 1):
        crew.tell("worker-1", attempt, "sys.exit(3)")
    status = crew.wait_state("worker-1", State.FAILED)
    assert (status.attempt, status.reason) == (1, "exit code 3")
    assert crew.wait_state("worker-0", State.CANCELLED).cause is Cause.PEER_LOST


def test_a_gang_is_started_again_together(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.RESTART, restarts=1, gang=True)
    crew.ready(0)
    crew.wait_state("worker-0", State.TRAINING)
    crew.tell("worker-1", 0, "sys.exit(3)")
    crew.ready(1)
    for task in TASKS:
        crew.wait_attempt(task, 1)
    assert "worker-1 restarted" in crew.status("ps-0").earlier[0].reason
    assert crew.status("worker-1").earlier[0].reason == "exit code 3"
    crew.tell("worker-0", 1, "pass")
    crew.tell("worker-1", 1, "pass")
    crew.wait_state("ps-0", State.SUCCEEDED)


def test_a_gang_that_starts_again_waits_for_its_last_again(crew: Crew) -> None:
    """With the start signal of the first attempt the first task to be ready would train alone."""
    crew.begin(on_failure=OnFailure.RESTART, restarts=1, gang=True)
    crew.ready(0)
    crew.wait_state("worker-0", State.TRAINING)
    crew.tell("worker-1", 0, "sys.exit(3)")
    crew.ready(1, "ps-0", "worker-0")
    crew.wait_attempt("worker-0", 1, State.READY)
    wait_for(lambda: crew.status("worker-0").message == "waits for worker-1", "its message")
    assert not crew.volume.start("r1", "worker-0").exists()
    crew.ready(1, "worker-1")
    crew.wait_attempt("worker-0", 1)
    crew.wait_attempt("worker-1", 1)


def test_of_a_gang_that_has_nearly_ended_the_last_starts_alone(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.RESTART, restarts=1, gang=True)
    crew.ready(0)
    crew.wait_state("worker-1", State.TRAINING)
    crew.tell("worker-0", 0, "pass")
    crew.wait_state("worker-0", State.SUCCEEDED)
    crew.tell("worker-1", 0, "sys.exit(3)")
    crew.ready(1)
    crew.wait_attempt("worker-1", 1)
    assert crew.status("ps-0").attempt == 0
    crew.tell("worker-1", 1, "pass")
    crew.wait_state("ps-0", State.SUCCEEDED)


def test_the_others_need_the_chief_but_not_a_worker(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.CONTINUE)
    crew.ready(0)
    crew.wait_state("worker-1", State.TRAINING)
    crew.tell("worker-1", 0, "sys.exit(3)")
    crew.wait_state("worker-1", State.FAILED)
    crew.tell("worker-0", 0, "pass")
    crew.wait_state("worker-0", State.SUCCEEDED)
    crew.wait_state("ps-0", State.SUCCEEDED)
    crew.submit("program.py", run_id="r2", on_failure=OnFailure.CONTINUE)
    (crew.scripts / "worker-0.0").unlink()
    (crew.scripts / "worker-1.0").unlink()
    crew.wait_state("worker-0", State.TRAINING, "r2")
    crew.tell("worker-0", 0, "sys.exit(3)")
    crew.wait_state("worker-1", State.CANCELLED, "r2")
    crew.wait_state("ps-0", State.CANCELLED, "r2")


def test_a_restarted_agent_restarts_its_program(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.RESTART, restarts=2)
    crew.ready(0)
    crew.wait_state("worker-1", State.TRAINING)
    crew.agents["worker-1"].send_signal(signal.SIGKILL)
    crew.agents["worker-1"].wait()
    crew.ready(1, "worker-1")
    crew.agent("worker-1")
    crew.wait_attempt("worker-1", 1)
    (earlier,) = crew.status("worker-1").earlier
    assert earlier.cause is Cause.NODE_LOST
    assert not crew.status("worker-0").state.ended


def test_a_stopped_agent_may_be_restarted(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.RESTART, restarts=2)
    crew.ready(0)
    crew.wait_state("worker-1", State.TRAINING)
    crew.agents["worker-1"].terminate()
    crew.agents["worker-1"].wait(timeout=PATIENCE_S)
    assert crew.status("worker-1").state is State.TRAINING
    crew.ready(1, "worker-1")
    crew.agent("worker-1")
    crew.wait_attempt("worker-1", 1)
    assert crew.status("worker-0").attempt == 0


def test_a_stopped_agent_cancels_without_a_restart_policy(crew: Crew) -> None:
    crew.begin()
    crew.ready(0)
    crew.wait_state("worker-1", State.TRAINING)
    crew.agents["worker-1"].terminate()
    assert crew.wait_state("worker-1", State.CANCELLED).cause is Cause.INTERRUPTED


def test_a_killed_agent_is_lost_at_once(crew: Crew) -> None:
    crew.begin()
    crew.ready(0)
    crew.wait_state("worker-1", State.TRAINING)
    crew.agents["worker-1"].send_signal(signal.SIGKILL)
    status = crew.wait_state("worker-1", State.LOST)
    assert (status.reason, status.cause) == ("its agent process has ended", Cause.NODE_LOST)
    crew.wait_state("worker-0", State.CANCELLED)
    crew.wait_state("ps-0", State.CANCELLED)


SAVE = """
def save(*_):
    time.sleep(0.7)
    alive = os.path.exists(f"/proc/{open(os.path.join(os.environ['LAB_SCRIPTS'], 'ps')).read()}")
    say("event", f'message="the ps is there: {alive}"')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open(os.path.join(os.environ["LAB_SCRIPTS"], "armed"), "w")
time.sleep(60)
"""
TELL = (
    "open(os.path.join(os.environ['LAB_SCRIPTS'], 'ps'), 'w').write(str(os.getpid()));"
    "time.sleep(60)"
)


def test_a_service_stays_until_the_others_have_saved(crew: Crew) -> None:
    crew.begin()
    crew.ready(0)
    crew.tell("ps-0", 0, TELL)
    crew.tell("worker-0", 0, SAVE)
    wait_for((crew.scripts / "armed").exists, "the chief is armed")
    wait_for((crew.scripts / "ps").exists, "the ps is known")
    cancel(crew.volume, "r1", "enough")
    crew.wait_state("ps-0", State.CANCELLED)
    assert crew.records("worker-0")[-1]["message"] == "the ps is there: True"
    assert crew.status("worker-0").state is State.CANCELLED


def test_kill_saves_nothing(crew: Crew) -> None:
    crew.begin()
    crew.ready(0)
    crew.tell("worker-0", 0, SAVE)
    wait_for((crew.scripts / "armed").exists, "the chief is armed")
    cancel(crew.volume, "r1", "enough")
    kill(crew.volume, "r1", "at once")
    for task in TASKS:
        crew.wait_state(task, State.CANCELLED)
    assert "the ps is there" not in str(crew.records("worker-0"))
