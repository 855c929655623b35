"""The state machine, and the detection of a stalled training."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from lab.task.agent.outcomes import TaskOutcome, failed, same_failure, unshared_directory
from lab.task.agent.output import Output
from lab.task.agent.process import OomKills, cpu_time_s, oom_kills, shared_oom_counters
from lab.task.agent.record_tags import RecordTags
from lab.task.agent.stall_detector import LOCALHOST, LONGER, SignsOfLife, StallDetector
from lab.volume import TaskStatus
from lab.volume.states import (
    FOLLOWS,
    Cause,
    State,
    WrongTransitionError,
    check,
    run_state,
)

ROOT = Path(__file__).parents[2]
WORKERS = ("worker-0", "worker-1")


@pytest.mark.parametrize(("before", "after"), [*product(State, State)])
def test_unknown_transitions_are_refused(before: State, after: State) -> None:
    known = after is before or after in FOLLOWS[before]
    refused = pytest.raises(WrongTransitionError, match=f"{after.value} cannot follow")
    with contextlib.nullcontext() if known else refused:
        check(before, after)


@pytest.mark.parametrize(
    ("of_tasks", "state"),
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
def test_state_of_a_run(of_tasks: str, state: str) -> None:
    assert run_state(map(State, of_tasks.split())) is State(state)


def test_the_architecture_page_has_the_table() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` → \| (.*) \|$", text, re.MULTILINE))
    wanted = {
        state.value: ", ".join(f"`{after.value}`" for after in State if after in FOLLOWS[state])
        or "nothing"
        for state in State
    }
    assert rows == wanted


class Clock:
    """Advances by the steps of a test."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def states(*steps: int | None, **messages: str) -> dict[str, TaskStatus]:
    return {
        task: TaskStatus(
            task, State.TRAINING, global_step=step, message=messages.get(task.replace("-", "_"), "")
        )
        for task, step in zip(WORKERS, steps, strict=True)
    }


def watched(
    patience_s: float, looks: list[dict[str, TaskStatus]], *, counts: bool = False
) -> list[str | None]:
    """The reports of a detector that polls once a second."""
    clock = Clock()
    stall = StallDetector(patience_s, WORKERS, counts=counts, monotonic=clock)
    found = []
    for look in looks:
        clock.now += 1.0
        found.append(stall.check(look))
    return found


def alive(*signs: int, **messages: str) -> dict[str, TaskStatus]:
    """The statuses of a run without a known step."""
    return {
        task: replace(status, signs_of_life=count)
        for (task, status), count in zip(states(None, None, **messages).items(), signs, strict=True)
    }


def with_ended(step: int, others: dict[str, TaskStatus]) -> dict[str, TaskStatus]:
    """The same after the end of worker-0, which had reached a step."""
    return others | {"worker-0": TaskStatus("worker-0", State.SUCCEEDED, global_step=step)}


@pytest.mark.parametrize(
    "looks",
    [
        [states(step, 5) for step in (6, 6, 7, 7, 8, 8)],
        [states(9, 9), states(9, 9), states(3, 3), states(3, 3)],
        # It had more steps before a resume.
        [with_ended(900, states(0, step)) for step in (100, 200, 300, 400)],
        [alive(4, 7), alive(4, 7), alive(5, 7), alive(5, 7), alive(5, 8), alive(5, 8)],
        [alive(0, 0), alive(0, 0), alive(0, 0) | {"worker-1": TaskStatus("worker-1", State.READY)}]
        * 2,
        [alive(0, 0), alive(0, 0), with_ended(0, alive(0, 0)), with_ended(0, alive(0, 0))],
        [alive(0, 0), alive(0, 0), states(1, None), states(1, None)],  # then the steps count
    ],
    ids=["a step", "set back", "resumed", "sign of life", "state", "end", "first step"],
)
def test_progress_of_any_task_prevents_a_stall(looks: list[dict[str, TaskStatus]]) -> None:
    assert watched(2.0, looks) == [None] * len(looks)
    assert watched(0.0, looks[:1] * 50) == [None] * 50  # without a limit nothing is a stall


def stepped(count: int) -> dict[str, TaskStatus]:
    """After a step, a sign of life is no progress."""
    return {task: replace(each, global_step=3) for task, each in alive(count, 0).items()}


WAITS = {
    "worker-0": TaskStatus("worker-0", State.SUCCEEDED, global_step=1099),
    "worker-1": TaskStatus("worker-1", State.READY, message="waits for worker-0"),
}


