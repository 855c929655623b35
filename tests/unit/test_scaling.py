"""The benchmark of scaling: what is counted, how costs come of it, and the page; nothing timed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import elsewhere, scaling, scaling_page
from benchmarks.calibration import ASYNC, FITTED, SHAPES, calibrate
from benchmarks.shapes import Measured, description, measured, middle
from benchmarks.steps import UnfitError
from benchmarks.watching import Look, Watcher, loopback_bytes
from lab.cluster import load_cluster
from lab.records import Record
from lab.simulation import Box, Costs, Shape, Way, simulate

ROOT = Path(__file__).parents[2]
DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
  eth0: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0
    lo: {bytes} 10 0 0 0 0 0 0 {bytes} 10 0 0 0 0 0 0
"""


def a_process(
    proc: Path, pid: int, task: str, *, ticks: int = 0, net: str = "net:[2]", bytes_: int = 0
) -> Path:
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "net").mkdir()
    (folder / "environ").write_bytes(f"LAB_STATE=/here\0LAB_TASK={task}\0".encode())
    (folder / "cmdline").write_bytes(b"python\0/scripts/mnist_async.py\0--job_name=x\0")
    fields = ["S", *"0" * 10, str(ticks), str(ticks), *"0" * 20]
    (folder / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}")
    (folder / "ns/net").symlink_to(net)
    (folder / "net/dev").write_text(DEVICES.format(bytes=bytes_))
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    a_process(tmp_path, 11, "ps-0", ticks=50, bytes_=1000)
    a_process(tmp_path, 12, "worker-0", ticks=100, bytes_=1000)
    other = a_process(tmp_path, 13, "worker-0")
    (other / "environ").write_bytes(b"LAB_STATE=/here/else\0LAB_TASK=worker-0\0")
    agent = a_process(tmp_path, 14, "worker-0")
    (agent / "cmdline").write_bytes(b"python\0-m\0lab.task.agent\0")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/net").symlink_to("net:[1]")
    return tmp_path


def watcher(proc: Path, count: int = 2) -> Watcher:
    return Watcher(b"LAB_STATE=/here", "mnist_async.py", count, proc)


def test_programs_are_looked_at_and_nothing_else(proc: Path) -> None:
    look = watcher(proc).look()
    assert look is not None
    assert look.cpu_s["worker-0"] == 2 * look.cpu_s["ps-0"] > 0
    assert (sorted(look.cpu_s), look.wire_bytes) == (["ps-0", "worker-0"], 1000)


def test_there_is_no_look_before_all_are_there_nor_after_one_has_gone(proc: Path) -> None:
    assert watcher(proc, count=3).look() is None
    watching = watcher(proc)
    assert watching.look() is not None
    (proc / "12/stat").unlink()
    assert watching.look() is None


def test_a_loopback_that_others_share_is_not_counted(proc: Path) -> None:
    for pid in (11, 12):
        (proc / str(pid) / "ns/net").unlink()
        (proc / str(pid) / "ns/net").symlink_to("net:[1]")
    look = watcher(proc).look()
    assert look is not None
    assert look.wire_bytes is None


def test_bytes_of_the_loopback_are_counted_once() -> None:
    assert loopback_bytes(DEVICES.format(bytes=123)) == 123
    with pytest.raises(ValueError, match="no device lo"):
        loopback_bytes(DEVICES.replace("lo:", "le:"))


def records(task: int, *marks: tuple[float, int]) -> list[Record]:
    return [
        Record(kind="step", time_unix=at, global_step=step, staleness=task) for at, step in marks
    ]


def test_a_step_costs_what_was_spent_while_all_trained() -> None:
    said = {
        "worker-0": records(0, (10.0, 100), (12.0, 300), (16.0, 700)),
        "worker-1": records(1, (11.0, 200), (15.0, 600), (20.0, 1000)),
    }
    looks = [
        Look(
            at,
            {"ps-0": at, "worker-0": 2 * at, "worker-1": 3 * at},
            int(1000 * at),
        )
        for at in (5.0, 11.5, 13.0, 15.5, 18.0)
    ]
    said["worker-0"][0]["staleness"] = 99  # nor does this
    looks[0] = replace(looks[0], cpu_s=dict.fromkeys(looks[0].cpu_s, 1e9))  # before all trained
    found = measured(Shape(Way.ASYNC, 2, 1), said, looks)
    assert found.steps_per_s == pytest.approx(100)
    assert found.seconds == pytest.approx(5)
    assert found.ps_cpu_s == pytest.approx(1 / 100)
    assert found.worker_cpu_s == pytest.approx(5 / 100)
    assert found.wire_bytes == pytest.approx(10)
    assert found.staleness == pytest.approx((0 + 0 + 1 + 1) / 4)
    with pytest.raises(UnfitError, match="before two looks"):
        measured(Shape(Way.ASYNC, 2, 1), said, looks[:2])


@pytest.mark.parametrize("shape", scaling.GRID)
def test_every_shape_has_a_description_that_holds(tmp_path: Path, shape: Shape) -> None:
    (tmp_path / "cluster.yaml").write_text(description(shape))
    jobs = load_cluster(tmp_path / "cluster.yaml").jobs
    assert {name: len(job.on) for name, job in jobs.items()} == (
        {"worker": shape.workers} | ({"ps": shape.ps} if shape.ps else {})
    )


