"""A run whose tasks never talked to each other: its state, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.errors import LabError
from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.states import NEVER_TALKED, State
from lab.protocol.volume.status import write_status
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summarize
from lab.runner.verdict import check_succeeded, verdict

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf1:2", "tf2:1"]}
INFO = RunInfo("r", RunSpec("own", own=True, must_talk=True, framework="torch"), cluster=CLUSTER)


def statuses(*talked: bool | None, steps: int | None = 3) -> dict[str, TaskStatus]:
    """The statuses of the successful tasks of `CLUSTER`; only workers make steps."""
    tasks = [f"{job}-{index}" for job, hosts in CLUSTER.items() for index in range(len(hosts))]
    return {
        task: TaskStatus(
            task, State.SUCCEEDED, talked=known, global_step=None if task == "ps-0" else steps
        )
        for task, known in zip(tasks, talked, strict=True)
    }


@pytest.mark.parametrize("ps", [True, False, None])
def test_workers_that_never_talked_have_failed(ps: bool | None) -> None:
    assert verdict(INFO, statuses(ps, False, False)) == (State.FAILED, NEVER_TALKED)


@pytest.mark.parametrize("talked", [(True, False), (None, False), (None, None)])
def test_a_run_succeeds_if_a_worker_may_have_talked(talked: tuple[bool | None, ...]) -> None:
    assert verdict(INFO, statuses(False, *talked)) == (State.SUCCEEDED, "")


def test_a_run_without_a_step_succeeds() -> None:
    assert verdict(INFO, statuses(False, False, False, steps=None)) == (State.SUCCEEDED, "")


def test_a_run_that_needs_no_connection_succeeds() -> None:
    info = replace(INFO, spec=replace(INFO.spec, must_talk=False))
    assert verdict(info, statuses(False, False, False)) == (State.SUCCEEDED, "")


def test_one_task_has_nobody_to_talk_to() -> None:
    info = replace(INFO, cluster={"worker": ["tf1:1"]})
    alone = {"worker-0": TaskStatus("worker-0", State.SUCCEEDED, talked=False, global_step=3)}
    assert verdict(info, alone) == (State.SUCCEEDED, "")


def test_a_worse_end_is_the_reason() -> None:
    failed = statuses(False, False, False)
    failed["worker-1"] = replace(failed["worker-1"], state=State.FAILED, reason="out of paper")
    assert verdict(INFO, failed) == (State.FAILED, "worker-1 failed: out of paper")


def a_run(
    folder: Path, *talked: bool | None, steps: int | None = 3, info: RunInfo = INFO
) -> RunDir:
    run = RunDir(folder / "r")
    ends = statuses(*talked, steps=steps)
    state, reason = verdict(info, ends)
    run.create(replace(info, state=state, reason=reason, collected=True))
    for task, status in ends.items():
        run.status(task).parent.mkdir(exist_ok=True)
        write_status(run.status(task), status)
    return run


def warnings(run: RunDir, notices: list[str]) -> list[str]:
    check_succeeded(run, summarize(run))
    return [notice for notice in notices if "exchanged" in notice]


def test_a_worker_that_trained_alone_is_named(tmp_path: Path, notices: list[str]) -> None:
    run = a_run(tmp_path, True, True, False)
    assert warnings(run, notices) == ["warning: worker-1 never exchanged data with another task"]


def test_nothing_is_said_of_a_server_without_workers(tmp_path: Path, notices: list[str]) -> None:
    assert warnings(a_run(tmp_path, False, True, True), notices) == []


def test_a_silent_run_without_a_step_is_only_warned_of(tmp_path: Path, notices: list[str]) -> None:
    run = a_run(tmp_path, False, False, False, steps=None)
    assert warnings(run, notices) == [f"warning: {NEVER_TALKED}"]


@pytest.mark.parametrize(
    ("source", "framework", "said"),
    [
        ("mp.spawn(work, nprocs=2)", "torch", "it starts its ranks itself: run it on one task"),
        ("os.environ['TF_CONFIG'] = '{}'", "tensorflow", "it sets its own TF_CONFIG"),
        (
            "add_argument('--rank'); add_argument('--world_size')\ninit_process_group('gloo')",
            "torch",
            "give it --rank and --world_size after --",
        ),
        ("model.fit(images)", "tensorflow", "it builds no cluster"),
        ("jax.grad(loss)", "jax", "it never calls jax.distributed.initialize"),
        ("if ready(): init_process_group('gloo')", "torch", "see what its tasks wait for in"),
    ],
)
def test_the_program_shows_what_it_waits_for(
    source: str, framework: str, said: str, tmp_path: Path
) -> None:
    spec = replace(INFO.spec, program="train.py", framework=framework)
    run = a_run(tmp_path, False, False, False, info=replace(INFO, spec=spec))
    run.program.mkdir()
    (run.program / "train.py").write_text(source)
    (run.program / "other.py").write_text("mp.spawn(work)")  # it is only beside it
    with pytest.raises(LabError) as caught:
        check_succeeded(run, summarize(run))
    assert f"({NEVER_TALKED}); {said}" in str(caught.value)