@pytest.mark.parametrize(
    ("looks", "reason"),
    [
        (
            [states(1234, None, worker_1="waits for the chief")] * 4,
            "no new global step for 3 s, the last one was 1,234 (worker-0 made its last step at"
            " 1,234, worker-1 waits for the chief)",
        ),
        ([with_ended(7, states(7, 6))] * 4, "one was 6 (worker-1 made its last step at 6)"),
        ([stepped(count) for count in range(4)], "no new global step for 3 s, the last one was 3"),
        (
            [alive(4, 7, worker_1="waits for worker-0")] * 4,
            "no sign of life for 3 s (worker-0 is silent, worker-1 waits for worker-0)",
        ),
        (
            [alive(4, 7)] * 4,
            f"no sign of life for 3 s (worker-0 is silent, worker-1 is silent); {LONGER}",
        ),
        ([states(1099, None), WAITS, WAITS, WAITS, WAITS], "(worker-1 waits for worker-0)"),
        (
            [states(None, None, worker_0="serves at grpc://localhost:1", worker_1="waits")] * 4,
            f"worker-1 waits); {LOCALHOST}",
        ),
        (
            [states(None, None, worker_0="serves at grpc://tf1:1", worker_1="waits")] * 4,
            "no sign of life for 3 s (worker-0 serves at grpc://tf1:1, worker-1 waits)",
        ),
    ],
)
def test_a_stalled_run_names_the_waiting_tasks(
    looks: list[dict[str, TaskStatus]], reason: str
) -> None:
    *before, last = watched(3.0, looks)
    assert before == [None] * len(before)
    assert last is not None
    assert reason in last


@pytest.mark.parametrize(("chief", "is_stalled"), [("succeeded", False), ("training", True)])
def test_an_evaluator_may_sleep_after_the_training(chief: str, is_stalled: bool) -> None:
    clock = Clock()
    stall = StallDetector(2.0, ("chief-0", "evaluator-0"), monotonic=clock)
    step = TaskStatus("evaluator-0", State.TRAINING, global_step=400)
    statuses = {"chief-0": TaskStatus("chief-0", State(chief)), "evaluator-0": step}
    found = None
    for _ in range(5):
        clock.now += 1.0
        found = stall.check(statuses)
    assert (found is not None) is is_stalled


def counted(*looks: tuple[float, int, float | None], patience_s: float = 300.0) -> list[int]:
    """The signs of life at each look: the time, the printed lines, and the CPU time."""
    clock = Clock()
    signs = SignsOfLife(patience_s, clock)
    found = []
    for now, lines, cpu_s in looks:
        clock.now = now
        found.append(signs.count(lines, lambda cpu_s=cpu_s: cpu_s))
    return found


def test_signs_of_life() -> None:
    assert counted((10, 1, 0.0), (20, 1, 0.0), (30, 2, 0.0)) == [1, 1, 2]
    # A program that hangs uses less than 0.01 cores, one that computes silently more than 0.02.
    assert counted((10, 0, 0.1), (20, 0, 0.2), (30, 0, 0.5), (40, 0, 10.5)) == [0, 0, 1, 2]
    assert counted((10, 0, None), (20, 0, None)) == [1, 2]  # unknown
    assert counted((1, 1, 1.0), (9, 2, 9.0), (10, 3, 10.0), (11, 4, 11.0)) == [0, 0, 1, 1]
    assert counted((10, 1, 9.0), (99, 2, None), patience_s=0) == [0, 0]
    assert counted((1, 1, 0.0), (2, 1, 0.0), (3, 2, 0.0), patience_s=3) == [1, 1, 2]


def test_the_cpu_time_of_a_program_and_its_processes() -> None:
    before = cpu_time_s()
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]);"
    waits = "print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", nested + waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        while_it_runs = cpu_time_s()
    after = cpu_time_s()
    assert while_it_runs is not None
    assert while_it_runs >= 0.25 + (before or 0.0)
    assert after is None or after >= while_it_runs  # None: this process has no child any more


def test_a_required_program_can_stall_before_its_first_step() -> None:
    ready = {task: TaskStatus(task, State.READY) for task in WORKERS}
    starting = ready | {"worker-1": TaskStatus("worker-1", State.STARTING)}
    assert watched(2.0, [starting] * 9, counts=True) == [None] * 9
    found = watched(2.0, [starting, ready, ready, ready], counts=True)
    assert found[:2] == [None, None]
    assert found[-1] == (
        "no new global step for 2 s, no step was made (worker-0 made no step,"
        " worker-1 made no step)"
    )


def test_an_agent_that_was_stopped_itself_does_not_blame_the_training() -> None:
    clock = Clock()
    stall = StallDetector(10.0, WORKERS, monotonic=clock)
    assert stall.check(states(3, 3)) is None
    clock.now += 3600.0
    assert stall.check(states(3, 3)) is None


