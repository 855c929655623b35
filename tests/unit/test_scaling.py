"""The benchmark of scaling: its counts, its fitted costs, and its page; nothing is timed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import calibration, microcosts, other_hosts, scaling, scaling_page, slow_link
from benchmarks.calibration import ASYNC, FITTED, SHAPES, SYNC, calibrate, calibrates
from benchmarks.measure import Setting
from benchmarks.shapes import Measured, config_text, measured, middle
from benchmarks.steps import UnfitError
from benchmarks.trainings import Workplace
from benchmarks.watcher import Sample, Watcher, busy_s, loopback_bytes
from lab.config import load_cluster
from lab.records import Record
from lab.simulation import Box, Costs, Shape, Way, simulate

ROOT = Path(__file__).parents[2]
DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
  eth0: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0
    lo: {bytes} 10 0 0 0 0 0 0 {bytes} 10 0 0 0 0 0 0
"""

STAT = """\
cpu  100 20 30 4000 500 6 7 8 90 10
cpu0 50 10 15 2000 250 3 3 4 45 5
"""


def a_process(
    proc: Path, pid: int, task: str, *, ticks: int = 0, net: str = "net:[2]", bytes_: int = 0
) -> Path:
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "net").mkdir()
    (folder / "environ").write_bytes(f"LAB_STATE=/here\0LAB_TASK={task}\0".encode())
    (folder / "cmdline").write_bytes(b"python\0/scripts/mnist_async.py\0--job_name=x\0")
    (folder / "comm").write_text("python\n")
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
    (tmp_path / "stat").write_text(STAT)
    return tmp_path


def watcher(proc: Path, count: int = 2) -> Watcher:
    return Watcher(b"LAB_STATE=/here", "mnist_async.py", count, proc)


def test_a_forked_program_has_its_tasks_name(proc: Path) -> None:
    (proc / "11/cmdline").write_bytes(b"python\0-c\0import sys\0")
    (proc / "11/environ").write_bytes(b"LAB_STATE=/here\0")
    assert watcher(proc).sample() is None
    (proc / "11/comm").write_text("ps-0\n")
    assert (sample := watcher(proc).sample()) is not None and sorted(sample.cpu_s) == [
        "ps-0",
        "worker-0",
    ]


def test_only_programs_are_sampled(proc: Path) -> None:
    sample = watcher(proc).sample()
    assert sample is not None
    assert sample.cpu_s["worker-0"] == 2 * sample.cpu_s["ps-0"] > 0
    assert (sorted(sample.cpu_s), sample.wire_bytes) == (["ps-0", "worker-0"], 1000)
    # A tick is as long as those of the programs: 100 of them are the server's 2 * 50.
    assert sample.busy_s == pytest.approx((100 + 20 + 30 + 6 + 7 + 8) / 100 * sample.cpu_s["ps-0"])


def test_programs_are_sampled_only_while_all_run(proc: Path) -> None:
    assert watcher(proc, count=3).sample() is None
    watching = watcher(proc)
    assert watching.sample() is not None
    (proc / "12/stat").unlink()
    assert watching.sample() is None


def test_a_loopback_that_others_share_is_not_counted(proc: Path) -> None:
    for pid in (11, 12):
        (proc / str(pid) / "ns/net").unlink()
        (proc / str(pid) / "ns/net").symlink_to("net:[1]")
    sample = watcher(proc).sample()
    assert sample is not None
    assert sample.wire_bytes is None


def test_bytes_of_the_loopback_are_counted_once() -> None:
    assert loopback_bytes(DEVICES.format(bytes=123)) == 123
    with pytest.raises(ValueError, match="no device lo"):
        loopback_bytes(DEVICES.replace("lo:", "le:"))
    with pytest.raises(ValueError, match="no line cpu"):
        busy_s("cpu0 1 2 3 4 5 6 7 8\n")


def records(task: int, *marks: tuple[float, int]) -> list[Record]:
    return [
        Record(kind="step", time_unix=at, global_step=step, staleness=task) for at, step in marks
    ]


