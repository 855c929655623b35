"""The command that a finished run names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summarize
from lab.verbs.run import next_command
from tests.support.fakes import PLAN
from tests.support.shown import assert_shows


def ended(
    store: Path,
    state: State,
    run_id: str = "r2",
    *,
    failed: str = "",
    run_state: State | None = None,
    started: float = 2.0,
    experiment: str = "async",
    steps: bool = True,
) -> RunDir:
    run = RunDir(store / run_id)
    times = {"started_unix": started, "submitted_unix": started}
    info = RunInfo(run_id, RunSpec(experiment), cluster=PLAN.cluster_spec(), **times)
    run.create(replace(info, state=run_state or state))
    for folder in (run.records("worker-0").parent, run.status("worker-0").parent):
        folder.mkdir()
    if steps:
        run.records("worker-0").write_text('{"kind": "step", "global_step": 5}\n')
    for task in PLAN.tasks:
        status = TaskStatus(task.name, State.FAILED if task.name == failed else state)
        write_atomically(run.status(task.name), status.to_json())
    return run


def following(run: RunDir, *, as_expected: bool = True, **given: object) -> str:
    return next_command(run, summarize(run), given, as_expected=as_expected)


@pytest.mark.parametrize(
    ("experiment", "started", "line"),
    [
        ("async", 1.0, "lab report last, or lab compare last~1 last"),
        ("sync", 1.0, "lab report last"),
        ("async", 3.0, "lab report last"),  # another client has started a later run
    ],
)
def test_a_good_run_has_a_report_and_two_can_be_compared(
    tmp_path: Path, experiment: str, started: float, line: str
) -> None:
    run = ended(tmp_path, State.SUCCEEDED)
    assert following(run) == "lab report last"
    assert following(run, runs_dir="my runs") == "lab report last '--runs-dir=my runs'"
    ended(tmp_path, State.SUCCEEDED, "r1", started=started, experiment=experiment)
    assert following(run) == line
    earlier = RunDir(tmp_path / "r1")
    earlier.write(replace(earlier.read(), imported=True))  # last~1 is never an imported run
    assert following(run) == "lab report last"
    if "compare" in line:
        assert_shows("docs/how-to/follow-a-run.md", "next: ", f"next: {line}")


def test_a_run_without_steps_has_only_logs(tmp_path: Path) -> None:
    assert following(ended(tmp_path, State.SUCCEEDED, steps=False)) == "lab logs last"


def test_the_error_of_a_failed_run_says_what_to_do(tmp_path: Path) -> None:
    run = ended(tmp_path, State.CANCELLED, failed="worker-1", run_state=State.FAILED)
    checkpoint(run)
    assert following(run, as_expected=False) == ""


def test_a_cancelled_run_with_a_checkpoint_can_be_resumed(tmp_path: Path) -> None:
    run = ended(tmp_path, State.CANCELLED)
    place = {"cluster": "c.yaml", "backend": "slurm", "option": ("time=2h", "gpus-by=count")}
    assert following(run, as_expected=False, **place) == ""
    checkpoint(run)
    assert following(run, as_expected=False, **place) == (
        "lab run async --resume r2 --cluster=c.yaml --backend=slurm --option=time=2h"
        " --option=gpus-by=count"
    )


def checkpoint(run: RunDir) -> None:
    run.checkpoints.mkdir()
    (run.checkpoints / "model-5.index").touch()
