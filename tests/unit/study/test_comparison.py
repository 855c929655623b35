"""`lab compare`: the settings of runs, their results, difference and ratio."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.base.formatting import UNKNOWN, signed
from lab.cli import main
from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.study.comparison import Row, describe, diff
from tests.support.fakes import record
from tests.support.specs import run_info

A, B, C = "20261121-0810-async-aaaa", "20261121-0811-async-bbbb", "20261121-0812-sync-cccc"
D = "20261121-0813-sync-dddd"


def make(store: Path, run_id: str, loss: float = 0.5, steps: int = 100, **facts: Any) -> RunDir:
    defaults: dict[str, Any] = {
        "experiment": "async",
        "state": State.SUCCEEDED,
        "backend": "local",
        "cluster": {"ps": ["tf1:2222"], "worker": ["tf2:2222"]},
        "hyperparameters": {"epochs": 2},
        "versions": {"lab": "0.1.0"},
        "started_unix": 1000.0,
        "submitted_unix": 1000.0,
        "stopped_unix": 1010.0,
        "collected": True,
    }
    run = RunDir(store / run_id)
    run.create(run_info(run_id, **{**defaults, **facts}))
    lines = [
        record("worker-0", n, local_step=n * steps, global_step=n * steps, loss=loss, staleness=n,
               time_unix=1002.0 + n, step_time_s=0.01)
        for n in range(3)
    ]  # fmt: skip
    lines.append(record("worker-0", 3, "eval", accuracy=0.5 + steps / 1000))
    records = run.records("worker-0")
    records.parent.mkdir()
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run.path / "status").mkdir()
    for task in ("ps-0", "worker-0"):
        status = TaskStatus(task, State.SUCCEEDED, started_unix=1000.0, ended_unix=1008.0)
        run.status(task).write_text(status.to_json())
    return run


@pytest.fixture
def compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: str) -> str:
        assert main(["compare", *arguments, "--runs-dir", str(tmp_path)]) == 0
        return capsys.readouterr().out

    return call


def of(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}  ")]
    return line[len(name) :].split()


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_two_runs_side_by_side(
    tmp_path: Path, compare: Callable[..., str], snapshot: SnapshotAssertion
) -> None:
    make(tmp_path, A, hyperparameters={"epochs": 2, "seed": 1})
    make(tmp_path, B, loss=0.25, steps=150, hyperparameters={"epochs": 2, "seed": 2},
         faults=("kill worker-0 after 5 steps",))  # fmt: skip
    text, everything = compare(A, B), compare(A, B, "--all")
    assert of(text, "global step") == ["200", "300", "+100", "1.500"]
    assert not re.search("^epochs", text, re.MULTILINE)
    assert of(everything, "epochs") == ["2"]
    assert {"few": plain(text), "all": plain(everything)} == snapshot
    assert compare(A, B, "--json") == compare(A, B, "--json", "--all")


def test_a_training_that_diverged_is_shown_beside_one_that_did_not(
    tmp_path: Path, compare: Callable[..., str], snapshot: SnapshotAssertion
) -> None:
    for run_id, loss in ((A, math.nan), (B, 0.5), (C, math.nan)):
        make(tmp_path, run_id, loss=loss)
    found = {row["name"]: row for row in json.loads(compare(A, B, "--json"))["figures"]}
    loss = found["final loss (mean)"]
    assert (loss["values"], loss["values_is"]) == ([None, 0.5], {"0": "nan"})
    assert (loss["differences"], loss["ratios"]) == ([None, None], [None, None])
    assert found["diverged at step"]["values"] == [0, None]
    # What matters is shown even if it is the same.
    assert {"one": plain(compare(A, B)), "both": plain(compare(A, C))} == snapshot


def row(name: str, unit: str, first: float, other: float | None) -> dict[str, Any]:
    """A metric of two runs in the JSON; without the other run's value, nothing is compared."""
    differences = [0, None if other is None else other - first]
    ratios = [1.0, None if other is None else other / first] if first else [None, None]
    compared = {"values": [first, other], "differences": differences, "ratios": ratios}
    return {"name": name, "unit": unit, **compared}