def test_a_step_costs_what_was_spent_while_all_trained() -> None:
    said = {
        "worker-0": records(0, (10.0, 100), (12.0, 300), (16.0, 700)),
        "worker-1": records(1, (11.0, 200), (15.0, 600), (20.0, 1000)),
    }
    samples = [
        Sample(
            at,
            {"ps-0": at, "worker-0": 2 * at, "worker-1": 3 * at},
            6.75 * at,
            int(1000 * at),
        )
        for at in (5.0, 11.5, 13.0, 15.5, 18.0)
    ]
    said["worker-0"][0]["staleness"] = 99  # nor does this
    samples[0] = replace(
        samples[0], cpu_s=dict.fromkeys(samples[0].cpu_s, 1e9)
    )  # before all trained
    found = measured(Shape(Way.ASYNC, 2, 1), said, samples)
    assert found.steps_per_s == pytest.approx(100)
    assert found.seconds == pytest.approx(5)
    assert found.ps_cpu_s == pytest.approx(1 / 100)
    assert found.worker_cpu_s == pytest.approx(5 / 100)
    assert found.wire_bytes == pytest.approx(10)
    assert found.staleness == pytest.approx((0 + 0 + 1 + 1) / 4)
    assert found.taken == pytest.approx(0.75)  # of the 6.75 cores that were busy 6 were ours
    assert found.box(8) == Box(8, taken=found.taken)
    idle = [replace(sample, busy_s=5.9 * sample.time_unix) for sample in samples]
    assert measured(Shape(Way.ASYNC, 2, 1), said, idle).taken == 0
    with pytest.raises(UnfitError, match="too short for two samples"):
        measured(Shape(Way.ASYNC, 2, 1), said, samples[:2])


@pytest.mark.parametrize("shape", scaling.GRID)
def test_every_shape_has_a_valid_config(tmp_path: Path, shape: Shape) -> None:
    (tmp_path / "cluster.yaml").write_text(config_text(shape))
    jobs = load_cluster(tmp_path / "cluster.yaml").jobs
    assert {name: len(job.on) for name, job in jobs.items()} == (
        {"worker": shape.workers} | ({"ps": shape.ps} if shape.ps else {})
    )


def as_measured(shape: Shape, costs: Costs, taken: float | None = None) -> Measured:
    found = simulate(shape, costs, Box(2, taken=taken or 0.0))
    return Measured(
        shape,
        found.steps_per_s,
        5.0,
        found.worker_cpu_s,
        found.ps_cpu_s,
        found.wire_bytes,
        found.staleness,
        taken,
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
    feed_s=4e-6,
    image_s=1e-6,
    call_s=5e-5,
    hop_s=9e-5,
    byte_s=2e-11,
    apply_byte_s=5e-11,
    crowding=0.7,
    wait_s=8e-5,
    hop_wait_s=1e-4,
    call_bytes=450.0,
)


MICRO = Costs(image_s=TRUE.image_s, byte_s=TRUE.byte_s, apply_byte_s=TRUE.apply_byte_s)


def test_known_costs_are_found_again() -> None:
    found = {shape: as_measured(shape, TRUE, taken=0.4) for shape in SHAPES}
    costs = calibrate(found, MICRO, cores=2)
    for fit in FITTED:
        again = simulate(fit.shape, costs, found[fit.shape].box(2))
        assert fit.off(found[fit.shape], again) == pytest.approx(0, abs=0.05), fit.cost
    assert costs.call_bytes == pytest.approx(TRUE.call_bytes, rel=0.05)
    assert costs.feed_s == pytest.approx(TRUE.feed_s, rel=0.3)
    for shape in (Shape(Way.ASYNC, 4, 2), Shape(Way.SYNC, 2, 1), Shape(Way.RING, 4, 0)):
        foretold, true = (simulate(shape, each, Box(2)) for each in (costs, TRUE))
        assert foretold.steps_per_s == pytest.approx(true.steps_per_s, rel=0.1)


def test_a_cost_that_would_be_negative_is_nothing_and_its_figure_is_not_met() -> None:
    found = {shape: as_measured(shape, TRUE) for shape in SHAPES}
    found[SYNC] = replace(found[SYNC], worker_cpu_s=found[SYNC].worker_cpu_s / 2)
    costs = calibrate(found, MICRO, cores=2)
    forecasts = {shape: simulate(shape, costs, Box(2)) for shape in SHAPES}
    figures = scaling.as_json({shape: [each] for shape, each in found.items()}, forecasts, costs)
    assert costs.update_s == 0
    assert figures["off"]["update_s"] > 0.2
    assert abs(figures["off"]["session_s"]) < 0.05
    text = scaling_page.markdown(a_page(figures), None)
    assert "**The figure for `update_s` is not met** (+" in text
    assert "is not met** (+" not in text.replace("`update_s` is not met", "")


def test_calibration_figures_test_nothing() -> None:
    assert calibrates(ASYNC, "steps_per_s")
    assert calibrates(ASYNC, "wire_bytes")
    assert calibrates(ASYNC, "cpu_s")  # calibrated by worker and server
    assert not calibrates(SYNC, "steps_per_s")
    assert calibrates(SYNC, "cpu_s")
    assert not calibrates(Shape(Way.ASYNC, 2, 1), "steps_per_s")


