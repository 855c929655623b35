"""What a report takes from runs: marks, groups, and the command that makes a run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.cli.arguments import check
from lab.cli.commands.run import command as run_command
from lab.plots.data import Mark, Trace, samples_of, steps_of
from lab.report.loader import read_runs
from lab.report.markers import marks_of, not_done
from lab.report.provenance import provenance
from lab.report.repro_command import command
from lab.run.dataframe import records_frame
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import READY_S, RunSpec
from lab.task.protocol.experiments import EXPERIMENTS, hyperparameters
from lab.task.protocol.policy import RESTARTS, OnFailure
from lab.tf_versions import TF1
from tests.support import recorded

FIRST = "20260101-0000-async-aaaa"


def add(run: RunDir, task: str, after_s: float, **fields: object) -> None:
    """Add a record, some seconds after the run's begin."""
    line = json.dumps({"time_unix": recorded.BEGAN_UNIX + after_s, **fields})
    with run.records(task).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def marks_until(end: float, run: RunDir) -> Any:
    """The marks of a run of which something is known until then."""
    info, records = run.read(), records_frame(run)
    steps, _ = steps_of(info, records)
    last = Mark("worker-0", "fault", "the last one", end)
    return marks_of(Trace("one", "async", info, steps, samples_of(info, []), (last,)), records)


def test_a_fault_is_marked_until_its_end(tmp_path: Path) -> None:
    pause, slow = "pause:2s worker-0 after 5s", "slow:0.5,30s worker-0"
    run = recorded.make(tmp_path, FIRST, steps=1100,
                        faults=(pause, slow, "kill worker-1 after 9 steps"))  # fmt: skip
    for when, message in (
        (5.0, f"fault: {pause}"), (7.1, f"fault over: {pause}"),
        (9.0, f"fault: {pause}"), (11.2, f"fault over: {pause}"),
        (10.0, f"fault: {slow}"), (50.0, "fault: kill worker-0"),
    ):  # fmt: skip
        add(run, "worker-0", when, kind="event", message=message)
    marks = marks_until(60.0, run)
    assert [(mark.begin, mark.end, mark.stands_still) for mark in marks] == [
        (pytest.approx(5), pytest.approx(7.1), True),
        (pytest.approx(9), pytest.approx(11.2), True),
        (pytest.approx(10), pytest.approx(40), False),
        (pytest.approx(50), None, False),
    ]
    assert not_done(run.read(), marks) == ["kill worker-1 after 9 steps"]


def test_late_starts_and_new_starts_are_marked(tmp_path: Path) -> None:
    run = recorded.make(tmp_path, FIRST, steps=1100, start={"worker-2": "after 500 steps"})
    add(run, "worker-0", 9, kind="start", attempt=1)
    late, new = marks_until(60.0, run)
    assert (late.task, late.what) == ("worker-2", "late start")
    assert late.begin == pytest.approx(3.0, abs=0.01)  # where its first step began
    assert (new.task, new.what, new.begin) == ("worker-0", "new start", pytest.approx(9))


HALF = {"hyperparameters": {"learning_rate": 0.5}}
CONFIG = {"cluster_file": "a/one.yaml", "cluster_sha256": "1" * 64}
LOW = {"source": "1", "args": ("--lr=0.1", "--seed=1")}
UNKNOWN = {"own": True, "program": "own.py"}  # another client's run has no copy of its source


@pytest.mark.parametrize(
    ("runs", "groups"),
    [
        ([HALF, {"hyperparameters": {"learning_rate": 0.5, "seed": 2}, "args": ("--seed", "2")}],
         ["async"] * 2),
        ([HALF, {"hyperparameters": {"learning_rate": 1}}, {"experiment": "sync"}],
         ["async, learning_rate 0.5", "async, learning_rate 1", "sync"]),
        ([{}, {"faults": ("slow:0.5 worker-0",)}], ["async", "async, faults slow:0.5 worker-0"]),
        # Own programs: the source and the arguments count.
        ([LOW, {**LOW, "args": ("--lr=1", "--seed=1")}],
         ["async, other arguments --lr=0.1", "async, other arguments --lr=1"]),
        ([LOW, {**LOW, "args": ("--lr=0.1", "--seed", "2")}], ["async"] * 2),
        ([LOW, {**LOW, "source": "2"}], ["async, program *", "async, program ?*"]),
        ([UNKNOWN, UNKNOWN], ["*", "?*"]),
        ([{}, {"source": "1"}], ["*", "?*"]),
        # A config is the same by its content.
        ([CONFIG, {**CONFIG, "cluster_file": "b/x.yaml"}], ["async"] * 2),
        ([CONFIG, {"cluster_file": "b/two.yaml", "cluster_sha256": "2" * 64}],
         ["async, config one.yaml", "async, config two.yaml"]),
        ([CONFIG, {**CONFIG, "cluster_sha256": "2" * 64}],
         [f"async, config {'1' * 12}", f"async, config {'2' * 12}"]),
    ],
)  # fmt: skip
def test_runs_that_differ_by_their_seed_are_one_group(
    tmp_path: Path, runs: list[Mapping[str, Any]], groups: list[str]
) -> None:
    made = []
    for number, changes in enumerate(runs):
        given = dict(changes)
        source = given.pop("source", "")
        own = {"own": True, "program": "own.py", "hyperparameters": {}} if source else {}
        run_id = f"20260101-{number:04}-async-aaaa"
        run = recorded.make(tmp_path, run_id, steps=60, **{**own, **given})
        if source:
            run.program.mkdir()
            (run.program / "own.py").write_text(source)
            (run.program / "out.txt").write_text(f"a result of {run_id}")
        made.append(run)
    found = [each.trace.group for each in read_runs(made, lambda _: None, print)]
    assert all(map(fnmatch, found, groups)), found
    assert len(set(found)) == len(set(groups))


