"""How a task ends: by the statuses of all tasks, and by the end of its program."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import Request, RunSpec, TaskStatus
from lab.protocol.volume.states import Cause, State
from lab.task.agent.outcomes import (
    LOCALHOST,
    LONGER,
    NO_INTERNET,
    SHARED_MEMORY,
    ProgramEnd,
    TaskOutcome,
    failed,
    is_stalled,
    must_progress,
    outcome,
    peer_failure,
    progress,
    stopped,
)
from lab.task.agent.starts import STOPPED
from tests.support.specs import changed

TASKS = ("ps-0", "worker-0", "worker-1")
REQUEST = Request(
    "r1",
    RunSpec("async", "mnist_async.py", stall_s=3.0, ready_s=10.0, max_time_s=600.0),
    {"ps": ["a:1"], "worker": ["b:1", "c:1"]},
)
OWN = {"own": True}


def states(state: State = State.TRAINING, **others: State | TaskStatus) -> dict[str, TaskStatus]:
    found = {task: TaskStatus(task, state) for task in TASKS}
    for name, other in others.items():
        task = name.replace("_", "-")
        found[task] = other if isinstance(other, TaskStatus) else TaskStatus(task, other)
    return found


def ended(task: str, state: State, at: float | None = None, reason: str = "x") -> TaskStatus:
    return TaskStatus(task, state, ended_unix=at, reason=reason)


FAILED = ended("worker-1", State.FAILED, 9.0)
STARTING = State.STARTING
DONE = State.SUCCEEDED
LATE, STALLED, OVER = {"awaited_s": 10.0}, {"unchanged_s": 3.0}, {"elapsed_s": 600.0}


@pytest.mark.parametrize(
    ("task", "others", "times", "state", "reason"),
    [
        ("ps-0", {}, {}, None, ""),
        ("worker-0", {}, {}, None, ""),
        # The others see that this task has ended.
        ("worker-1", {"worker_1": ended("worker-1", State.LOST)}, {}, "lost", "x"),
        # Another task has ended.
        ("worker-0", {"worker_1": FAILED}, {}, "cancelled", "worker-1 failed: x"),
        ("worker-0", {"worker_1": DONE}, {}, None, ""),
        ("ps-0", {"worker_0": DONE}, {}, None, ""),
        ("ps-0", {"worker_0": DONE, "worker_1": DONE}, {}, "succeeded", ""),
        # The start takes too long.
        ("worker-0", {"worker_0": STARTING}, {}, None, ""),
        ("worker-0", {"worker_0": STARTING}, LATE, "failed", "not ready within 10 s"),
        ("worker-1", {"worker_0": STARTING}, LATE, None, ""),
        # The run makes no progress.
        ("worker-0", {}, STALLED, "failed", "no new global step for 3 s, no step was made"),
        ("worker-1", {}, STALLED, None, ""),
        ("worker-1", {"worker_0": DONE}, STALLED, "failed", "no new global step for 3 s"),
        ("ps-0", {}, STALLED, None, ""),
        # The time is over: the agents cancel the run.
        ("worker-0", {}, OVER | STALLED, None, ""),
        ("worker-0", {"worker_1": FAILED}, OVER, "cancelled", "worker-1 failed: x"),
    ],
)
def test_a_task_ends_because_of_the_statuses(
    task: str,
    others: dict[str, State | TaskStatus],
    times: dict[str, float],
    state: str | None,
    reason: str,
) -> None:
    none = {"elapsed_s": 0.0, "awaited_s": 0.0, "unchanged_s": 0.0}
    found = outcome(REQUEST, task, states(**others), **(none | times))
    assert (found and found.state) == state
    if found is not None:
        assert found.reason.startswith(reason)


FAILED_CHIEF, LATER = ended("worker-0", State.FAILED, 8.0), ended("worker-0", State.FAILED, 10.0)
CONSEQUENCE = replace(FAILED_CHIEF, cause=Cause.PEER_LOST)
LOST = ended("worker-1", State.LOST, 9.0)
LOST_CHIEF = ended("worker-0", State.LOST, 1.0)
CANCELLED = ended("worker-0", State.CANCELLED, 9.0)
CARRIED_ALONG = replace(CANCELLED, reason="worker-1 failed: x", cause=Cause.PEER_LOST)
GO_ON, ALL_END = OnFailure.CONTINUE, OnFailure.FAIL


@pytest.mark.parametrize(
    ("task", "others", "on_failure", "reason"),
    [
        ("worker-0", {"worker_1": FAILED}, ALL_END, "worker-1 failed: x"),
        ("worker-1", {"worker_1": FAILED}, ALL_END, None),
        ("worker-0", {"worker_1": FAILED}, GO_ON, None),
        ("worker-1", {"worker_0": LATER}, GO_ON, "worker-0 failed: x"),  # it needs the chief
        ("ps-0", {"worker_0": LOST_CHIEF}, ALL_END, "worker-0 was lost: x"),
        ("ps-0", {"worker_0": CANCELLED}, ALL_END, "worker-0 was cancelled: x"),
        ("ps-0", {"worker_0": CARRIED_ALONG}, ALL_END, "worker-1 failed: x"),
        ("ps-0", {"worker_1": FAILED, "worker_0": LOST_CHIEF}, ALL_END, "worker-1 failed: x"),
        ("ps-0", {"worker_1": FAILED, "worker_0": FAILED_CHIEF}, ALL_END, "worker-0 failed: x"),
        ("ps-0", {"worker_1": FAILED, "worker_0": LATER}, ALL_END, "worker-1 failed: x"),
        ("ps-0", {"worker_1": FAILED, "worker_0": CONSEQUENCE}, ALL_END, "worker-1 failed: x"),
        ("ps-0", {"worker_1": LOST, "worker_0": CONSEQUENCE}, ALL_END, "worker-1 was lost: x"),
    ],
)
def test_a_task_ends_with_another_one_that_it_needs(
    task: str, others: dict[str, TaskStatus], on_failure: OnFailure, reason: str | None
) -> None:
    assert peer_failure(changed(REQUEST, on_failure=on_failure), task, states(**others)) == reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [("", ""), ("waits for ps-0", ": waits for ps-0"), (STOPPED, ": is stopped (SIGSTOP)")],
)
def test_a_late_task_names_what_it_does(message: str, reason: str) -> None:
    seen = states(worker_0=TaskStatus("worker-0", State.STARTING, message=message))
    times = {"elapsed_s": 0.0, "awaited_s": 10.0, "unchanged_s": 0.0}
    for request, fix in (
        (REQUEST, "--stall=20s"),
        (replace(REQUEST, autorun="it"), 'LAB_RUN="async --stall=20s"'),
    ):
        late = f"not ready within 10 s ({fix} allows more){reason}"
        found = outcome(request, "worker-0", seen, **times)
        assert found == TaskOutcome(State.FAILED, late, Cause.TIME_OUT)


def workers(
    *steps: int | None, signs: tuple[int, int] = (0, 0), messages: tuple[str, str] = ("", "")
) -> dict[str, TaskStatus]:
    return states() | {
        f"worker-{index}": TaskStatus(
            f"worker-{index}",
            State.TRAINING,
            global_step=step,
            signs_of_life=signs[index],
            message=messages[index],
        )
        for index, step in enumerate(steps)
    }


def with_ended(step: int | None, statuses: dict[str, TaskStatus]) -> dict[str, TaskStatus]:
    """The same after the end of worker-0, which had reached a step."""
    return statuses | {"worker-0": TaskStatus("worker-0", DONE, global_step=step)}


NO_STEP = workers(None, None)


@pytest.mark.parametrize(
    ("request_has", "before", "after", "is_progress"),
    [
        ({}, workers(6, 5), workers(7, 5), True),
        ({}, workers(6, 5), workers(6, 6), False),
        ({}, workers(9, 9), workers(3, 3), True),  # it was set back
        # Of those that have not ended; it had more steps before a resume.
        ({}, with_ended(900, workers(0, 100)), with_ended(900, workers(0, 200)), True),
        (OWN, workers(3, None), workers(3, None, signs=(1, 0)), False),  # the steps count
        (OWN, NO_STEP, workers(None, None, signs=(0, 1)), True),
        (OWN, NO_STEP, NO_STEP, False),
        (OWN, NO_STEP, workers(1, None), True),
        (OWN, NO_STEP, with_ended(None, NO_STEP), True),
        (OWN, NO_STEP, NO_STEP | {"worker-1": TaskStatus("worker-1", State.READY)}, True),
    ],
)
def test_what_is_progress(
    request_has: dict[str, object],
    before: dict[str, TaskStatus],
    after: dict[str, TaskStatus],
    is_progress: bool,
) -> None:
    request = changed(REQUEST, **request_has)
    assert (progress(request, before) != progress(request, after)) is is_progress


@pytest.mark.parametrize(
    ("request_has", "statuses", "must"),
    [
        ({}, states(State.READY), True),
        ({}, states(State.READY, worker_1=State.STARTING), False),
        ({}, workers(3, None) | {"worker-1": TaskStatus("worker-1", State.STARTING)}, True),
        (OWN, states(State.STARTING), True),
    ],
)
def test_a_program_that_counts_its_steps_makes_none_before_all_are_ready(
    request_has: dict[str, object], statuses: dict[str, TaskStatus], must: bool
) -> None:
    assert must_progress(changed(REQUEST, **request_has), statuses) is must


@pytest.mark.parametrize(("chief", "must"), [(DONE, False), (State.TRAINING, True)])
def test_an_evaluator_may_sleep_after_the_training(chief: State, must: bool) -> None:
    request = replace(REQUEST, cluster={"chief": ["a:1"], "evaluator": ["b:1"]})
    evaluator = TaskStatus("evaluator-0", State.TRAINING, global_step=400)
    statuses = {"chief-0": TaskStatus("chief-0", chief), "evaluator-0": evaluator}
    assert must_progress(request, statuses) is must


def test_without_a_limit_nothing_is_a_stall() -> None:
    assert is_stalled(REQUEST, "worker-0", states(), 3.0)
    assert not is_stalled(REQUEST, "worker-0", states(), 2.9)
    assert not is_stalled(changed(REQUEST, stall_s=0.0), "worker-0", states(), 1e9)


LOCAL = ("serves at grpc://localhost:1", "waits")
REACHABLE = ("serves at grpc://tf1:1", "waits")


@pytest.mark.parametrize(
    ("request_has", "statuses", "last", "tasks", "hint"),
    [
        ({}, workers(1234, None, messages=("", "waits for the chief")), "the last one was 1,234",
         "worker-0 made its last step at 1,234, worker-1 waits for the chief", ""),
        ({}, workers(6, 6, messages=("", STOPPED)), "the last one was 6",
         "worker-1 is stopped (SIGSTOP), worker-0 made its last step at 6", ""),
        ({}, with_ended(7, workers(7, 6)), "the last one was 6",
         "worker-1 made its last step at 6", ""),
        ({}, NO_STEP, "no step was made", "worker-0 made no step, worker-1 made no step", ""),
        (OWN, workers(None, None, messages=("", "waits for worker-0")), "",
         "worker-0 is silent, worker-1 waits for worker-0", ""),
        (OWN, NO_STEP, "", "worker-0 is silent, worker-1 is silent", LONGER),
        (OWN, workers(None, None, messages=LOCAL), "", f"worker-0 {LOCAL[0]}, worker-1 waits",
         LOCALHOST),
        (OWN, workers(None, None, messages=REACHABLE), "",
         f"worker-0 {REACHABLE[0]}, worker-1 waits", ""),
    ],
)  # fmt: skip
def test_a_stalled_run_names_the_waiting_tasks(
    request_has: dict[str, object],
    statuses: dict[str, TaskStatus],
    last: str,
    tasks: str,
    hint: str,
) -> None:
    missing = f"no new global step for 3 s, {last}" if last else "no sign of life for 3 s"
    reason = f"{missing} ({tasks})" + (f"; {hint}" if hint else "")
    reporter = "worker-1" if statuses["worker-0"].state is DONE else "worker-0"
    times = {"elapsed_s": 0.0, "awaited_s": 0.0, "unchanged_s": 3.0}
    found = outcome(changed(REQUEST, **request_has), reporter, statuses, **times)
    assert found == TaskOutcome(State.FAILED, reason, Cause.STALLED)


ERROR = "a.py:3: ValueError: bad"
LOSS, CODE, SIGNAL = Cause.PEER_LOST, Cause.EXIT_CODE, Cause.SIGNAL


@pytest.mark.parametrize(
    ("end", "reason", "cause"),
    [
        (ProgramEnd(3), "exit code 3", CODE),
        (ProgramEnd(1, error_line=ERROR), ERROR, CODE),
        (ProgramEnd(2, error_line=ERROR), f"exit code 2: {ERROR}", CODE),
        (ProgramEnd(1, last_line="no data"), "exit code 1; its last line: no data", CODE),
        (ProgramEnd(1, lost_contact=True), "exit code 1", LOSS),
        (ProgramEnd(1, out_of_memory=True, host_out_of_memory=True), "exit code 1", CODE),
        (ProgramEnd(-9), "killed by SIGKILL", SIGNAL),
        (
            ProgramEnd(-7),
            f"killed by SIGBUS, probably out of shared memory: {SHARED_MEMORY}",
            SIGNAL,
        ),
        (ProgramEnd(-9, last_line="bye"), "killed by SIGKILL", SIGNAL),
        (ProgramEnd(-64), "killed by SIGRTMAX", SIGNAL),
        (ProgramEnd(-9, out_of_memory=True), "killed: out of memory", Cause.OUT_OF_MEMORY),
        (
            ProgramEnd(-9, host_out_of_memory=True),
            "killed by SIGKILL, probably out of memory: the kernel has killed a process for that",
            SIGNAL,
        ),
        (ProgramEnd(-15, host_out_of_memory=True), "killed by SIGTERM", SIGNAL),
        (
            ProgramEnd(-9, host_out_of_memory=True, fault="kill ps-0"),
            "killed by SIGKILL (the injected fault `kill ps-0`)",
            SIGNAL,
        ),
        (
            ProgramEnd(143, error_line=ERROR, fault="stop ps-0"),
            "exit code 143 (the injected fault `stop ps-0`)",
            CODE,
        ),
    ],
)
def test_a_failed_program_has_a_reason(end: ProgramEnd, reason: str, cause: Cause) -> None:
    assert failed(end) == TaskOutcome(State.FAILED, reason, cause)


def test_a_known_error_has_a_fix_at_the_end_of_its_reason() -> None:
    found = failed(ProgramEnd(1, error_line="a.py:3: gaierror: No address."))
    assert (found.reason, found.fix) == (
        f"a.py:3: gaierror: No address; {NO_INTERNET}",
        NO_INTERNET,
    )


BY_ITSELF = TaskOutcome(State.FAILED, ERROR, Cause.EXIT_CODE)
PEER = TaskOutcome(State.CANCELLED, "worker-1 failed: y", Cause.PEER_LOST)
SAME = replace(PEER, reason=f"worker-1 failed: {ERROR}")
ENDED = ProgramEnd(1, error_line=ERROR)
HAS_LOST = replace(FAILED, cause=Cause.PEER_LOST)


@pytest.mark.parametrize(
    ("decided", "end", "other", "is_own"),
    [
        (SAME, ENDED, FAILED, True),
        (SAME, ProgramEnd(-15, error_line=ERROR), FAILED, False),
        (PEER, ENDED, FAILED, False),
        (replace(SAME, cause=Cause.INTERRUPTED), ENDED, FAILED, False),
        # The other task has only lost this one.
        (PEER, ENDED, HAS_LOST, True),
        (PEER, ProgramEnd(-15, error_line=ERROR), HAS_LOST, True),
        (PEER, ProgramEnd(-15), HAS_LOST, False),
        (PEER, replace(ENDED, lost_contact=True), HAS_LOST, False),
    ],
)
def test_the_own_error_of_a_stopped_program_counts_unless_it_is_a_consequence(
    decided: TaskOutcome, end: ProgramEnd, other: TaskStatus, *, is_own: bool
) -> None:
    found = stopped(decided, BY_ITSELF, end, states(worker_1=other))
    assert found == (BY_ITSELF if is_own else decided)
