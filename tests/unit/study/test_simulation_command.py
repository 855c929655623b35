"""`lab simulate`: its table, its JSON, its errors by class, and its refusals."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.cli import main
from lab.protocol.volume import RunSpec
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.study.simulation.discrete_events import Costs, Shape, Way, simulate
from lab.study.simulation.machine import Machine, calibrated, error_of, factor, speed_of

COSTS = Costs(1e-3, 1e-3, 1e-3, 0.4, 0.5, 1e-3, 1e-3, 1e-3, 1e-3, 1e-6)
RATIOS = (0.8, 0.9, 1.0, 1.1, 1.2)
SHAPES = tuple(Shape(way, 2, 0 if way is Way.RING else 1) for way in Way)
MACHINE = Machine("a CPU, 2 cores", 2, COSTS, RATIOS, SHAPES)


@pytest.fixture(autouse=True)
def _validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores, whose errors differ between all classes."""
    errors = {(way, True, times): 0.05 * times for way in Way for times in (1, 3)}
    errors |= {(way, False, 3): 0.2 for way in Way}
    monkeypatch.setattr("lab.study.simulation.machine.ERRORS", errors)
    monkeypatch.setattr("lab.study.simulation.machine.SHIPPED", MACHINE)
    monkeypatch.setenv("LAB_RUNS_DIR", str(tmp_path / "runs"))


