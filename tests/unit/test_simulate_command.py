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
from lab.simulation.calibration import Speed, calibrated, speed_of
from lab.simulation.engine import simulate
from lab.simulation.model import Costs, Host, Machine, Shape, Way
from lab.simulation.validation import SHIPPED, Shipped, factor
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.volume import RunSpec
from lab.volume.states import State

CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf2, tf2]}}
"""
COSTS = Costs(1e-3, 1e-3, 1e-3, 0.4, 0.5, 1e-3, 1e-3, 1e-3, 1e-3, 1e-6)
RATIOS = (0.8, 0.9, 1.0, 1.1, 1.2)
BEYOND = " --beyond-validated"


def a_class(way: str, times: int, error: float, change: str = "", **more: Any) -> dict[str, Any]:
    row = {"way": way, "shipped": False, "change": change, "times": times, "predictions": 12}
    row |= {"median": error / 2, "error": error, "workers": 16, "ps": 4, "share": 1.0}
    row |= {"staleness": error if way == "async" else None, "cores": [1, 2], "bandwidth": []}
    return row | more


ERRORS = [
    *(a_class(way, times, 0.05 * times) for way in Way for times in (1, 3, 8)),
    *(a_class(way, 3, 0.2, shipped=True) for way in Way),
    a_class("async", 3, 0.25, "links", bandwidth=[2.5e6, 12.5e6]),
    a_class("async", 3, 0.3, "cores"),
    a_class("sync", 1, 0.35, "slow", share=0.5),
]


@pytest.fixture(autouse=True)
def _validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores, whose errors differ between all classes."""
    shapes = [{"way": way, "workers": 2, "ps": 0 if way is Way.RING else 1} for way in Way]
    costs = {name: getattr(COSTS, name) for name in COSTS.__slots__}
    raw = {"label": "a CPU, 2 cores", "cores": 2, "costs": costs, "ratios": list(RATIOS)}
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({**raw, "shapes": shapes, "errors": ERRORS}))
    found = Shipped(path).raw
    monkeypatch.setitem(SHIPPED.__dict__, "raw", found)
    monkeypatch.setenv("LAB_RUNS_DIR", str(tmp_path / "runs"))


def a_run(tmp_path: Path, workers: int = 2, *, each_s: float = 0.01, **changes: Any) -> RunDir:
    """Write an asynchronous run whose workers make a step every `each_s` seconds."""
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
    for line in (
        "async --from last --workers 2,6,16",
        "sync --workers 1,3",
        f"async --workers 2,64 --ps 1{BEYOND}",
    ):
        assert main(["simulate", *shlex.split(line)]) == 0
        out, err = capsys.readouterr()
        assert all(len(each) <= 80 for each in out.splitlines())
        errors = [re.findall("±[0-9]+%|no known error", each) for each in out.splitlines()]
        shown[line] = [*(", ".join(each) for each in errors if each), *err.splitlines()]
    assert shown == snapshot