def test_the_same_for_a_program(tmp_path: Path, compare: Callable[..., str]) -> None:
    ours, theirs = 100, 150  # steps a second, for two seconds
    workers = {"worker": ["tf2:2222", "tf3:2222"]}
    runs = [
        make(tmp_path, A, steps=ours),
        make(tmp_path, B, steps=theirs, backend="compose", cluster=workers),
    ]
    found = json.loads(compare(A, B, "--json"))
    same = {"experiment": "async", "state": "succeeded", "label": "", "updates_conserved": None}
    assert found["runs"] == [
        {"run_id": run_id, "backend": backend, "started_unix": 1000.0, **same}
        for run_id, backend in ((A, "local"), (B, "compose"))
    ]
    settings = [describe(run, run.read()) for run in runs]
    assert found["made"] == {
        name: [each[name] for each in settings] for name in ("backend", "tasks")
    }
    assert found["alike"] == {name: settings[0][name] for name in diff(settings)[1]}
    of_steps = row("step time (median)", "s", 0.01, 0.01)
    problems = ("steps repeated", "tasks restarted", "records lost")
    assert found["figures"] == [
        row("final loss (mean)", "loss", 0.5, 0.5),
        row("global step", "count", 2 * ours, 2 * theirs),
        row("global steps/s", "1/s", ours, theirs),
        row("wall time", "s", 10, 10),
        row("first step (all workers)", "s", 2, None),  # a worker made none
        *(row(problem, "count", 0, 0) for problem in problems),
        of_steps,
    ]
    worker = [
        row("local steps", "count", 2 * ours, 2 * theirs),
        row("local steps/s", "1/s", ours, theirs),
        row("final loss", "loss", 0.5, 0.5),
        row("accuracy", "share", 0.5 + ours / 1000, 0.5 + theirs / 1000),
        row("time", "s", 8, 8),
        of_steps,
    ]
    server = [row("time", "s", 8, None)]  # a missing task is left empty
    assert found["tasks"] == {"ps-0": server, "worker-0": worker, "worker-1": []}


def test_equal_results_of_several_tasks_are_one_row(
    tmp_path: Path, compare: Callable[..., str]
) -> None:
    workers = ["tf2:2222", "tf3:2222"]
    for run_id, second in ((A, 2), (B, 1)):
        run = make(tmp_path, run_id, cluster={"worker": workers})
        for n, value in enumerate((2, second)):
            lines = [record(f"worker-{n}", 9, "result", name="ranks", value=value)]
            with run.records(f"worker-{n}").open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
    found = {row["name"]: row["values"] for row in json.loads(compare(A, B, "--json"))["figures"]}
    assert (found["ranks"], found["ranks, worker-1"]) == ([2, 2], [None, 1])
    assert not any("ranks" in name for name in found.keys() - {"ranks", "ranks, worker-1"})


def test_it_fits_a_terminal_of_80_columns_however_many_runs_there_are(
    tmp_path: Path, compare: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, run_id in enumerate((A, B, C, D), 1):
        make(tmp_path, run_id, steps=number * 123_456, args=(f"--file={'x' * 300}{number}",))
    monkeypatch.setattr("lab.base.tables.PIPE_WIDTH", 80)
    monkeypatch.setattr("lab.study.comparison.terminal_width", lambda _: 80)
    text = compare(A, B, C)
    assert of(text, "global step") == [
        "246,912", "493,824", "+246,912", "2.000", "740,736", "+493,824", "3.000",
    ]  # fmt: skip
    more = compare(A, B, C, D)
    assert "hidden at this width: B / A, C / A" in more
    for shown in (text, more):
        assert max(map(len, shown.splitlines())) <= 80
        assert "…" not in shown
    assert "".join(text.split()).count("x" * 20) >= 3


def test_hostile_text_stays_text(tmp_path: Path, compare: Callable[..., str]) -> None:
    evil = "\x1b]0;owned\x07[bold red]x[/]"
    make(tmp_path, A)
    run = make(tmp_path, B, backend=evil, hyperparameters={evil: evil}, faults=(evil,), seed=3)
    line = record("worker-0", 4, "result", name=evil, value=1.0)
    with run.records("worker-0").open("a") as file:
        file.write(json.dumps(line) + "\n")
    text = compare(A, B)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b]0;owned\x07[bold red]x[/]" in text
    # No name pushes figures off the screen.
    assert of(text, r"\x1b]0;owned\x07[bold r…") == [UNKNOWN, "1"]


def test_how_a_run_was_made(tmp_path: Path) -> None:
    run = make(
        tmp_path, A, own=True, program="mine.py", args=("--epochs=2", "--depth", "3"),
        hyperparameters={}, on_failure=OnFailure.RESTART, restarts=2, listing="mend",
        start={"worker-0": "10s"}, git={"commit": "c0ffee" * 7, "dirty": True},
        provenance={"image": "sha256:" + "ab" * 32},
    )  # fmt: skip
    facts = describe(run, run.read())
    assert facts["other arguments"] == "--epochs=2 --depth 3"
    assert facts["on failure"] == "restart:2"
    assert facts["listing"] == "mend"
    assert facts["start"] == "worker-0: 10s"
    assert facts["commit"] == "c0ffeec0ffee with changes"
    assert facts["image (tasks)"] == "abababababab"
    assert "resume" not in facts
    run.program.mkdir()
    (run.program / "mine.py").write_text("1")
    first = describe(run, run.read())["program"]
    (run.program / "mine.py").write_text("2")
    assert describe(run, run.read())["program"] != first


def test_a_figure_without_a_ratio() -> None:
    assert Row("x", "", [5e-324, 1e308]).ratios == [1.0, None]


def test_a_difference_names_its_reference() -> None:
    assert signed(-0.089, "s", 24.8) == "-0.1 s"
    assert signed(0.005, "s", 0.01) == "+5.00 ms"
    assert signed(None, "s", 24.8) == ""
