"""When a task may start and train, moments, and the effect of a failure on all tasks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from lab.base.errors import InputError
from lab.cluster.config.validation import check_joins, check_start, parse_start
from lab.protocol.experiments.experiment import OnFailure, Policy, parse_policy
from lab.protocol.experiments.faults import Trigger, parse_trigger
from lab.protocol.volume import Request, RunSpec, TaskStatus
from lab.protocol.volume.states import Attempt, Cause, State, outcome
from lab.task.agent.starts import (
    STOPPED,
    awaited_task,
    is_late,
    is_steady,
    joins_at,
    may_start,
    may_start_again,
    may_train,
    peer_restarted,
    trains,
    waits_for,
    waits_for_time,
)
from tests.support.specs import changed

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1", "tf4:1"]}
TASKS = ("ps-0", "worker-0", "worker-1", "worker-2")


def request(**more: object) -> Request:
    asked = Request("r1", RunSpec("async", "mnist_async.py"), CLUSTER)
    return changed(asked, **more)


def states(state: State = State.READY, **others: State | TaskStatus) -> dict[str, TaskStatus]:
    found = {task: TaskStatus(task, state) for task in TASKS}
    for name, other in others.items():
        task = name.replace("_", "-")
        found[task] = other if isinstance(other, TaskStatus) else TaskStatus(task, other)
    return found


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_trigger, "10s", Trigger(seconds=10)),
        (parse_trigger, "after 1h1m1s", Trigger(seconds=3661)),
        (parse_trigger, "after 1m30s", Trigger(seconds=90)),
        (parse_trigger, "0.5s", Trigger(seconds=0.5)),
        (parse_trigger, "after 20,900 steps", Trigger(steps=20_900)),
        (parse_trigger, "after 20900 steps", Trigger(steps=20_900)),
        (parse_trigger, "1 step", Trigger(steps=1)),
        (parse_policy, "fail", Policy()),
        (parse_policy, "restart", Policy(OnFailure.RESTART, 3)),
        (parse_policy, "restart:7", Policy(OnFailure.RESTART, 7)),
        (parse_policy, "continue", Policy(OnFailure.CONTINUE)),
    ],
)
def test_moments_and_policies_round_trip(
    parse: Callable[[str], object], text: str, value: object
) -> None:
    assert parse(text) == value
    assert parse(str(value)) == value


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


AT_STEP = {"start": {"worker-2": "after 500 steps"}}
AT_TIME = {"start": {"worker-2": "10s"}}
SYNC = {"experiment": "sync"}
OWN = {"own": True}
GANG = {"gang": True}


def training(step: int) -> TaskStatus:
    return TaskStatus("worker-0", State.TRAINING, global_step=step)


def again(task: str, step: int | None = None, state: State = State.STARTING) -> TaskStatus:
    ended = Attempt("exit code 3", None, None, 9.0, step)
    return TaskStatus(task, state, attempt=1, earlier=(ended,))


NEVER_STEPPED, STEPPED = again("worker-2"), again("worker-2", 7)
ALL_AGAIN = {task.replace("-", "_"): again(task) for task in TASKS}


@pytest.mark.parametrize(
    ("request_has", "others", "elapsed_s", "may", "what_it_waits_for"),
    [
        ({}, {}, 0.0, True, ""),
        (AT_TIME, {}, 9.9, False, "waits: it starts 10s after the others"),
        (AT_TIME, {}, 10.0, True, ""),
        (AT_TIME, {"worker_2": NEVER_STEPPED}, 9.9, False, "waits: it starts 10s after the others"),
        (AT_TIME, {"worker_2": STEPPED}, 9.9, True, ""),
        (AT_STEP | SYNC, {}, 0.0, True, ""),  # so that it is ready at its step
        (AT_STEP | OWN, {}, 0.0, False, "waits: it starts after 500 steps"),
        (AT_STEP | OWN, {"worker_0": training(500)}, 0.0, True, ""),
        (AT_STEP | OWN, {"worker_2": STEPPED}, 0.0, True, ""),
        ({}, {"worker_2": NEVER_STEPPED}, 0.0, True, ""),
        (GANG, {"worker_2": NEVER_STEPPED}, 0.0, False, "waits for ps-0, worker-0, worker-1"),
        (GANG, ALL_AGAIN, 0.0, True, ""),
        (GANG, ALL_AGAIN | {"worker_0": State.PENDING}, 0.0, True, ""),
        (GANG, ALL_AGAIN | {"worker_0": State.READY}, 0.0, False, "waits for worker-0"),
        (GANG, {"worker_2": NEVER_STEPPED, "worker_0": State.SUCCEEDED}, 0.0, True, ""),
    ],
)
def test_when_the_program_of_worker_2_may_be_started(
    request_has: dict[str, object],
    others: dict[str, State | TaskStatus],
    elapsed_s: float,
    may: bool,
    what_it_waits_for: str,
) -> None:
    asked, seen = request(**request_has), states(**others)
    assert may_start(asked, "worker-2", seen, elapsed_s) is may
    if not may:
        assert waits_for(asked, "worker-2", seen, elapsed_s) == what_it_waits_for
    for_time = what_it_waits_for.endswith("10s after the others")
    assert waits_for_time(asked, "worker-2", seen, elapsed_s) is for_time


@pytest.mark.parametrize(
    ("request_has", "task", "others", "may", "joins"),
    [
        ({}, "worker-2", {}, True, None),
        ({}, "worker-2", {"worker_0": State.STARTING}, False, None),
        ({}, "worker-2", {"worker_0": State.LOST}, True, None),
        (AT_STEP, "worker-0", {"worker_2": State.STARTING}, True, None),  # it is not awaited
        (AT_STEP | SYNC, "worker-2", {}, False, None),
        (AT_STEP | SYNC, "worker-2", {"worker_0": training(499)}, False, None),
        (AT_STEP | SYNC, "worker-2", {"worker_0": training(500)}, True, None),
        # A program of async checks its step itself.
        (AT_STEP, "worker-2", {"worker_0": State.STARTING}, False, 500),
        (AT_STEP, "worker-2", {}, True, 500),
        (AT_STEP, "worker-2", {"worker_2": NEVER_STEPPED}, True, 500),
        (AT_STEP, "worker-2", {"worker_2": again("worker-2", 612, State.READY)}, True, None),
        (AT_STEP | OWN, "worker-2", {}, False, None),
        (AT_TIME, "worker-2", {}, False, None),
    ],
)
def test_when_a_task_may_train(
    request_has: dict[str, object],
    task: str,
    others: dict[str, State | TaskStatus],
    may: bool,
    joins: int | None,
) -> None:
    asked, seen = request(**request_has), states(**others)
    assert may_train(asked, task, seen, 0.0) is may
    assert joins_at(asked, task, seen) == joins


STARTING, PENDING = State.STARTING, State.PENDING
STOPPED_START = TaskStatus("worker-1", STARTING, message=STOPPED)


@pytest.mark.parametrize(
    ("start", "others", "awaited"),
    [
        ({}, {}, None),
        ({}, {"worker_0": STARTING, "worker_1": STARTING}, "worker-0"),
        ({}, {"worker_0": STARTING, "ps_0": STARTING}, "ps-0"),
        ({}, {"ps_0": STARTING, "worker_1": STOPPED_START}, "worker-1"),
        ({}, {"worker_1": STARTING, "worker_2": STARTING}, "worker-1"),
        ({}, {"worker_1": STARTING, "worker_2": PENDING}, None),  # its agent may be missing
        ({"ps-0": "60s"}, {"worker_0": STARTING, "ps_0": PENDING}, None),
        # A task that is not needed, by a step or by a time, delays no other.
        ({"worker-2": "1h"}, {"worker_0": STARTING, "worker_2": PENDING}, "worker-0"),
        ({"worker-2": "after 5 steps"}, {"worker_0": STARTING, "worker_2": PENDING}, "worker-0"),
    ],
)
def test_one_task_is_awaited_and_late_after_a_while(
    start: dict[str, str], others: dict[str, State], awaited: str | None
) -> None:
    asked, seen = request(ready_s=10.0, start=start), states(**others)
    assert awaited_task(asked, seen) == awaited
    for task in TASKS:
        assert is_late(asked, task, seen, 10.0) is (task == awaited)
        assert not is_late(asked, task, seen, 9.9)
        assert not is_late(changed(asked, ready_s=0.0), task, seen, 1e9)


@pytest.mark.parametrize(
    ("others", "faults", "steady"),
    [
        ({}, (), False),
        ({"worker_0": State.TRAINING}, (), True),
        ({"worker_0": State.TRAINING}, ("kill ps-0",), False),
        ({"worker_0": State.TRAINING, "worker_1": State.SUCCEEDED}, (), False),
    ],
)
def test_a_training_is_steady_until_a_task_ends(
    others: dict[str, State], faults: tuple[str, ...], steady: bool
) -> None:
    assert is_steady(request(faults=faults), states(**others)) is steady


ECHO = "worker-1 restarted, so all tasks restart together"
ONCE = ("exit code 3", Cause.EXIT_CODE)
NEW = TaskStatus("worker-1", State.STARTING, started_unix=5.0)


@pytest.mark.parametrize(
    ("request_has", "task", "done", "may"),
    [
        (GANG, "worker-1", False, True),
        (GANG, "worker-1", True, True),
        (GANG | {"horovod": True}, "worker-1", True, False),  # its ring lacks a rank
        (GANG, "worker-0", False, True),
        (GANG, "worker-0", True, False),  # the gradients of the ended one would not arrive
        ({}, "worker-0", True, True),
        (GANG, "ps-0", True, False),
    ],
)
def test_a_gang_with_a_succeeded_task_does_not_restart_a_required_one(
    request_has: dict[str, object], task: str, *, done: bool, may: bool
) -> None:
    asked = request(**request_has, on_failure=OnFailure.RESTART, restarts=1)
    seen = states(worker_2=State.SUCCEEDED) if done else states()
    assert may_start_again(asked, seen[task], seen, *ONCE) == may
    assert not may_start_again(asked, again(task), seen, *ONCE)


def restarted(task: str, ended_unix: float, reason: str) -> TaskStatus:
    attempt = Attempt(reason, None, None, ended_unix, None)
    began = ended_unix + 5.0
    return TaskStatus(task, State.STARTING, attempt=1, earlier=(attempt,), started_unix=began)


KEY = "a.py:3: KeyError: 'x'"
RESET = "a.py:9: ConnectionError: Connection reset by peer"
MISSING = "a.py:1: ModuleNotFoundError: No module named 'y'"
KEY_BEFORE = restarted("worker-1", 10.0, KEY)
TRAINS = replace(KEY_BEFORE, state=State.TRAINING)
REFUSED = "exit code 2: a.py: error: unrecognized arguments: --x"


@pytest.mark.parametrize(
    ("mine", "reason", "cause", "may"),
    [
        (NEW, KEY, Cause.EXIT_CODE, True),
        (KEY_BEFORE, KEY, Cause.EXIT_CODE, False),
        (KEY_BEFORE, "a.py:4: KeyError: 'x'", Cause.EXIT_CODE, True),
        (TRAINS, KEY, Cause.EXIT_CODE, True),
        (KEY_BEFORE, KEY, Cause.PEER_LOST, True),
        (KEY_BEFORE, KEY, Cause.SIGNAL, True),
        (restarted("worker-1", 10.0, RESET), RESET, Cause.EXIT_CODE, True),
        (NEW, MISSING, Cause.EXIT_CODE, False),
        (NEW, "a.py:2: SyntaxError: invalid syntax", Cause.EXIT_CODE, False),
        (NEW, REFUSED, Cause.EXIT_CODE, False),
        (NEW, "FATAL Flags parsing error: Unknown flag 'x'", Cause.EXIT_CODE, False),
        (NEW, "absl.flags._exceptions.UnrecognizedFlagError: x", Cause.EXIT_CODE, False),
        (replace(NEW, state=State.TRAINING), MISSING, Cause.EXIT_CODE, True),
        (NEW, "a.py:1: FileNotFoundError: 'exit code 2'", Cause.EXIT_CODE, True),
    ],
)
def test_a_restart_is_only_for_what_it_can_cure(
    mine: TaskStatus, reason: str, cause: Cause, *, may: bool
) -> None:
    asked = request(on_failure=OnFailure.RESTART, restarts=3)
    assert may_start_again(asked, mine, states(worker_1=mine), reason, cause) == may


@pytest.mark.parametrize(
    ("other", "may"),
    [
        (KEY_BEFORE, False),  # this task was killed before it failed itself
        (restarted("worker-1", 17.0, KEY), True),  # both have failed for the first time
        (TRAINS, True),
    ],
)
def test_a_gang_counts_the_failures_of_all_its_tasks(other: TaskStatus, *, may: bool) -> None:
    asked = request(**GANG, on_failure=OnFailure.RESTART, restarts=3)
    mine = restarted("worker-0", 10.5, ECHO)
    seen = states(worker_0=mine, worker_1=other)
    assert may_start_again(asked, mine, seen, KEY, Cause.EXIT_CODE) == may


FIRST, ECHOED = restarted("worker-1", 10.0, "exit code 3"), restarted("worker-0", 10.5, ECHO)


@pytest.mark.parametrize(
    ("others", "gang", "reason"),
    [
        ({}, True, None),
        ({"worker_1": FIRST}, True, ECHO),
        ({"worker_1": FIRST, "worker_0": ECHOED}, True, ECHO),
        ({"worker_0": ECHOED}, True, ECHO),  # what it went along with is not seen
        ({"worker_1": FIRST, "worker_0": restarted("worker-0", 10.5, "exit code 1")}, True, ECHO),
        ({"worker_1": FIRST, "ps_0": again("ps-0")}, True, None),  # it has restarted, too
        ({"worker_1": FIRST}, False, None),
    ],
)
def test_a_gang_names_the_first_that_was_started_again(
    others: dict[str, TaskStatus], gang: bool, reason: str | None
) -> None:
    asked = request(gang=gang, on_failure=OnFailure.RESTART, restarts=1)
    assert peer_restarted(asked, "ps-0", states(**others)) == reason


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("worker-0: 5s; ps-0: 1s; worker-2: after 20,900 steps;", ""),
        ("worker-9: 10s", r'no task worker-9; did you mean "worker-\d"\?'),
        ("x: 10s", "no task x; known: ps-0, worker-0"),
        (
            "worker-0: after 5 steps",
            "the others cannot make a step without worker-0; give it a time",
        ),
        ("ps-0: after 5 steps", "the others cannot make a step without ps-0; give it a time"),
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
        ({"worker-2": "after 5,001 steps"}, 5_000, "only 5,000 steps, not 5,001; use a smaller"),
    ],
)
def test_the_others_reach_the_step_of_a_worker(
    start: dict[str, str], all_steps: int, never: str
) -> None:
    refused = pytest.raises(InputError, match=never) if never else contextlib.nullcontext()
    with refused:
        check_joins(start, ["worker-0", "worker-1", "worker-2"], own_steps=100, all_steps=all_steps)


CONSEQUENCE = {
    "worker_0": TaskStatus("worker-0", State.FAILED, cause=Cause.PEER_LOST, ended_unix=1.0)
}


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
        ("fail", CONSEQUENCE, State.FAILED, ["worker-0"]),
        ("fail", CONSEQUENCE | {"worker_1": State.FAILED}, State.FAILED, ["worker-1", "worker-0"]),
        ("fail", CONSEQUENCE | {"worker_1": State.LOST}, State.FAILED, ["worker-1", "worker-0"]),
    ],
)
def test_the_outcome_is_the_worst_that_counts(
    on_failure: str, others: dict[str, State | TaskStatus], wanted: State, guilty: list[str]
) -> None:
    asked = request(on_failure=OnFailure(on_failure))
    assert outcome(asked.spec, states(State.SUCCEEDED, **others)) == (wanted, guilty)


def test_a_run_without_a_task_that_counts_does_not_succeed() -> None:
    asked = request(on_failure=OnFailure.CONTINUE)
    optional = {"worker-1": TaskStatus("worker-1", State.FAILED)}
    assert outcome(asked.spec, optional) == (State.FAILED, ["worker-1"])
    assert outcome(asked.spec, {})[0] is not State.SUCCEEDED


@pytest.mark.parametrize(
    ("task", "framework", "own", "of_the_run", "expected"),
    [
        ("worker-1", "tensorflow", None, 5, False),  # still waits for the chief
        ("worker-1", "tensorflow", 3, 5, True),
        ("ps-0", "tensorflow", None, None, False),
        ("ps-0", "tensorflow", None, 5, True),
        ("worker-1", "torch", None, 5, True),  # perhaps only rank 0 reports steps
        ("worker-1", "torch", None, None, False),
    ],
)
def test_a_task_trains_from_its_first_step(
    task: str, framework: str, own: int | None, of_the_run: int | None, expected: bool
) -> None:
    asked = request(framework=framework)
    status = TaskStatus(task, State.TRAINING, global_step=own)
    assert trains(asked, task, status, of_the_run) is expected