def as_measured(shape: Shape, costs: Costs) -> Measured:
    found = simulate(shape, costs, Box(2))
    return Measured(
        shape,
        found.steps_per_s,
        5.0,
        found.worker_cpu_s,
        found.ps_cpu_s,
        found.wire_bytes,
        found.staleness,
    )


def test_several_trainings_of_a_shape_are_one_by_their_medians() -> None:
    one = as_measured(Shape(Way.ASYNC, 1, 1), TRUE)
    rates = (one.steps_per_s, 9e9, 1.0)
    several = [replace(one, steps_per_s=rate, wire_bytes=None, staleness=rate) for rate in rates]
    assert middle(several) == replace(one, wire_bytes=None, staleness=one.steps_per_s)


TRUE = Costs(
    session_s=3e-4,
    update_s=2e-4,
    eager_s=1e-4,
    image_s=5e-6,
    call_s=5e-5,
    hop_s=9e-5,
    byte_s=2e-11,
    apply_byte_s=5e-11,
    crowding=0.7,
    wait_s=8e-5,
    hop_wait_s=1e-4,
    call_bytes=450.0,
)


def test_known_costs_are_found_again() -> None:
    found = {shape: as_measured(shape, TRUE) for shape in SHAPES}
    costs = calibrate(found, Costs(byte_s=TRUE.byte_s, apply_byte_s=TRUE.apply_byte_s), cores=2)
    for cost, shape, figure, _ in FITTED:
        again = figure(simulate(shape, costs, Box(2)))
        assert again == pytest.approx(figure(found[shape]), rel=0.05), cost
    assert costs.call_bytes == pytest.approx(TRUE.call_bytes, rel=0.05)
    assert costs.image_s == pytest.approx(TRUE.image_s, rel=0.3)
    for shape in (Shape(Way.ASYNC, 4, 2), Shape(Way.SYNC, 2, 1), Shape(Way.RING, 4, 0)):
        foretold, true = (simulate(shape, each, Box(2)) for each in (costs, TRUE))
        assert foretold.steps_per_s == pytest.approx(true.steps_per_s, rel=0.1)


def test_errors_are_those_of_shapes_that_did_not_calibrate() -> None:
    shapes = (*SHAPES, Shape(Way.ASYNC, 2, 1), Shape(Way.SYNC, 2, 1))
    found = {shape: as_measured(shape, TRUE) for shape in shapes}
    forecasts = {shape: simulate(shape, TRUE, Box(2)) for shape in shapes}
    forecasts[ASYNC] = replace(forecasts[ASYNC], steps_per_s=1e9)  # it calibrates: no error
    twice = replace(forecasts[shapes[-1]], steps_per_s=2 * found[shapes[-1]].steps_per_s)
    rate, _, wire = scaling.outcomes(found, {**forecasts, shapes[-1]: twice}, 5.0)
    assert rate.found is not None
    assert rate.found.values == pytest.approx((0.0, 1.0))
    assert rate.details == {"largest": "1.000 (sync, 2 workers, 1 ps)"}
    assert wire.found is not None
    assert len(wire.found.values) == len(shapes) - 1  # one worker alone reduces nothing
    nowhere = {shape: replace(each, wire_bytes=None) for shape, each in found.items()}
    assert [each.verdict() for each in scaling.outcomes(nowhere, forecasts, 5.0)][1:] == (
        ["not measured"] * 2
    )


def test_a_page_is_made_of_the_figures() -> None:
    shapes = (*SHAPES, Shape(Way.SYNC, 2, 1))
    rows = [
        scaling.as_json(as_measured(shape, TRUE), simulate(shape, TRUE, Box(2))) for shape in shapes
    ]
    rows[-1]["simulated"]["steps_per_s"] = 1.5 * rows[-1]["measured"]["steps_per_s"]
    scene = elsewhere.Scene("A box", "So it is.", Box(4), [Shape(Way.ASYNC, 1, 1)], 1e-3)
    figures: dict[str, Any] = {
        "when": "today",
        "machine": {"cores": 2, "cpu": "a CPU", "load_before": 0.1},
        "costs": TRUE.to_json(),
        "shapes": rows,
        "elsewhere": elsewhere.predictions(TRUE, [scene]),
    }
    text = scaling_page.markdown(json.loads(json.dumps(figures)))
    assert "| global steps per second | 50% | +50% (sync 2 x 1 ps) |" in text
    assert "| async 1 x 1 ps * |" in text
    assert "### A box\n\nSo it is.\n" in text
    assert "| `call_s` | 50.0 µs |" in text


def test_the_page_in_docs_is_made_of_the_figures_that_are_kept() -> None:
    kept = json.loads((ROOT / "benchmarks/scaling.json").read_text("utf-8"))
    assert (ROOT / "docs/scaling.md").read_text("utf-8") == scaling_page.markdown(kept)
    costs = json.loads((ROOT / "lab/simulation/costs.json").read_text("utf-8"))
    assert costs == kept["costs"]
