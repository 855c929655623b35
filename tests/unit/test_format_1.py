"""Runs that were recorded in format 1, whose `run.json` had no `spec`: read like all others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cli import main
from lab.run.run_info import FORMAT, RunInfo
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec

RECORDED = Path(__file__).parent / "format_1"
"""A real run by processes, without its logs, its model and its checkpoints."""

RUN = "20261124-0600-async-8602"
SEED = "--seed=1437316627"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    shutil.copytree(RECORDED / RUN, tmp_path / "runs" / RUN)
    return RunDir(tmp_path / "runs" / RUN)


def test_it_is_read_with_its_specification(run: RunDir) -> None:
    raw = json.loads(run.info_path.read_text())
    assert raw["format"] == 1
    info = run.read()
    assert info.spec == RunSpec(
        "async", program="mnist_async.py", args=(SEED, "--epochs=1"), ready_s=120
    )
    assert info.format == FORMAT
    assert (info.seed, info.git, info.plan) == (raw["seed"], raw["git"], raw["plan"])
    assert RunInfo.from_json(info.to_json()) == info
    assert json.loads(info.to_json())["format"] == 2  # an earlier lab refuses it by this number


def test_all_that_a_specification_holds_is_converted(run: RunDir) -> None:
    raw = json.loads(run.info_path.read_text())
    entry = {"program": "b.py", "cluster_args": ["--task_index={index}"]}
    raw |= {"own": True, "programs": {"worker-0": entry}, "on_failure": "restart", "restarts": 2,
            "start": {"worker-1": "10s"}, "faults": ["kill ps-0"], "resumed_from": "r0",
            "data_dir": "/lab/data/mine", "stall_s": 9.5}  # fmt: skip
    spec = RunInfo.from_json(json.dumps(raw)).spec
    assert spec.programs["worker-0"].program == "b.py"
    for name in ("own", "on_failure", "restarts", "start", "resumed_from", "data_dir", "stall_s"):
        assert getattr(spec, name) == raw[name]
    assert spec.faults == ("kill ps-0",)
    with pytest.raises(ValueError, match="unknown key 'more'"):
        RunInfo.from_json(json.dumps({**raw, "more": 1}))


def test_the_commands_read_it(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", RUN, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    stored = json.loads(run.summary_path.read_text())
    # Its losses are those of the last records: `lab show` computes the means anew.
    assert all("loss_records" not in task for task in stored["tasks"])
    assert {task.pop("loss_records") for task in shown["tasks"]} == {None, 2}
    for name in ("staleness_sum", "staleness_steps"):  # its records have no sum
        assert {task.pop(name) for task in shown["tasks"]} == {None}
    for task in (*shown["tasks"], *stored["tasks"]):
        task.pop("loss")
    assert shown == stored
    assert main(["show", "last"]) == 0
    assert "worker-2" in capsys.readouterr().out
    assert main(["runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run_id"], row["experiment"], row["state"]) == (RUN, "async", "succeeded")


def test_it_is_compared_with_one_of_the_present_format(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    other = RunDir(run.path.with_name("20261124-0700-async-aaaa"))
    shutil.copytree(run.path, other.path)
    other.write(replace(run.read(), run_id=other.run_id))
    assert json.loads(other.info_path.read_text())["spec"]["experiment"] == "async"
    assert main(["compare", run.run_id, other.run_id, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["made"], found["alike"]["seed"]) == ({}, SEED.removeprefix("--seed="))


def test_its_request_is_read() -> None:
    request = Request.from_json((RECORDED / "request.json").read_text())
    assert (request.run_id, request.spec.args[0], request.spec.ready_s) == (RUN, SEED, 120.0)
    assert request.tasks() == ["ps-0", "worker-0", "worker-1", "worker-2"]
