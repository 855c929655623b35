"""When a task may start and train, moments, and the effect of a failure on all tasks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import pytest

from lab.config.validation import check_joins, check_start, parse_start
from lab.errors import InputError
from lab.experiments.faults import Trigger, parse_trigger
from lab.experiments.policy import OnFailure, Policy, parse_policy
from lab.task.agent.outcomes import may_start_again, peer_restarted
from lab.task.agent.start_barrier import StartBarrier
from lab.volume import Attempt, Request, RunSpec, TaskStatus
from lab.volume.states import State, outcome
from tests.support.specs import changed

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1", "tf4:1"]}
TASKS = ("ps-0", "worker-0", "worker-1", "worker-2")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def request(**more: object) -> Request:
    asked = Request("r1", RunSpec("async", "mnist_async.py"), CLUSTER)
    return changed(asked, **more)


def states(state: State = State.READY, **others: State | TaskStatus) -> dict[str, TaskStatus]:
    found = {task: TaskStatus(task, state) for task in TASKS}
    for name, other in others.items():
        task = name.replace("_", "-")
        found[task] = other if isinstance(other, TaskStatus) else TaskStatus(task, other)
    return found


# ---- moments


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("10s", Trigger(seconds=10)),
        ("after 1h1m1s", Trigger(seconds=3661)),
        ("after 1m30s", Trigger(seconds=90)),
        ("0.5s", Trigger(seconds=0.5)),
        ("after 20,900 steps", Trigger(steps=20_900)),
        ("after 20900 steps", Trigger(steps=20_900)),
        ("1 step", Trigger(steps=1)),
    ],
)
def test_moments_round_trip(text: str, when: Trigger) -> None:
    assert parse_trigger(text) == when
    assert parse_trigger(str(when)) == when


@pytest.mark.parametrize(
    ("parse", "text", "why"),
    [
        *[
            (parse_trigger, text, "is not a start time, such as 10s or `after 500 steps`")
            for text in ("", "10", "after", "-1s", "1,00 steps", "5 stepsx", "s")
        ],
        (parse_start, "worker-1", "TASK: MOMENT"),
        (parse_start, "worker-1: soon", "'soon' is not a start time"),
        *[
            (parse_policy, text, "fail, restart, restart:N")
            for text in ("", "restart:0", "restart:", "stop", "FAIL", "restart:1000")
        ],
    ],
)
def test_what_a_user_writes_wrongly_is_refused(
    parse: Callable[[str], object], text: str, why: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse(text)


# ---- the gate


def test_a_later_task_is_not_awaited_and_joins_at_its_step() -> None:
    asked = request(experiment="sync", start={"worker-2": "after 500 steps"})
    others = StartBarrier(asked, "worker-0")
    late = StartBarrier(asked, "worker-2")
    seen = states(worker_2=State.STARTING)
    assert others.may_train(seen)
    assert late.may_start(seen)  # so that it is ready at its step
    assert not late.may_train(states())
    assert late.waits_for(states()) == "waits: it starts after 500 steps"
    at_499 = states(worker_0=TaskStatus("worker-0", State.TRAINING, global_step=499))
    at_500 = states(worker_0=TaskStatus("worker-0", State.TRAINING, global_step=500))
    assert not late.may_train(at_499)
    assert late.may_train(at_500)


def test_a_self_checking_program_may_train_before_its_step() -> None:
    asked = request(start={"worker-2": "after 500 steps", "worker-1": "10s"})
    late = StartBarrier(asked, "worker-2")
    assert not late.may_train(states(worker_0=State.STARTING))
    assert late.may_train(states())
    assert late.joins_at(states()) == 500
    assert StartBarrier(asked, "worker-1").joins_at(states()) is None
    assert StartBarrier(asked, "worker-0").joins_at(states()) is None
    for step, joins in ((None, 500), (612, None)):  # it ended before it reached its step, or after
        ended = Attempt("exit code 3", None, None, 9.0, step)
        status = TaskStatus("worker-2", State.STARTING, attempt=1, earlier=(ended,))
        assert late.joins_at(states(worker_2=status)) == joins
    own = changed(asked, own=True)
    assert StartBarrier(own, "worker-2").joins_at(states()) is None


def restarted(step: int | None) -> dict[str, TaskStatus]:
    """The statuses when worker-1 has restarted, after an attempt that made this step."""
    ended = Attempt("exit code 3", None, None, 9.0, step)
    return states(worker_1=TaskStatus("worker-1", State.STARTING, attempt=1, earlier=(ended,)))


def test_a_time_delays_the_program_until_it_has_made_a_step() -> None:
    clock = Clock()
    gate = StartBarrier(request(start={"worker-1": "10s"}), "worker-1", clock)
    clock.now = 9.9
    assert not gate.may_start(states())
    assert gate.waits_for(states()) == "waits: it starts 10s after the others"
    assert not gate.may_start(restarted(None))
    assert gate.may_start(restarted(7))
    clock.now = 10.0
    assert gate.may_start(states())


def test_a_program_that_cannot_wait_is_started_at_its_step() -> None:
    gate = StartBarrier(request(own=True, start={"worker-1": "after 500 steps"}), "worker-1")
    assert not gate.may_start(states())
    assert gate.may_start(states(worker_0=TaskStatus("worker-0", State.TRAINING, global_step=501)))
    assert not gate.may_train(restarted(None))
    assert gate.may_train(restarted(7))


def lateness(task: str, seen: dict[str, TaskStatus], seconds: int, **more: object) -> bool:
    clock = Clock()
    gate = StartBarrier(request(ready_s=10.0, **more), task, clock)
    found = False
    for _ in range(seconds):
        clock.now += 1.0
        found = gate.is_late(seen)
    return found


def test_only_the_awaited_task_is_late() -> None:
    seen = states(worker_0=State.STARTING, worker_1=State.STARTING)
    assert [lateness(task, seen, 10) for task in TASKS] == [False, True, False, False]
    assert not lateness("worker-0", seen, 9)
    seen = states(State.STARTING)
    assert [lateness(task, seen, 10) for task in TASKS] == [True, False, False, False]


@pytest.mark.parametrize(
    ("others", "more", "late"),
    [
        ({"worker_0": State.STARTING}, {}, True),
        ({"worker_0": State.STARTING, "ps_0": State.PENDING}, {"start": {"ps-0": "60s"}}, False),
        ({}, {}, False),
        # A task that is not needed, by a step or by a time, delays no other.
        *[
            (
                {"worker_0": State.STARTING, "worker_2": State.PENDING},
                {"start": {"worker-2": start}},
                True,
            )
            for start in ("1h", "after 5 steps")
        ],
    ],
)
def test_no_task_is_late_before_a_later_start_or_when_ready(
    others: dict[str, State], more: dict[str, object], late: bool
) -> None:
    seen = states(**others)
    assert [lateness(task, seen, 50, **more) for task in TASKS] == [False, late, False, False]


def test_a_stopped_agent_declares_no_task_late() -> None:
    clock = Clock()
    gate = StartBarrier(request(ready_s=10.0), "ps-0", clock)
    clock.now = 3600.0
    assert not gate.is_late(states(State.STARTING))


def test_a_gang_restart_waits_for_all_old_programs() -> None:
    gate = StartBarrier(request(gang=True), "worker-0")
    mine = TaskStatus("worker-0", State.STARTING, attempt=1)
    assert not gate.may_start(states(State.TRAINING, worker_0=mine))
    again = {task: TaskStatus(task, State.STARTING, attempt=1) for task in TASKS}
    assert gate.may_start(again)
    assert gate.may_start(again | {"worker-2": TaskStatus("worker-2", State.PENDING)})
    assert StartBarrier(request(), "worker-0").may_start(states(State.TRAINING, worker_0=mine))
    others = {"ps-0": TaskStatus("ps-0", State.READY, attempt=1)}
    waits = gate.waits_for(states(State.TRAINING, worker_0=mine) | others)
    assert waits == "waits for worker-1, worker-2"


@pytest.mark.parametrize(
    ("task", "done", "again"),
    [
        ("worker-1", False, True),
        ("worker-1", True, True),
        ("worker-0", False, True),
        ("worker-0", True, False),  # the gradients of the ended one would not arrive
        ("ps-0", True, False),
    ],
)
def test_a_gang_with_a_succeeded_task_does_not_restart_a_required_one(
    task: str, *, done: bool, again: bool
) -> None:
    asked = request(gang=True, on_failure=OnFailure.RESTART, restarts=1)
    seen = states(worker_2=State.SUCCEEDED) if done else states()
    assert may_start_again(asked, seen[task], seen) == again
    spent = TaskStatus(task, State.TRAINING, attempt=1)
    assert not may_start_again(asked, spent, seen)


def again(task: str, ended_unix: float, reason: str) -> TaskStatus:
    attempt = Attempt(reason, None, None, ended_unix, None)
    return TaskStatus(task, State.STARTING, attempt=1, earlier=(attempt,))


ECHO = "worker-1 restarted, so all tasks restart together"


FIRST, ECHOED = again("worker-1", 10.0, "exit code 3"), again("worker-0", 10.5, ECHO)


@pytest.mark.parametrize(
    ("others", "gang", "attempt", "reason"),
    [
        ({}, True, 0, None),
        ({"worker_1": FIRST}, True, 0, ECHO),
        ({"worker_1": FIRST, "worker_0": ECHOED}, True, 0, ECHO),
        ({"worker_0": ECHOED}, True, 0, ECHO),  # what it went along with is not seen
        ({"worker_1": FIRST, "worker_0": again("worker-0", 10.5, "exit code 1")}, True, 0, ECHO),
        ({"worker_1": FIRST}, True, 1, None),
        ({"worker_1": FIRST}, False, 0, None),
    ],
)
def test_a_gang_names_the_first_that_was_started_again(
    others: dict[str, TaskStatus], gang: bool, attempt: int, reason: str | None
) -> None:
    asked = request(gang=gang, on_failure=OnFailure.RESTART, restarts=1)
    mine = TaskStatus("ps-0", State.TRAINING, attempt=attempt)
    assert peer_restarted(asked, mine, states(**others)) == reason


# ---- schedules, as a user writes them


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("worker-0: 5s; ps-0: 1s; worker-2: after 20,900 steps;", ""),
        ("worker-9: 10s", r"no task 'worker-9'; did you mean 'worker-\d'\?"),
        ("x: 10s", "no task 'x'; use one of ps-0, worker-0"),
        ("worker-0: after 5 steps", "the others make no step without worker-0; give it a time"),
        ("ps-0: after 5 steps", "the others make no step without ps-0; give it a time"),
    ],
)
def test_a_schedule_must_fit_the_cluster(text: str, refused: str) -> None:
    schedule = parse_start(text)
    with pytest.raises(InputError, match=refused) if refused else contextlib.nullcontext():
        check_start(schedule, TASKS)
    assert text.startswith(": ".join(next(iter(schedule.items()))))


@pytest.mark.parametrize(
    ("start", "all_steps", "never"),
    [
        ({"worker-2": "after 200 steps"}, 0, ""),
        ({"worker-2": "after 201 steps"}, 0, "worker-2: the others make only 200 steps, not 201"),
        # One that joins earlier makes steps, too; one that joins at the same step does not.
        ({"worker-1": "after 100 steps", "worker-2": "after 200 steps"}, 0, ""),
        (
            {"worker-1": "after 150 steps", "worker-2": "after 150 steps"},
            0,
            "worker-1: .* 100 steps, not 150",
        ),
        ({"worker-1": "10s", "worker-2": "after 200 steps"}, 0, ""),
        ({"worker-2": "after 5,000 steps"}, 5_000, ""),
        ({"worker-2": "after 5,001 steps"}, 5_000, "only 5,000 steps, not 5,001; give a smaller"),
    ],
)
def test_the_others_reach_the_step_of_a_worker(
    start: dict[str, str], all_steps: int, never: str
) -> None:
    refused = pytest.raises(InputError, match=never) if never else contextlib.nullcontext()
    with refused:
        check_joins(start, ["worker-0", "worker-1", "worker-2"], own_steps=100, all_steps=all_steps)


# ---- the effect of a failure on all tasks


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("fail", Policy()),
        ("restart", Policy(OnFailure.RESTART, 3)),
        ("restart:7", Policy(OnFailure.RESTART, 7)),
        ("continue", Policy(OnFailure.CONTINUE)),
    ],
)
def test_policies_are_read(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy
    assert parse_policy(str(policy)) == policy


@pytest.mark.parametrize(
    ("on_failure", "others", "wanted", "guilty"),
    [
        ("fail", {}, State.SUCCEEDED, []),
        ("fail", {"worker_1": State.FAILED}, State.FAILED, ["worker-1"]),
        ("fail", {"ps_0": State.CANCELLED}, State.SUCCEEDED, []),
        ("continue", {"worker_1": State.FAILED}, State.SUCCEEDED, []),
        ("continue", {"worker_1": State.LOST}, State.SUCCEEDED, []),
        # Its agent was stopped; a cancel by the user ends the chief, too.
        ("continue", {"worker_1": State.CANCELLED}, State.SUCCEEDED, []),
        ("continue", {"worker_0": State.CANCELLED}, State.CANCELLED, ["worker-0"]),
        ("fail", {"worker_1": State.CANCELLED}, State.CANCELLED, ["worker-1"]),
        ("continue", {"worker_0": State.FAILED}, State.FAILED, ["worker-0"]),
        ("continue", {"ps_0": State.FAILED}, State.FAILED, ["ps-0"]),
    ],
)
def test_the_outcome_is_the_worst_that_counts(
    on_failure: str, others: dict[str, State], wanted: State, guilty: list[str]
) -> None:
    asked = request(on_failure=OnFailure(on_failure))
    assert outcome(asked, states(State.SUCCEEDED, **others)) == (wanted, guilty)


def test_the_first_to_fail_is_named_first() -> None:
    seen = states(
        State.CANCELLED,
        worker_1=TaskStatus("worker-1", State.FAILED, ended_unix=7.0),
        worker_2=TaskStatus("worker-2", State.FAILED, ended_unix=5.0),
    )
    assert outcome(request(), seen) == (State.FAILED, ["worker-2", "worker-1"])