def test_errors_are_those_of_figures_that_did_not_calibrate() -> None:
    shapes = (*SHAPES, Shape(Way.ASYNC, 2, 1), Shape(Way.SYNC, 2, 1))
    found = {shape: [as_measured(shape, TRUE)] for shape in shapes}
    forecasts = {shape: simulate(shape, TRUE, Box(2)) for shape in shapes}
    forecasts[ASYNC] = replace(forecasts[ASYNC], steps_per_s=1e9)  # it calibrates: no error
    twice = replace(forecasts[shapes[-1]], steps_per_s=2 * found[shapes[-1]][0].steps_per_s)
    rate, wired, wire = scaling.outcomes(found, {**forecasts, shapes[-1]: twice}, 5.0)
    assert rate.found is not None
    # All but async 1 x 1 and multiworker 2, whose rates have calibrated a message's wait.
    assert rate.found.values == pytest.approx((0.0,) * 5 + (1.0,))
    assert (rate.found.median, rate.found.low, rate.found.high) == pytest.approx((0, 0, 1))
    assert rate.details == {"largest": "1.000 (sync, 2 workers, 1 ps)"}
    assert (rate.verdict(), rate.to_json()["repeated"]) == ("met", False)
    assert wired.found is not None
    assert len(wired.found.values) == len(shapes) - 2  # nor the one for the headers of a call
    assert wire.found is not None
    assert len(wire.found.values) == len(shapes) - 1  # a single worker reduces nothing
    nowhere = {shape: [replace(each[0], wire_bytes=None)] for shape, each in found.items()}
    assert [each.verdict() for each in scaling.outcomes(nowhere, forecasts, 5.0)][1:] == (
        ["not measured"] * 2
    )


def test_the_first_training_sets_the_step_count() -> None:
    asked: list[tuple[int, int]] = []

    def train(shape: Shape, steps: int, every: int) -> Measured:
        asked.append((steps, every))
        return replace(as_measured(shape, TRUE), steps_per_s=800.0, seconds=steps / 800)

    shape = Shape(Way.ASYNC, 2, 1)
    found = scaling.several(shape, 100.0, 6.0, 3, train)  # it is eight times as fast as believed
    assert [each.seconds for each in found] == [6.0] * 3  # the first was too short to count
    assert asked == [(600, 7), *[(4800, 60)] * 3]
    asked.clear()
    assert len(scaling.several(shape, 700.0, 6.0, 3, train)) == 3
    assert [steps for steps, _ in asked] == [4200, 4800, 4800]
    asked.clear()
    scaling.several(shape, 1.0, 6.0, 1, train)
    assert asked[0] == (scaling.LEAST_STEPS, 1)


def test_a_byte_that_costs_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microcosts, "_sent", lambda _: 0.1)
    with pytest.raises(UnfitError, match="took no longer than of one byte"):
        microcosts.byte_s()


def test_gradients_that_cost_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Workplace(ROOT, {})
    monkeypatch.setattr(microcosts, "must", lambda *_: "1.5e-06\n")
    assert microcosts.image_s(place) == 1.5e-6
    monkeypatch.setattr(microcosts, "must", lambda *_: "-2e-07\n")
    with pytest.raises(UnfitError, match="no longer than of one"):
        microcosts.image_s(place)


def test_a_byte_costs_something() -> None:
    assert microcosts._sent(1 << 20) > microcosts._sent(1) > 0


def a_page(figures: dict[str, Any]) -> dict[str, Any]:
    scene = other_hosts.Scene("A box", "So it is.", Box(4), [Shape(Way.ASYNC, 1, 1)], 1e-3)
    kept = {
        **figures,
        "when": "today",
        "machine": {"cores": 2, "cpu": "a CPU", "load_before": 0.1},
        "elsewhere": other_hosts.predictions(TRUE, [scene]),
    }
    return json.loads(json.dumps(kept))  # type: ignore[no-any-return]