USUAL = {"ready_s": READY_S}
ALL_OPTIONS = {
    "stall_s": 90.5, "max_time_s": 600, "ready_s": 7, "data_dir": "/lab/data/mine",
    "resumed_from": FIRST, "on_failure": OnFailure.RESTART, "restarts": 2,
    "start": {"worker-1": "10s"}, "faults": ("pause:2s worker-0 after 5s",),
}  # fmt: skip
OWN = {"own": True, "program": "mine.py"}
SPECS = {
    "several faults": RunSpec("async", args=("--seed=1",), faults=("kill worker-1", "cut:5s tf2"),
                              start={"worker-2": "after 500 steps"}, **USUAL),
    "a repeated flag": RunSpec("async", args=("--seed=3", "--epochs=2", "--epochs=5",
                                              "--log_device_placement"), **ALL_OPTIONS),
    "staleness": RunSpec("staleness", args=("--seed=3", "--global_steps=300", "--learning_rate=1",
                                            "--model=mlp", "--learning_rate=0.01"), **ALL_OPTIONS),
    "words of no flag": RunSpec(
        "multiworker", args=("--seed=1", "--strategy=multiworker", "--model=mlp", "--epochs", "3",
                             "--later", "word", "--epochs=two"), **ALL_OPTIONS),
    "the usual policy": RunSpec("coordinator", on_failure=OnFailure.RESTART, restarts=RESTARTS,
                                **USUAL),
    "an own program": RunSpec("mine", args=("--seed=1",), **OWN),
    "quotes": RunSpec("mine", record=r"it (?P<step>\d+)'s", **OWN),
    "a listing": RunSpec("book", own=True, folder="programs", program="book.py", listing=True,
                         faithful=True, mend=True, args=("--x", "1")),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_the_command_makes_the_same_run_again(name: str, snapshot: SnapshotAssertion) -> None:
    spec = SPECS[name]
    plan = {"tensorflow": TF1.tensorflow} if spec.listing else None
    made = command(RunInfo("x", spec, backend="local", cluster_file="a/book.yaml", plan=plan))
    assert made == snapshot
    lab, run, *arguments = shlex.split(made)
    assert (lab, run) == ("lab", "run")
    texts = check("run", run_command, arguments)
    assert texts.get("record", "") == spec.record
    if not spec.own:
        wanted = EXPERIMENTS[spec.experiment]
        again = (*wanted.args, *json.loads(texts["rest"]))
        assert hyperparameters(wanted, again) == hyperparameters(wanted, spec.args)
        assert not set(arguments).intersection(wanted.args)


def test_the_provenance_shows_common_settings() -> None:
    facts = {"provenance": {"kernel": "Linux 6"}, "started_unix": 1e308}  # no calendar knows it
    runs = {name: RunInfo(name, RunSpec("async"), seed=len(name), **facts) for name in ("a", "bb")}
    found = provenance(runs, {})
    assert found == {"command": "lab run async --ready-within 0s", "seed": {"a": "1", "bb": "2"},
                     "environment": "kernel Linux 6"}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"epochs": 2, "global_steps": 0, "seed": 1}, "epochs 2, learning_rate 0.01"),
        ({"learning_rate": 0.5, "global_steps": 7}, "learning_rate 0.5, global_steps 7"),
    ],
)
def test_the_hyperparameters_have_the_recorded_rate(
    tmp_path: Path, given: dict[str, Any], shown: str
) -> None:
    run = recorded.make(tmp_path, FIRST, steps=60, hyperparameters=given)
    add(run, "worker-1", 1, kind="event", learning_rate=0.01)
    (read,) = read_runs([run], lambda _: None, print)
    found = provenance({"x": read.info}, {"x": read.learning_rate})
    assert found["hyperparameters"] == shown
