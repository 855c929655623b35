"""Real agents whose programs fail: which are restarted, which continue, which are awaited."""

from __future__ import annotations

import signal

import pytest

from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume.control import cancel, kill
from lab.protocol.volume.states import Cause, State
from tests.support.agents import PATIENCE_S, TASKS, Crew, wait_for

RESTART = {"on_failure": OnFailure.RESTART, "restarts": 1}


def test_a_program_that_does_not_get_ready_fails_and_is_named(crew: Crew) -> None:
    crew.launch("ps-0", "worker-0", ready_s=5.0)
    status = crew.wait_state("worker-1", State.FAILED)
    assert (status.cause, status.reason) == (
        Cause.TIME_OUT,
        "not ready within 5 s (--stall=10s allows more)",
    )
    reason = crew.wait_state("worker-0", State.CANCELLED).reason
    assert reason == "worker-1 failed: not ready within 5 s (--stall=10s allows more)"


def test_a_later_task_joins_at_its_step(crew: Crew) -> None:
    crew.launch(*TASKS, start={"worker-1": "after 5 steps"})
    crew.wait_state("worker-0", State.TRAINING)
    wait_for(lambda: "after 5 steps" in crew.status("worker-1").message, "what it waits for")
    assert crew.status("worker-1").state is State.READY
    crew.tell("worker-0", "say('step', 'local_step=5 global_step=5'); wait('end')")
    crew.wait_state("worker-1", State.TRAINING)


def test_a_worker_that_fails_is_started_again_alone_until_its_restarts_are_used_up(
    crew: Crew,
) -> None:
    crew.begin(**RESTART)
    crew.tell("worker-1", "os.kill(os.getpid(), signal.SIGKILL)")
    crew.ready(1, "worker-1")
    crew.wait_attempt("worker-1", 1)
    (earlier,) = crew.status("worker-1").earlier
    assert (earlier.reason, earlier.cause) == ("killed by SIGKILL", Cause.SIGNAL)
    assert earlier.global_step == 1
    assert crew.status("worker-1").reason == ""  # it trains again
    assert crew.status("worker-0").attempt == crew.status("ps-0").attempt == 0
    told = [each for each in crew.records("worker-1") if "attempt 1 begins" in str(each)]
    assert [each["message"] for each in told] == ["attempt 1 begins: killed by SIGKILL"]
    assert crew.records("worker-1")[-1]["attempt"] == 1
    crew.tell("worker-1", "sys.exit(3)", attempt=1)
    status = crew.wait_state("worker-1", State.FAILED)
    assert (status.attempt, status.reason) == (1, "exit code 3")
    assert crew.wait_state("worker-0", State.CANCELLED).cause is Cause.PEER_LOST


def test_a_self_checking_program_receives_its_step_but_not_again_after_a_restart(
    crew: Crew,
) -> None:
    """It has joined once; a restarted training may be far behind that step."""
    crew.launch(*TASKS, experiment="async", start={"worker-1": "after 5,000 steps"}, **RESTART)
    late, other = (crew.volume.start("r1", f"worker-{index}") for index in (1, 0))
    wait_for(lambda: late.exists() and other.exists(), "the words of both")
    assert (late.read_text(), other.read_text()) == ("5000", "")
    crew.wait_attempt("worker-1", 0)
    crew.tell("worker-1", "sys.exit(3)")
    crew.ready(1, "worker-1")
    crew.wait_attempt("worker-1", 1)
    assert late.read_text() == ""


def test_a_gang_is_started_again_together_and_waits_for_its_last_again(crew: Crew) -> None:
    """With the start signal of the first attempt the first task to be ready would train alone."""
    crew.begin(gang=True, **RESTART)
    crew.tell("worker-1", "sys.exit(3)")
    crew.ready(1, "ps-0", "worker-0")
    crew.wait_attempt("worker-0", 1, State.READY)
    wait_for(lambda: crew.status("worker-0").message == "waits for worker-1", "its message")
    assert not crew.volume.start("r1", "worker-0").exists()
    crew.ready(1, "worker-1")
    for task in TASKS:
        crew.wait_attempt(task, 1)
    assert "worker-1 restarted" in crew.status("ps-0").earlier[0].reason
    assert crew.status("worker-1").earlier[0].reason == "exit code 3"


def test_the_others_continue_without_a_worker(crew: Crew) -> None:
    crew.begin(on_failure=OnFailure.CONTINUE)
    crew.tell("worker-1", "sys.exit(3)")
    crew.wait_state("worker-1", State.FAILED)
    crew.tell("worker-0", "pass")
    for task in ("worker-0", "ps-0"):
        crew.wait_state(task, State.SUCCEEDED)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_restarted_agent_restarts_its_program(crew: Crew, number: signal.Signals) -> None:
    crew.begin(**RESTART)
    crew.agents["worker-1"].send_signal(number)
    crew.agents["worker-1"].wait(timeout=PATIENCE_S)
    assert crew.status("worker-1").state is State.TRAINING
    crew.ready(1, "worker-1")
    crew.agent("worker-1")
    crew.wait_attempt("worker-1", 1)
    (earlier,) = crew.status("worker-1").earlier
    assert earlier.cause is Cause.NODE_LOST
    assert (crew.status("worker-0").attempt, crew.status("worker-0").state.ended) == (0, False)


SAVE = """
def save(*_):
    wait(path("seen"))
    alive = os.path.exists(f"/proc/{open(path('ps')).read()}")
    say("event", f'message="the ps is there: {alive}"')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open(path("armed"), "w")
time.sleep(60)
"""
TELL = "open(path('part'), 'w').write(str(os.getpid())); os.rename(path('part'), path('ps'))\n"


@pytest.mark.parametrize("at_once", [False, True])
def test_a_service_stays_until_the_others_have_saved_unless_the_run_is_killed(
    crew: Crew, at_once: bool
) -> None:
    crew.begin()
    crew.tell("ps-0", f"{TELL}time.sleep(60)")
    wait_for((crew.scripts / "ps").exists, "the ps is known")
    crew.tell("worker-0", SAVE)
    wait_for((crew.scripts / "armed").exists, "the chief is armed")
    cancel(crew.volume, "r1", "enough")
    if at_once:
        kill(crew.volume, "r1", "at once")
    else:
        crew.wait_for_looks("ps-0")
        (crew.scripts / "seen").touch()
    for task in TASKS:
        crew.wait_state(task, State.CANCELLED)
    saved = "the ps is there: True" in str(crew.records("worker-0"))
    assert saved is not at_once