def test_a_page_is_made_of_the_figures() -> None:
    fast, slow = Shape(Way.SYNC, 2, 1), Shape(Way.SYNC, 4, 1)
    found = {shape: [as_measured(shape, TRUE, 0.25)] for shape in (*SHAPES, fast, slow)}
    forecasts = scaling.simulated(found, TRUE, 2)
    rate = round(forecasts[slow].steps_per_s)
    found[slow] = [replace(found[slow][0], steps_per_s=rate * share) for share in (0.5, 1, 2)]
    forecasts[fast] = replace(
        forecasts[fast], steps_per_s=1.5 * found[fast][0].steps_per_s, worker_cpu_s=0.0
    )
    text = scaling_page.markdown(a_page(scaling.as_json(found, forecasts, TRUE)), None)
    # Six rates did not calibrate: those of six shapes and of two are seen, two are not.
    row = next(line for line in text.splitlines() if line.startswith("| global steps per second"))
    assert row.split("|")[2].strip() == "6"
    assert "+50% (sync 2 x 1 ps)" in row
    assert "| async 1 x 1 ps * |" in text
    alone = next(line for line in text.splitlines() if line.startswith("| sync 1 x 1 ps |"))
    assert "| 0.25 |" in alone  # of the cores were taken
    assert "| 100% |" in alone
    tiny = next(line for line in text.splitlines() if line.startswith("| async 1 x 1 ps, batch 1"))
    assert [cell.strip() for cell in tiny.split("|")][-4] == ""  # no efficiency of other batches
    assert f"| {rate / 2:,.0f} to {rate * 2:,.0f} |" in text
    assert "### A box\n\nSo it is.\n" in text
    assert "| `call_s` | 50.0 µs |" in text
    assert "is not met" not in text


def test_a_busy_machine_is_detected() -> None:
    kept = json.loads((ROOT / "benchmarks/scaling.json").read_text("utf-8"))
    assert "not quiet" not in scaling_page.markdown(kept, slow_link.read())
    for row in kept["shapes"]:
        row["measured"]["taken"] = 0.2
    assert "not quiet" in scaling_page.markdown(kept, slow_link.read())
    for row in kept["shapes"]:
        row["measured"]["taken"] = None
    assert "not quiet" in scaling_page.markdown(kept, slow_link.read())


def test_a_grid_is_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(place: Workplace, shape: Shape, steps: int, _every: int) -> Measured:
        assert place.folder == tmp_path
        found = as_measured(shape, TRUE, 0.2)
        return replace(found, seconds=steps / found.steps_per_s)

    files = [tmp_path / name for name in ("scaling.md", "scaling.json", "costs.json")]
    page, figures, costs = files
    other = Shape(Way.SYNC, 2, 1)
    monkeypatch.setattr(scaling, "train", train)
    monkeypatch.setattr(scaling, "image_s", lambda _place: TRUE.image_s)
    monkeypatch.setattr(scaling, "byte_s", lambda: TRUE.byte_s)
    monkeypatch.setattr(scaling, "GRID", (ASYNC, other))
    for name, less in (("FEW", 20), ("ROUNDS", 2)):  # how well it calibrates is tested above
        monkeypatch.setattr(calibration, name, less)
    scene = other_hosts.Scene("A box", "So it is.", Box(4), [ASYNC])
    monkeypatch.setattr(other_hosts, "scenes", lambda cores: [replace(scene, box=Box(cores))])
    write = partial(scaling.write, page=page, figures_file=figures, costs_file=costs)
    monkeypatch.setattr(scaling, "write", write)
    setting = Setting(Workplace(tmp_path, {}), pairs=1, quick=True, backends=())
    scaling.measure(setting)
    assert not any(file.exists() for file in files)  # a check writes nothing
    rate, *_ = scaling.measure(replace(setting, quick=False))
    assert rate.found is not None
    assert rate.found.high < 0.2
    kept = json.loads(figures.read_text())
    assert [len(row["repeats"]) for row in kept["shapes"]] == [3] * (len(SHAPES) + 1)
    assert {row["measured"]["taken"] for row in kept["shapes"]} == {0.2}
    assert page.read_text() == scaling_page.markdown(kept, slow_link.read())
    assert Costs(**json.loads(costs.read_text())).feed_s == pytest.approx(TRUE.feed_s, rel=0.3)


def test_machines_like_those_here_have_as_many_cores() -> None:
    for cores in (2, 24):
        own, *others = other_hosts.scenes(cores)
        assert own.box.cores == cores
        assert f"Machines of {cores} cores" in own.assumes
        assert all(scene.device_s for scene in others)


def test_the_page_in_docs_is_made_of_the_figures_that_are_kept() -> None:
    kept = json.loads((ROOT / "benchmarks/scaling.json").read_text("utf-8"))
    assert (ROOT / "docs/scaling.md").read_text("utf-8") == scaling_page.markdown(
        kept, slow_link.read()
    )
    costs = json.loads((ROOT / "lab/simulation/costs.json").read_text("utf-8"))
    assert costs == kept["costs"]