def test_what_was_never_validated_needs_the_flag(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    a_run(tmp_path)
    refused = {}
    for line in (
        "async --workers 17",
        "multiworker --workers 128",
        "async --workers 1 --step 2ms",
        "async --workers 1 --batch-size 10",
        "async --from last --workers 2 --links 200mbit",
        "async --from last --workers 2 --links 20mbit --latency 1ms",
        "sync --workers 2 --fault 'slow:0.5 worker-0'",
    ):
        assert main(["simulate", *shlex.split(line)]) == 2
        (refused[line],) = capsys.readouterr().err.splitlines()
        row = output(capsys, f"{line}{BEYOND}")["predictions"][0]
        assert (row["error"], row["staleness_error"]) == (None, None)
    assert refused == snapshot


def test_the_limits_of_the_classes() -> None:
    machine = replace(SHIPPED.machine, shapes=(Shape(Way.ASYNC, 2, 1),))

    def error(workers: int, ps: int = 1, host: Host = Host(2)) -> float | None:  # noqa: B008
        shape = Shape(Way.ASYNC, workers, ps)
        return SHIPPED.error(machine, shape, host, shipped=False).steps_per_s

    assert [error(workers) for workers in (2, 1, 3, 6, 7, 16)] == pytest.approx(
        [0.05, 0.15, 0.15, 0.15, 0.4, 0.4]
    )
    assert [error(2, ps) for ps in (2, 3, 4)] == pytest.approx([0.15, 0.15, 0.4])
    link = Host(2, bandwidth=2.5e6)
    assert (error(4, host=link), error(4, host=Host(1))) == pytest.approx((0.25, 0.3))
    assert error(7, host=link) is None
    one = replace(machine, shapes=(Shape(Way.ASYNC, 1, 1),))
    far = Shape(Way.ASYNC, 9, 1)
    assert "9 times the calibrated tasks" in SHIPPED.error(one, far, Host(2), shipped=False).why
    assert factor(Shape(Way.RING, 6, 0), [Shape(Way.RING, 2, 0)]) == 3


def test_a_calibration_finds_the_speed_of_a_machine() -> None:
    shape, host, faster = Shape(Way.ASYNC, 2, 1), Host(2), COSTS.scaled(0.37)
    rate = simulate(shape, faster, host, RATIOS).steps_per_s
    shipped = Machine(COSTS, RATIOS, (), host, "")
    found = calibrated(shape, host, Speed(rate, (), None), shipped)
    assert (found.costs.worker_s, found.costs.after) == pytest.approx((0.37e-3, 0.4), rel=0.01)
    assert found.ratios == RATIOS  # the records have no single steps
    linked = Host(2, bandwidth=1e5)
    with pytest.raises(ValueError, match="its links limit its speed"):
        calibrated(shape, linked, Speed(rate, (), None), shipped)


def test_the_speed_of_a_run(tmp_path: Path) -> None:
    def records(run: RunDir) -> list[list[dict[str, Any]]]:
        names = ("worker-0", "worker-1")
        return [[json.loads(line) for line in run.records(name).open()] for name in names]

    steps = records(a_run(tmp_path))
    found = speed_of(steps)
    assert (found.steps_per_s, found.staleness) == pytest.approx((200, 1))
    assert found.ratios == pytest.approx([1.0] * 118)
    begun = [each | {"time_unix": each["time_unix"] - 1, "global_step": 0} for each in steps[0][:9]]
    assert speed_of([begun + steps[0], steps[1]]).steps_per_s == pytest.approx(200)
    late = [steps[0], [each | {"time_unix": each["time_unix"] + 9} for each in steps[1]]]
    with pytest.raises(ValueError, match="fewer than 5 step records"):
        speed_of(late)
    every_tenth = [steps[0][::10], steps[1][::10]]
    assert speed_of(every_tenth).ratios == ()


UNFIT: dict[str, dict[str, Any]] = {
    "own": {"spec": RunSpec("async", own=True)},
    "sync": {"spec": RunSpec("sync")},
    "failed": {"state": State.FAILED},
    "faults": {"spec": RunSpec("async", faults=("pause:1s worker-1",))},
    "cores": {"provenance": {}},
    "links": {"plan": {"nodes": [{"link": None}, {"link": {"rate_bits": 9}}], "tasks": []}},
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


def test_a_config_gives_the_tasks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    (row,) = output(capsys, f"async --cluster {file}")["predictions"]
    assert (row["workers"], row["ps"]) == (3, 1)
    line = f"async --cluster {file} --links 1mbit{BEYOND}"
    slow = output(capsys, line)["predictions"][0]["steps_per_s"]
    file.write_text(CLUSTER.replace("[tf2, tf2, tf2]", "[tf1, tf1, tf1]"))
    network = f"async --workers 4 --network 100Gbit --latency 5us --cores 2 --step 2ms{BEYOND}"
    host = {"cores": 2, "separate": True, "bandwidth": 12.5e9, "latency_s": 5e-6}
    assert output(capsys, network)["host"] == host
    # On the server's node a worker's bytes do not cross the slow link.
    assert output(capsys, line)["predictions"][0]["steps_per_s"] > 10 * slow
    file.write_text(CLUSTER.replace("ps: {on: [tf1]}, ", ""))
    assert main(["simulate", "sync", "--cluster", str(file)]) == 2
    assert f"{file} has no job 'ps', which sync needs" in capsys.readouterr().err