def a_run(tmp_path: Path, workers: int = 2, *, each_s: float = 0.01, **changes: Any) -> RunDir:
    tasks = ["ps-0", *(f"worker-{number}" for number in range(workers))]
    no_link = [{"name": "tf1", "link": None}]
    info = RunInfo(
        run_id="20260101-0000-async-0000",
        spec=RunSpec("async"),
        state=State.SUCCEEDED,
        hyperparameters={"model": "softmax", "batch_size": 100},
        cluster={"ps": ["tf1:1"], "worker": ["tf1:2"] * workers},
        tasks=tuple({"task": task, "node": "tf1"} for task in tasks),
        plan={"nodes": no_link, "tasks": [{"cpus": None} for _ in tasks]},
        provenance={"cpus": "2"},
        started_unix=1e9,
        submitted_unix=1e9,
    )
    run = RunDir(tmp_path / "runs" / info.run_id)
    run.create(replace(info, **changes))
    for worker in range(workers):
        lines = [
            {"kind": "step", "local_step": step, "global_step": workers * step, "staleness": 1,
             "time_unix": 1e9 + step * each_s, "elapsed_s": step * each_s}
            for step in range(1, 61)
        ]  # fmt: skip
        file = run.records(f"worker-{worker}")
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def output(capsys: pytest.CaptureFixture[str], line: str) -> Any:
    assert main(["simulate", *shlex.split(line), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_figure_has_its_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    a_run(tmp_path)
    shown = {}
    for line in ("async --from last", "sync --workers 1,3", "async --workers 2,5 --ps 1,3"):
        assert main(["simulate", *shlex.split(line)]) == 0
        out, err = capsys.readouterr()
        assert all(len(row) <= 80 for row in out.splitlines())
        rows = [(row.split()[0], re.findall("±[0-9]+%", row)) for row in out.splitlines()[2:]]
        shown[line] = [*rows, *err.splitlines()]
    assert shown == snapshot


@pytest.mark.parametrize(
    ("changes", "wanted", "reason"),
    [
        ({"provenance": {"cpus": "64"}}, "2", "64 cores (validated: up to 2)"),
        ({"workers": 8}, "17", "17 workers (validated: up to 16)"),
    ],
)
def test_an_unknown_error_is_said(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    changes: dict[str, Any],
    wanted: str,
    reason: str,
) -> None:
    a_run(tmp_path, **changes)
    assert main(["simulate", "async", "--from", "last", "--workers", wanted]) == 0
    out, err = capsys.readouterr()
    assert "±" not in out
    assert err.splitlines()[1:] == [f"no known error with {reason}"]


def test_limits_that_slow_no_task_do_not_matter(tmp_path: Path) -> None:
    limited = {"nodes": [], "tasks": [{"cpus": 2.0}, {"cpus": 4}, {"cpus": None}]}
    a_run(tmp_path, plan=limited)
    assert main(["simulate", "async", "--from", "last"]) == 0


def test_the_limits_of_the_classes() -> None:
    machine = MACHINE._replace(shapes=(Shape(Way.ASYNC, 2, 1),), is_run=True)

    def speed(workers: int, ps: int = 1) -> float:
        error = error_of(Shape(Way.ASYNC, workers, ps), machine)
        assert error
        return error

    assert [speed(workers) for workers in (2, 1, 3, 6)] == pytest.approx([0.05, 0.15, 0.15, 0.15])
    assert [speed(2, ps) for ps in (2, 3)] == pytest.approx([0.15, 0.15])
    assert error_of(Shape(Way.ASYNC, 7, 1), machine) is None
    ring = machine._replace(shapes=(Shape(Way.RING, 2, 0),))
    assert factor(Shape(Way.RING, 6, 0), ring) == 3
    assert factor(Shape(Way.RING, 1, 0), ring) == 2


def test_seeds_change_the_step_times(capsys: pytest.CaptureFixture[str]) -> None:
    one, again, other = (output(capsys, f"sync --seed {seed}")["predictions"] for seed in (1, 1, 2))
    assert one == again != other
    assert [row["workers"] for row in one] == [2, 4, 6]
    assert {row["ps"] for row in one} == {1}


@pytest.mark.parametrize("way", list(Way))
def test_a_calibration_finds_the_speed_of_a_machine(way: Way) -> None:
    shape = Shape(way, 2, 0 if way is Way.RING else 1)
    rate = simulate(shape, COSTS.scaled(0.37), 2, RATIOS).steps_per_s
    own = calibrated(shape, 2, rate)
    assert (own.costs.worker_s, own.costs.after) == pytest.approx((0.37e-3, 0.4), rel=0.01)
    assert simulate(shape, own.costs, 2, RATIOS).steps_per_s == pytest.approx(rate, rel=0.01)


def test_the_speed_of_a_run(tmp_path: Path) -> None:
    def records(run: RunDir) -> list[list[dict[str, Any]]]:
        names = ("worker-0", "worker-1")
        return [[json.loads(line) for line in run.records(name).open()] for name in names]

    steps = records(a_run(tmp_path))
    assert speed_of(steps) == pytest.approx(200)
    begun = [each | {"time_unix": each["time_unix"] - 1, "global_step": 0} for each in steps[0][:9]]
    assert speed_of([begun + steps[0], steps[1]]) == pytest.approx(200)
    late = [steps[0], [each | {"time_unix": each["time_unix"] + 9} for each in steps[1]]]
    with pytest.raises(ValueError, match="fewer than 5 step records"):
        speed_of(late)


UNFIT: dict[str, dict[str, Any]] = {
    "own": {"spec": RunSpec("async", own=True)},
    "sync": {"spec": RunSpec("sync")},
    "failed": {"state": State.FAILED},
    "faults": {"spec": RunSpec("async", faults=("pause:1s worker-1",))},
    "cores": {"provenance": {}},
    "links": {"plan": {"nodes": [{"link": None}, {"link": {"rate_bits": 9}}], "tasks": []}},
    "CPU limits": {"plan": {"nodes": [], "tasks": [{"cpus": 1}]}},
    "a model": {"hyperparameters": {"model": "mlp", "batch_size": 100}},
    "a batch": {"hyperparameters": {"model": "softmax", "batch_size": 10}},
    "a silent worker": {},
}


def test_a_run_that_cannot_calibrate_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    refused = {}
    for name, changes in UNFIT.items():
        run = a_run(tmp_path / name, **changes)
        if "silent" in name:
            run.records("worker-1").unlink()
        assert main(["simulate", "async", "--from", str(run.path)]) == 2
        (refused[name],) = capsys.readouterr().err.splitlines()
    assert refused == snapshot