def test_the_first_unended_task_reports() -> None:
    stall = StallDetector(1.0, WORKERS)
    both = states(1, 1)
    assert [stall.is_reporter(task, both) for task in WORKERS] == [True, False]
    both["worker-0"] = TaskStatus("worker-0", State.SUCCEEDED)
    assert [stall.is_reporter(task, both) for task in (*WORKERS, "ps-0")] == [False, True, False]


def test_out_of_memory_kills_are_counted(tmp_path: Path) -> None:
    first, second = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    assert oom_kills((first, second)) is None
    second.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert oom_kills((first, second)) == 2
    first.write_text("low 0\nhigh 0\nmax 4\noom 1\noom_kill 3\n")
    assert oom_kills((first, second)) == 3


def test_the_counters_of_a_shared_cgroup_are_read_before_that_of_the_host(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    assert [*map(str, shared_oom_counters(groups))] == ["/proc/vmstat"]
    groups.write_text("9:name=systemd:/\n4:memory:/user/a:b\n3:cpuset:/\n0::/user.slice/s.scope\n")
    assert [*map(str, shared_oom_counters(groups))] == [
        "/sys/fs/cgroup/memory/user/a:b/memory.oom_control",
        "/sys/fs/cgroup/user.slice/s.scope/memory.events",
        "/proc/vmstat",
    ]


@pytest.mark.parametrize(
    ("code", "now", "reason", "cause"),
    [
        (-9, OomKills(1, 1), "killed: out of memory", Cause.OUT_OF_MEMORY),
        (
            -9,
            OomKills(None, 1),
            "killed by SIGKILL, probably out of memory: the kernel",
            Cause.SIGNAL,
        ),
        (-9, OomKills(None, 0), "killed by SIGKILL", Cause.SIGNAL),
        (-15, OomKills(None, 1), "killed by SIGTERM", Cause.SIGNAL),
        (1, OomKills(1, 1), "exit code 1", Cause.EXIT_CODE),
    ],
)
def test_a_kill_for_lack_of_memory_is_named_as_far_as_it_is_known(
    tmp_path: Path, code: int, now: OomKills, reason: str, cause: Cause
) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    tags = RecordTags("r1", 0, "worker", 0)
    output = Output(reading, tmp_path / "t.jsonl", tmp_path / "t.log", lambda _data: None, tags)
    before = OomKills(None if now.own is None else 0, 0)
    outcome = failed(code, output, (before, now))
    assert (outcome.state, outcome.cause) == (State.FAILED, cause)
    assert outcome.reason.startswith(reason)
    assert ("memory" in outcome.reason) == ("memory" in reason)


@pytest.mark.parametrize(
    ("message", "ps_count", "text"),
    [
        (
            "a.py:28: NotFoundError: train/model.ckpt-0_temp; No such file or directory",
            2,
            "the parameter servers do not share train; use a relative path",
        ),
        (  # of TensorFlow 2.21, if each server has the directory
            "a.py:28: InvalidArgumentError: allow_missing_files was set to false and"
            " /tmp/train/model.ckpt-0_temp/part-00000-of-00002 did not exist.NOT_FOUND:"
            " /tmp/train/model.ckpt-0_temp/part-00000-of-00002 not found",
            2,
            "the parameter servers do not share /tmp/train; use a relative path",
        ),
        (  # format 1
            "NotFoundError: t/m.ckpt-0-00001-of-00002.tempstate12; No such file or directory",
            1,
            "the parameter server and the workers do not share t; use a relative path",
        ),
        ("NotFoundError: t/m.ckpt-0_temp; No such file or directory", 0, None),
        ("NotFoundError: data/train.csv; No such file or directory", 2, None),
        ("ValueError: t/m.ckpt-0_temp exists", 2, None),
    ],
)
def test_a_checkpoint_directory_that_is_not_shared(
    message: str, ps_count: int, text: str | None
) -> None:
    assert unshared_directory(message, ps_count) == text


def test_a_task_that_failed_like_the_one_that_ends_it_has_failed() -> None:
    own = TaskOutcome(State.FAILED, "a.py:3: ValueError: bad", Cause.EXIT_CODE)
    peer = TaskOutcome(State.CANCELLED, f"worker-1 failed: {own.reason}", Cause.PEER_LOST)
    other = replace(peer, reason="worker-1 failed: killed by SIGKILL")
    stopped = TaskOutcome(State.CANCELLED, f"x failed: {own.reason}", Cause.INTERRUPTED)
    assert same_failure(peer, own) == own
    assert [same_failure(each, own) for each in (other, stopped)] == [other, stopped]
