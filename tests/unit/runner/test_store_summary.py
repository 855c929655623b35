"""The summary: the results of a run, from its files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import LabError
from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.states import Cause, State
from lab.runner.store.directory import RunDir
from lab.runner.store.gpu_samples import GpuFigures
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summarize, summary_of
from lab.runner.store.summary import (
    ResultSummary,
    Summary,
    TaskSummary,
    read_summary,
    write_summary,
)
from lab.runner.store.task_progress import TaskProgress
from lab.runner.verdict import verdict
from tests.support.fakes import PLAN, record
from tests.support.specs import changed
from tests.support.summaries import INFO, TASKS, folded, good, statuses

NEW = RunInfo("r", RunSpec("async"), cluster=PLAN.cluster_spec(), started_unix=100.0)


def test_a_good_run() -> None:
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    summary = summary_of(INFO, states, good())
    # worker-0's first step ended 9 steps of 0.1 s before its first record; worker-1 recorded its
    # first one, at 106.
    assert summary == Summary(
        run_id="r",
        experiment="async",
        backend="local",
        state="succeeded",
        reason="",
        degraded=False,
        global_step=40,
        updates_conserved=True,
        updates_lost=0,
        steps_redone=0,
        resumed_from="",
        accuracy=0.75,
        wall_s=20.5,
        first_step_s=6.0,
        steps_per_s=(35 - 15) / 2,
        records_lost=0,
        tasks=summary.tasks,
        results=[],
    )
    assert [task.task for task in summary.tasks] == list(TASKS)
    _, chief, other = summary.tasks
    assert (chief.local_step, chief.global_step, chief.epoch) == (20, 35, 1)
    assert (chief.accuracy, chief.loss, chief.steps_per_s) == (0.5, 1.0, 5.0)
    assert (chief.node, chief.gpus) == ("tf2", ["0", "1"])
    assert other.node == "tf3"  # from the cluster spec, where no plan is known
    assert "\n" not in summary.to_json()


@pytest.mark.parametrize(
    ("changes", "probe", "second", "conserved"),
    [
        ({}, 40, 20, True),
        ({}, 39, 20, False),  # the probe missed an update
        ({}, 40, 19, False),  # a local step is missing
        ({}, 40, 21, False),  # there are more local steps than updates
        ({}, 40, None, False),  # a worker without steps adds none
        ({"experiment": "sync"}, 40, 19, True),  # there a local step is no update of its own
        ({"experiment": "sync"}, 41, 20, False),
        ({"resumed_from": "before"}, 40, 19, True),  # these records lack the earlier run's steps
        ({"own": True}, 40, 19, True),  # a program of the user's own with the experiment's name
        ({"experiment": "unknown"}, 40, 19, True),
        ({}, None, 20, None),  # no data for a verdict
    ],
)
def test_updates_conserved(
    changes: dict[str, Any], probe: int | None, second: int | None, conserved: bool | None
) -> None:
    final = {"probe": probe} if probe is not None else {}
    progress = folded(
        worker_0=[
            record("worker-0", 0, "eval", accuracy=0.5, global_step=40, **final),
            record("worker-0", 1, "final", local_step=20),
        ],
        worker_1=[] if second is None else [record("worker-1", 0, "final", local_step=second)],
    )
    assert summary_of(changed(INFO, **changes), {}, progress).updates_conserved is conserved


@pytest.mark.parametrize(
    ("of_tasks", "state", "reason"),
    [
        ("succeeded succeeded succeeded", "succeeded", ""),
        ("cancelled succeeded succeeded", "succeeded", ""),
        ("failed succeeded succeeded", "failed", "ps-0 failed"),
        ("cancelled cancelled failed", "failed", "worker-1 failed"),
        ("cancelled lost cancelled", "lost", "worker-0 lost"),
        ("failed lost cancelled", "failed", "ps-0 failed"),
        ("cancelled cancelled succeeded", "cancelled", ""),
        ("training succeeded succeeded", "training", ""),
        ("training ready pending", "training", ""),
        ("ready pending starting", "starting", ""),
        ("ready ready ready", "ready", ""),
        ("succeeded succeeded", "training", ""),  # the last task has no status
        ("", "pending", ""),
    ],
)
def test_verdict(of_tasks: str, state: str, reason: str) -> None:
    states = zip(("ps_0", "worker_0", "worker_1"), map(State, of_tasks.split()), strict=False)
    assert verdict(NEW, statuses(**dict(states))) == (State(state), reason)


@pytest.mark.parametrize(("state", "shown"), [(State.LOST, "lost"), (State.TRAINING, "starting")])
def test_a_task_that_wrote_no_end_is_lost_when_its_run_has_ended(state: State, shown: str) -> None:
    statuses = {"ps-0": TaskStatus("ps-0", State.STARTING, started_unix=1.0)}
    assert summary_of(replace(NEW, state=state), statuses, folded()).tasks[0].state == shown


def test_records_that_the_volume_refused_are_lost() -> None:
    ended = {
        "worker-0": TaskStatus("worker-0", State.FAILED, records_lost=5),
        "ps-0": TaskStatus("ps-0", State.FAILED, records_lost=1),
    }
    gaps = folded(
        worker_0=[record("worker-0", 0), record("worker-0", 3)],
        worker_1=[record("worker-1", 0), record("worker-1", 2)],
    )
    assert summary_of(INFO, ended, gaps).records_lost == 7
    assert summary_of(INFO, {}, gaps).records_lost == 3


def set_back() -> dict[str, TaskProgress]:
    """A ps failed at step 40; all went on from the checkpoint of step 25."""
    return folded(
        worker_0=[
            record("worker-0", 0, "step", local_step=20, global_step=38, time_unix=105.0),
            record("worker-0", 0, "event", attempt=1, global_step=25, time_unix=110.0,
                   message="resumes from the checkpoint of step 25"),
            record("worker-0", 1, "step", attempt=1, local_step=9, global_step=33,
                   time_unix=115.0),
            record("worker-0", 2, "event", attempt=2, global_step=31, time_unix=120.0),
            record("worker-0", 3, "eval", attempt=2, accuracy=0.75, global_step=60, probe=59),
        ],
        worker_1=[
            record("worker-1", 0, "step", local_step=19, global_step=40, time_unix=105.1),
            record("worker-1", 0, "step", attempt=1, local_step=5, global_step=30,
                   time_unix=114.0),
        ],
    )  # fmt: skip


def test_redone_steps_are_counted() -> None:
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    summary = summary_of(INFO, states, set_back())
    # At 120 the peak of the second attempt counts, not again that of the first one.
    assert summary.steps_redone == (40 - 25) + (33 - 31)
    assert (summary.updates_conserved, summary.updates_lost) == (False, 1)
    assert summary_of(INFO, states, good()).steps_redone == 0


def test_last_state_of_an_ended_attempt_is_not_from_records() -> None:
    progress = good()
    progress["worker-1"].local_step = 12
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    assert summary_of(INFO, states, progress).updates_conserved is False
    again = states | {"worker-1": TaskStatus("worker-1", State.SUCCEEDED, attempt=1)}
    assert summary_of(INFO, again, progress).updates_conserved is True
    without = states | {"worker-1": TaskStatus("worker-1", State.FAILED)}
    summary = summary_of(INFO, without, progress)
    assert (summary.updates_conserved, summary.degraded) == (True, True)


def test_every_field_of_a_task_that_failed() -> None:
    progress = folded(
        worker_0=[
            record("worker-0", 0, "step", local_step=10, global_step=15, time_unix=105.0, epoch=0),
            record("worker-0", 1, "step", local_step=20, global_step=16, time_unix=108.0, epoch=1,
                   loss=0.25),
            record("worker-0", 2, "final", accuracy=0.5),
        ]
    )  # fmt: skip
    status = TaskStatus(
        "worker-0", State.FAILED, attempt=2, cause=Cause.EXIT_CODE, exit_code=3,
        started_unix=100.0, ended_unix=112.34567,
    )  # fmt: skip
    gpus = {"worker-0": GpuFigures(0.12345, 1024, 250.98765)}
    addresses = {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:2222"]}
    info = replace(INFO, cluster=addresses)  # a task's row names its node, not its address
    summary = summary_of(info, {"worker-0": status}, progress, gpus)
    assert summary.tasks[1] == TaskSummary(
        task="worker-0",
        job_name="worker",
        task_index=0,
        node="tf2",
        gpus=["0", "1"],
        state="failed",
        exit_code=3,
        attempts=3,
        epoch=1,
        local_step=20,
        global_step=16,
        loss=0.25,
        accuracy=0.5,
        steps_per_s=3.333,
        time_s=12.346,
        cause="exit code",
        gpu_utilisation=0.123,
        gpu_memory_bytes=1024,
        gpu_power_w=250.988,
        loss_records=1,
    )


def test_a_task_that_was_never_started_has_no_attempt_and_no_duration() -> None:
    ended = TaskStatus("worker-0", State.CANCELLED, ended_unix=112.5)
    started = TaskStatus("worker-1", State.TRAINING, started_unix=100.0)
    summary = summary_of(NEW, {"worker-0": ended, "worker-1": started}, folded())
    numbers = (summary.global_step, summary.accuracy, summary.first_step_s, summary.steps_per_s)
    assert numbers == (None,) * 4
    assert summary.tasks[0] == TaskSummary("ps-0", "ps", 0, "tf1", [], "lost", None, 0, *[None] * 7)
    assert [(task.attempts, task.time_s) for task in summary.tasks[1:]] == [(0, None), (1, None)]


def test_a_task_that_ends_before_it_starts_again_has_the_attempts_of_before() -> None:
    ended = TaskStatus("worker-0", State.CANCELLED, attempt=1, ended_unix=112.5)
    summary = summary_of(NEW, {"worker-0": ended}, folded())
    assert [task.attempts for task in summary.tasks] == [0, 1, 0]


def test_the_facts_of_a_run_that_failed() -> None:
    facts = {"backend": "compose", "state": State.FAILED, "reason": "worker-1 failed"}
    info = changed(NEW, **facts, resumed_from="before")
    states = statuses(worker_1=State.FAILED)
    states["worker-0"] = TaskStatus("worker-0", State.SUCCEEDED, ended_unix=109.98765)
    summary = summary_of(info, states, good())
    assert {name: getattr(summary, name) for name in facts} == facts
    assert (summary.resumed_from, summary.degraded) == ("before", False)
    assert (summary.accuracy, summary.global_step) == (0.75, 40)
    assert summary.wall_s == 9.988  # to the end of the last task


def test_the_first_step_is_known_only_when_every_worker_made_one() -> None:
    progress = folded(worker_0=[record("worker-0", 0, local_step=1, time_unix=105.0)])
    assert summary_of(INFO, {}, progress).first_step_s is None
    progress["worker-1"].first_step_unix = 107.1234
    assert summary_of(INFO, {}, progress).first_step_s == 7.123
    later = replace(INFO, submitted_unix=INFO.started_unix + 2)  # the clock of the figures
    assert summary_of(later, {}, progress).first_step_s == 5.123


ROW = {"kind": "step", "global_step": 1}


@pytest.mark.parametrize(
    ("rows", "rate"),
    [
        # (2000 + 1000 - 100 - 100) images in 10 s
        ([(0, 0, 0, 1, 100), (0, 0, 10, 20, 2000), (1, 0, 1, 1, 100), (1, 0, 9, 10, 1000)], 280),
        ([(0, 0, 0, 1, None), (0, 0, 10, 21, None)], 200),  # of batches of 100
        ([(0, 0, 0, 1, 200), (0, 0, 10, 11, 2200), (1, 0, 0, 1, 200), (1, 0, 10, 11, 2200)], 200),
        ([(0, 0, 0, 1, 100), (1, 0, 5, 1, 100)], None),
        # A restarted worker counts from 0: (500 - 100 + 700) images in 10 s
        ([(0, 0, 0, 1, 100), (0, 0, 4, 5, 500), (0, 1, 6, 1, 100), (0, 1, 10, 7, 700)], 110),
    ],
    ids=["async", "by steps", "a ring", "single records", "a restart"],
)
def test_images_a_second_are_those_of_all_workers(
    rows: list[tuple[int, int, int, int, int | None]], rate: float | None
) -> None:
    progress = folded()
    for worker, attempt, seconds, step, examples in rows:
        row = ROW | {"attempt": attempt, "local_step": step, "examples": examples}
        progress[f"worker-{worker}"].add(row | {"time_unix": 100.0 + seconds})
    info = replace(INFO, tasks=(), hyperparameters={"batch_size": 100})
    assert summary_of(info, {}, progress).images_per_s == rate


@pytest.mark.parametrize(
    ("accuracies", "changes", "accuracy"),
    [
        ((0.9, 0.9), {}, 0.9),
        ((0.9, 0.8), {}, None),
        ((0.9, None), {}, None),
        ((0.9, 0.9), {"state": State.FAILED}, None),
        ((0.9, 0.9), {"cluster": INFO.cluster}, None),  # with a parameter server
        ((0.9, 0.9), {"spec": RunSpec("mine", own=True)}, None),
    ],
)
def test_equal_accuracies_of_all_workers_are_that_of_the_run(
    accuracies: tuple[float | None, ...], changes: dict[str, Any], accuracy: float | None
) -> None:
    progress = {f"worker-{n}": TaskProgress(f"worker-{n}") for n in range(2)}
    for (task, worker), each in zip(progress.items(), accuracies, strict=True):
        worker.add(record(task, 0, "final", **({} if each is None else {"accuracy": each})))
    if changes.get("cluster"):
        progress["ps-0"] = TaskProgress("ps-0")
    cluster = {"worker": INFO.cluster["worker"]}
    info = replace(
        INFO, **{"cluster": cluster, "spec": RunSpec("ddp", services=("ps",)), **changes}
    )
    assert summary_of(info, {}, progress).accuracy == accuracy


def test_only_a_worker_makes_a_run_degraded() -> None:
    whole = statuses(worker_0=State.SUCCEEDED, worker_1=State.SUCCEEDED)
    assert not summary_of(INFO, whole | statuses(ps_0=State.FAILED), good()).degraded
    assert summary_of(INFO, whole | statuses(worker_1=State.LOST), good()).degraded
    assert not summary_of(INFO, statuses(worker_0=State.SUCCEEDED), good()).degraded


def test_a_probe_without_a_global_step_decides_nothing() -> None:
    for other in ({}, {"global_step": "five"}):
        final = record("worker-0", 0, "eval", accuracy=0.5, probe=20, **other)
        summary = summary_of(INFO, {}, folded(worker_0=[final]))
        assert (summary.updates_conserved, summary.updates_lost) == (None, None)
        assert summary.accuracy == 0.5


def test_the_results_that_are_missing_follow_those_that_were_found() -> None:
    info = changed(NEW, experiment="linear", results=("w", "b"), state=State.SUCCEEDED)
    found = record("worker-1", 0, "result", name="b", value=10.0, low=9.9, high=10.1)
    progress = folded(worker_1=[found])
    b = ResultSummary("b", "worker-1", 10.0, 9.9, 10.1, True)
    missing = ResultSummary("w", "", None, None, None, False)
    summary = summary_of(info, {}, progress)
    assert summary.results == [b, missing]
    assert Summary.from_json(summary.to_json()) == summary
    assert summary_of(replace(info, state=State.FAILED), {}, progress).results == [b]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "runs" / "r")
    found.create(INFO)
    for folder in ("tasks", "status"):
        (found.path / folder).mkdir()
    records = [
        record("worker-0", 0, local_step=1, global_step=1, time_unix=105.0),
        record("worker-0", 1, local_step=9, global_step=9, time_unix=109.0),
        record("worker-0", 2, "eval", accuracy=0.5, global_step=12, probe=12),
    ]
    found.records("worker-0").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    samples = [
        {"task": "worker-0", "gpu": "GPU-0", "time_unix": at, "utilisation": share,
         "memory_used_bytes": 512, "power_w": 100.0}
        for at, share in ((101.0, 0.0), (106.0, 0.5), (108.0, 1.0))
    ]  # fmt: skip
    found.gpu_samples.write_text("".join(f"{json.dumps(each)}\n" for each in samples))
    restarted = TaskStatus("worker-0", State.SUCCEEDED, attempt=1)
    found.status("worker-0").write_text(restarted.to_json())
    return found


def test_a_run_is_summed_up_from_its_files(run: RunDir) -> None:
    summary = summarize(run)
    service, chief, other = summary.tasks
    assert (service.state, chief.state, other.state) == ("lost", "succeeded", "lost")
    assert (chief.local_step, chief.steps_per_s) == (9, 2.0)
    # Only the samples from the first step record to the last count.
    assert (chief.gpu_utilisation, chief.gpu_memory_bytes, chief.gpu_power_w) == (0.75, 512, 100.0)
    assert (summary.run_id, summary.global_step, summary.wall_s) == ("r", 12, 20.5)
    # The worker was restarted, so that its records need not hold all 12 steps.
    assert summary.updates_conserved is True


def test_a_written_summary_is_read_back_and_its_table_has_a_row_for_each_task(run: RunDir) -> None:
    summary = summarize(run)
    write_summary(run, summary)
    assert read_summary(run.summary_path) == summary
    assert run.summary_path.read_text() == summary.to_json() + "\n"
    table = (run.path / "summary.csv").read_bytes().decode()  # a text would hide its line ends
    header, *rows = table.splitlines(keepends=True)
    assert header == (
        "task,job_name,task_index,node,gpus,state,exit_code,attempts,epoch,local_step,global_step,"
        "loss,accuracy,steps_per_s,time_s,cause,gpu_utilisation,gpu_memory_bytes,gpu_power_w,"
        "diverged_at,loss_records,staleness_sum,staleness_steps\n"
    )
    assert rows == [
        "ps-0,ps,0,tf1,,lost,,0,,,,,,,,,,,,,,,\n",
        "worker-0,worker,0,tf2,0 1,succeeded,,1,,9,12,,,2.0,,,0.75,512,100.0,,,,\n",
        "worker-1,worker,1,tf3,,lost,,0,,,,,,,,,,,,,,,\n",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON"),
        ("[]", "its JSON is not an object"),
        ("{}", "missing required field `run_id`"),
        ('{"tasks": [{"task": 1}]}', r"Expected `str`, got `int` - at `\$.tasks\[0\].task`"),
        ('{"tasks": ' + "[" * 5_000 + "]" * 5_000 + "}", "nested too deeply"),
    ],
)
def test_a_damaged_summary_is_named_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "summary.json"
    assert read_summary(path) is None
    path.write_text(text)
    with pytest.raises(LabError, match=rf"summary\.json: .*{reason}"):
        read_summary(path)


def test_a_summary_with_a_state_that_is_none_is_damaged(run: RunDir) -> None:
    text = summarize(run).to_json()
    for state in ('"state": "succeeded"', '"state": "lost"'):
        assert state in text
        with pytest.raises(ValueError, match="'happy' is not a valid State"):
            Summary.from_json(text.replace(state, '"state": "happy"', 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ('{"task": "ps-0", "state": "happy"}', r"Invalid enum value 'happy' - at `\$.state`"),
        ('{"task": 5, "state": "failed"}', r"Expected `str`, got `int` - at `\$.task`"),
    ],
)
def test_a_damaged_status_is_named_with_its_key(run: RunDir, text: str, reason: str) -> None:
    run.status("ps-0").write_text(text)
    with pytest.raises(LabError, match=rf"status/ps-0\.json: {reason}"):
        summarize(run)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_status_that_is_no_file_is_not_waited_for(run: RunDir, kind: str) -> None:
    path = run.status("ps-0")
    make = {"pipe": os.mkfifo, "link": lambda at: at.symlink_to("/dev/zero"), "folder": os.mkdir}
    make[kind](path)
    with pytest.raises((LabError, IsADirectoryError)):
        summarize(run)
