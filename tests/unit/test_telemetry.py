"""GPU telemetry: its samples, its end, and its sums."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.gpu import Condition, Fault, NvmlError
from lab.run import gpu_metrics
from lab.run.collect import View
from lab.run.gpu_metrics import (
    NO_FIGURES,
    GpuFigures,
    append_lines,
    figures,
    gpus_of,
    next_due,
    read_figures,
    sample_until,
    sampled,
)
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.summarize import summarize
from lab.run.summary import Summary, read_summary, write_summary
from lab.run.tables import result_table
from lab.run.view import LiveView, PlainView
from lab.task.protocol import RunSpec, TaskStatus
from lab.task.protocol.states import State
from tests.agents import PATIENCE_S
from tests.unit.fakes import PLAN, record

CARDS = {"worker-0": ("GPU-a", "GPU-b"), "worker-1": ("GPU-b",)}
INFO = RunInfo(
    run_id="r1",
    spec=RunSpec(experiment="async"),
    backend="local",
    state=State.TRAINING,
    cluster=PLAN.cluster_spec(),
    tasks=(
        {"task": "ps-0", "node": "tf1", "gpus": []},
        *({"task": task, "node": "tf2", "gpus": list(each)} for task, each in CARDS.items()),
    ),
    hyperparameters={"epochs": 50},
)


@dataclass(frozen=True)
class Sample:
    """The activity of a GPU, as the sampler reports it."""

    device_id: str
    utilisation: float | None = 0.5
    memory_used_bytes: int | None = 100
    power_w: float | None = 70.0


@dataclass
class Box:
    """GPUs controlled by the test; they end the sampling after this number of samples."""

    moments: list[list[Sample] | Exception]
    opened: list[tuple[str, ...]] = field(default_factory=list)
    closed: int = 0
    waited: list[float] = field(default_factory=list)
    now: float = 1000.0

    @contextmanager
    def open(self, ids: Sequence[str]) -> Iterator[Box]:
        self.opened.append(tuple(ids))
        try:
            yield self
        finally:
            self.closed += 1

    def sample(self) -> list[Sample]:
        moment = self.moments.pop(0)
        if isinstance(moment, Exception):
            raise moment
        return moment

    def wait(self, timeout: float) -> bool:
        self.waited.append(timeout)
        self.now += timeout
        return not self.moments

    def go(self, path: Path, view: Seen, cards: Mapping[str, Sequence[str]] = CARDS) -> None:
        """Sample until the data ends; without sleep."""
        # The clock is read once: it may be changed during a run.
        times: Any = {"clock": iter([self.now]).__next__, "monotonic": lambda: self.now}
        sample_until(Ending(self), path, cards, view, opened=self.open, **times)


@dataclass
class Ending:
    """Raised when the host has no more data."""

    box: Box
    over: bool = False

    def is_set(self) -> bool:
        return self.over

    def wait(self, timeout: float) -> bool:
        self.over = self.box.wait(timeout)
        return self.over


@dataclass
class Seen(View):
    """The calls of a view."""

    uses: list[Mapping[str, float]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def gpus(self, use: Mapping[str, float]) -> None:
        self.uses.append(use)

    def notice(self, line: str) -> None:
        self.notices.append(line)


def fault(what: str) -> NvmlError:
    return NvmlError(what, "mend it", Fault(Condition.OTHER, "driver", "a word", "mend it"))


def both(a: float | None, b: float | None, **more: Any) -> list[Sample]:
    return [Sample("GPU-a", a, **more), Sample("GPU-b", b, **more)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_sample_has_a_line_per_gpu_and_task(tmp_path: Path) -> None:
    box, view, path = Box([both(0.25, 0.75), both(None, 1.0)]), Seen(), tmp_path / "gpu.jsonl"
    box.go(path, view)
    found = lines(path)
    assert found[0] == {
        "time_unix": 1000.0,
        "task": "worker-0",
        "gpu": "GPU-a",
        "utilisation": 0.25,
        "memory_used_bytes": 100,
        "power_w": 70.0,
    }
    named = [(line["time_unix"], line["task"], line["gpu"], line.get("shared")) for line in found]
    assert named == [
        (moment, *gpu)
        for moment in (1000.0, 1001.0)
        for gpu in (
            ("worker-0", "GPU-a", None),
            ("worker-0", "GPU-b", True),
            ("worker-1", "GPU-b", True),
        )
    ]
    assert found[3]["utilisation"] is None
    assert view.uses == [{"worker-0": 0.5, "worker-1": 0.75}, {"worker-0": 1.0, "worker-1": 1.0}]
    assert view.notices == []
    assert box.opened == [("GPU-a", "GPU-b")]  # once, each GPU once
    assert box.closed == 1
    assert box.waited == [1.0, 1.0]


def test_an_unresponsive_gpu_has_lines_with_the_error(tmp_path: Path) -> None:
    view, path = Seen(), tmp_path / "gpu.jsonl"
    Box([[Sample("GPU-a")], []]).go(path, view)
    found = lines(path)
    assert [line["utilisation"] for line in found] == [0.5, *[None] * 5]
    assert {"memory_used_bytes", "power_w"} <= found[1].keys()
    assert view.uses == [{"worker-0": 0.5}, {}]
    assert view.notices == []


def test_gpus_of_another_host_are_one_notice(tmp_path: Path) -> None:
    view, path = Seen(), tmp_path / "gpu.jsonl"
    Box([[], [], []]).go(path, view)
    assert view.notices == ["no GPU telemetry: this host has none of the run's GPUs"]
    assert not path.exists()


@pytest.mark.parametrize(
    ("due", "now", "then"), [(10.0, 10.002, 11.0), (10.0, 11.5, 12.0), (10.0, 11.0, 12.0)]
)
def test_sample_times_do_not_drift_and_missed_ones_are_skipped(
    due: float, now: float, then: float
) -> None:
    assert next_due(due, now) == then


def test_a_driver_that_does_not_answer_is_one_notice(tmp_path: Path) -> None:
    view, path = Seen(), tmp_path / "gpu.jsonl"

    @contextmanager
    def closed(_ids: Sequence[str]) -> Iterator[Box]:
        raise fault("no NVIDIA driver answers")
        yield Box([])

    sample_until(threading.Event(), path, CARDS, view, opened=closed)  # type: ignore[arg-type]
    assert view.notices == ["no GPU telemetry from here on: no NVIDIA driver answers"]
    assert not path.exists()


def test_a_lost_driver_ends_sampling_and_keeps_samples(tmp_path: Path) -> None:
    view, path = Seen(), tmp_path / "gpu.jsonl"
    box = Box([both(0.5, 0.5), fault("the NVIDIA driver failed"), both(0.5, 0.5)])
    box.go(path, view)
    assert view.notices == ["no GPU telemetry from here on: the NVIDIA driver failed"]
    assert len(lines(path)) == 3
    assert box.closed == 1


def test_a_full_disk_is_one_notice_and_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, path = Seen(), tmp_path / "gpu.jsonl"
    room = itertools.chain([10_000], [40], itertools.repeat(0))
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        left = next(room)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:left])

    monkeypatch.setattr(gpu_metrics.os, "write", full)
    Box([both(0.5, 0.5)] * 5).go(path, view)
    assert view.notices == ["no GPU telemetry from here on: gpu.jsonl: No space left on device"]
    assert len(view.uses) == 1
    assert path.read_text().endswith("}\n")
    assert len(lines(path)) == 3


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    view, path = Seen(), tmp_path / "gpu.jsonl"
    path.symlink_to(tmp_path / "elsewhere")
    Box([both(0.5, 0.5)]).go(path, view)
    assert len(view.notices) == 1
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("torn", ["", '{"task": "wor', '{"task": "a"}\n', '{"task": "a"}\n{"ta'])
def test_a_later_client_appends_after_the_last_complete_line(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "gpu.jsonl"
    path.write_text(torn)
    append_lines(path, [{"task": "b"}, {"task": "c"}])
    whole = torn[: torn.rfind("\n") + 1]
    assert path.read_text() == whole + '{"task": "b"}\n{"task": "c"}\n'


def test_samples_after_the_end_are_not_written(tmp_path: Path) -> None:
    end, view = threading.Event(), Seen()

    class Slow(Box):
        def sample(self) -> list[Sample]:
            end.set()
            return super().sample()

    box = Slow([both(0.5, 0.5)])
    sample_until(end, tmp_path / "gpu.jsonl", CARDS, view, opened=box.open)  # type: ignore[arg-type]
    assert not (tmp_path / "gpu.jsonl").exists()
    assert view.uses == []


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "r1")
    run.create(INFO)
    return run


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "lab-telemetry"]


def opens(monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Any]) -> None:
    monkeypatch.setattr(gpu_metrics, "_nvml", opened)


def test_the_thread_runs_while_the_run_is_followed(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = threading.Event()
    masks: list[set[signal.Signals]] = []

    class First(Seen):
        def gpus(self, use: Mapping[str, float]) -> None:
            masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))  # type: ignore[arg-type]
            first.set()

    opens(monkeypatch, Box([both(0.5, 0.5)] * 100).open)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with sampled(run, INFO, First()):
        assert first.wait(PATIENCE_S)
        assert len(threads()) == 1
        assert threads()[0].daemon
    assert threads() == []
    assert len(lines(run.gpu_samples)) % 3 == 0
    # Ctrl-C is delivered to the main thread, which handles it in time.
    assert signal.SIGINT in masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_hanging_driver_delays_no_run(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    class Hanging(Box):
        def sample(self) -> list[Sample]:
            asked.set()
            answers.wait(20)
            return super().sample()

    opens(monkeypatch, Hanging([both(0.5, 0.5)]).open)
    monkeypatch.setattr(gpu_metrics, "PATIENCE_S", 0.01)
    view = Seen()
    with sampled(run, INFO, view):
        assert asked.wait(PATIENCE_S)
    (thread,) = threads()
    answers.set()
    thread.join(20)
    assert not run.gpu_samples.exists()
    assert view.uses == []


def without(**changes: Any) -> RunInfo:
    return replace(INFO, **changes)


@pytest.mark.parametrize(
    "info",
    [
        without(tasks=({"task": "worker-0", "node": "tf2", "gpus": []},)),
        without(backend="class"),  # a seat sees no GPU of the host
        without(tasks=({"task": "worker-0", "node": "tf2", "gpus": ["0", "1"]},)),
        without(tasks=()),
        without(state=State.SUCCEEDED),
    ],
    ids=["no card", "in a seat", "indices of some box", "no tasks", "ended"],
)
def test_nothing_happens_without_gpus(
    run: RunDir, info: RunInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens(monkeypatch, lambda _ids: pytest.fail("asked the driver"))
    with sampled(run, info, Seen()):
        assert threads() == []
    assert not run.gpu_samples.exists()


def test_slices_are_sampled_too() -> None:
    info = without(tasks=({"task": "worker-0", "gpus": ["MIG-1", "3"]},))
    assert gpus_of(info) == {"worker-0": ("MIG-1",)}


def sample(task: str, time: float, utilisation: object = 0.5, **fields: object) -> dict[str, Any]:
    return {
        "time_unix": time,
        "task": task,
        "gpu": "GPU-a",
        "utilisation": utilisation,
        "memory_used_bytes": 100,
        "power_w": 70.0,
        **fields,
    }


def test_means_count_while_the_task_trained_and_the_peak_always() -> None:
    found = figures(
        [
            sample("worker-0", 1.0, 0.0, memory_used_bytes=900, power_w=10.0),  # TensorFlow starts
            sample("worker-0", 2.0, 0.4, power_w=100.0),
            sample("worker-0", 2.0, 0.6, power_w=200.0),  # its other GPU
            sample("worker-1", 2.0, 0.1),
            sample("worker-0", 3.0, 1.0, power_w=400.0),
            sample("worker-0", 4.0, 0.0, power_w=10.0),
        ],
        {"worker-0": (2.0, 3.0), "worker-1": None},
    )
    assert found["worker-0"].utilisation == pytest.approx(0.75)
    assert found["worker-0"].power_w == pytest.approx(350.0)
    assert found["worker-0"].memory_bytes == 900
    assert found["worker-1"] == GpuFigures(0.1, 100, 70.0)


def test_all_samples_count_where_none_falls_into_the_training() -> None:
    for trained in (None, (7.0, 7.0)):
        found = figures(
            [sample("worker-0", 1.0, 0.25), sample("worker-0", 2.0, 0.75)], {"worker-0": trained}
        )
        assert found["worker-0"].utilisation == 0.5


def test_gpu_sums_are_complete_or_missing() -> None:
    found = figures(
        [
            sample("worker-0", 1.0, 0.5, power_w=None, memory_used_bytes=None),
            sample("worker-0", 1.0, None),
            sample("worker-0", 2.0, 0.5),
            sample("worker-0", 2.0, 0.7),
        ],
        {},
    )
    assert found["worker-0"].power_w == 140.0
    assert found["worker-0"].memory_bytes == 200
    assert found["worker-0"].utilisation == pytest.approx(0.55)  # of 0.5, and 0.6


@pytest.mark.parametrize(
    "value", [None, "1", True, -1, 1.5, float("nan"), float("inf"), 10**400, [], {}]
)
def test_invalid_samples_are_ignored(value: object) -> None:
    for name in ("utilisation", "time_unix", "task"):
        found = figures(
            [sample("worker-0", 1.0, 0.5), {**sample("worker-0", 2.0, 0.5), name: value}], {}
        )
        if name == "time_unix" and value == 1.5:
            continue
        assert found.get("worker-0", NO_FIGURES).utilisation == 0.5


def test_a_torn_or_foreign_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    whole = json.dumps(sample("worker-0", 1.0, 0.5))
    path.write_bytes(f"{whole}\n[]\n\xff\n{{}}\n{whole[:40]}\n{whole}".encode("latin-1"))
    assert read_figures(path, {}) == {"worker-0": GpuFigures(0.5, 100, 70.0)}
    assert read_figures(tmp_path / "none", {}) == {}


def trained(run: RunDir) -> Summary:
    run.records("worker-0").parent.mkdir()
    run.records("worker-0").write_text(
        "".join(
            json.dumps(record("worker-0", seq, local_step=step, time_unix=time)) + "\n"
            for seq, (step, time) in enumerate(((100, 5.0), (27_500, 6.0)))
        )
    )
    append_lines(
        run.gpu_samples,
        [
            sample("worker-0", 4.9, 0.0),
            sample("worker-0", 5.0, 0.84, memory_used_bytes=2**34),
            sample("worker-0", 6.0, 0.9),
            sample("worker-0", 6.1, 0.0),
        ],
    )
    return summarize(run)


def test_the_summary_has_the_figures(run: RunDir) -> None:
    summary = trained(run)
    by_name = {task.task: task for task in summary.tasks}
    chief = by_name["worker-0"]
    assert (chief.gpu_utilisation, chief.gpu_memory_bytes, chief.gpu_power_w) == (0.87, 2**34, 70.0)
    service = by_name["ps-0"]
    assert (service.gpu_utilisation, service.gpu_memory_bytes, service.gpu_power_w) == (None,) * 3
    assert Summary.from_json(summary.to_json()) == summary
    rows = list(csv.DictReader(io.StringIO(summary.to_csv())))
    assert (rows[1]["gpu_utilisation"], rows[0]["gpu_utilisation"]) == ("0.87", "")


def test_a_summary_of_an_earlier_lab_is_still_read(run: RunDir) -> None:
    write_summary(run, trained(run))
    raw = json.loads(run.summary_path.read_text())
    for task in raw["tasks"]:
        for name in ("gpu_utilisation", "gpu_memory_bytes", "gpu_power_w"):
            del task[name]
    run.summary_path.write_text(json.dumps(raw))
    found = read_summary(run.summary_path)
    assert found is not None
    assert found.tasks[1].gpu_utilisation is None


def printed(renderable: Any, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 100])
def test_the_result_has_a_column_for_sampled_gpus(run: RunDir, width: int) -> None:
    summary = trained(run)
    full = replace(
        summary.tasks[1], state="succeeded", epoch=49, global_step=82_499, loss=0.25,
        accuracy=0.8876, time_s=1298.5, gpu_utilisation=1.0,
    )  # fmt: skip
    found = printed(result_table(replace(summary, tasks=[full, *summary.tasks])), width)
    assert all(len(line) <= width for line in found)
    assert not any("…" in line for line in found)
    assert "gpu" in found[2].split()
    (first, second) = (line.split() for line in found if line.startswith("worker-0"))
    assert first[-4:] == ["100", "%", "1,298", "s"]
    assert first[:2] + first[2:3] == ["worker-0", "tf2", "succeeded"]
    assert second[-2:] == ["87", "%"]
    bare = [replace(task, gpu_utilisation=None) for task in summary.tasks]
    unsampled = printed(result_table(replace(summary, tasks=bare)), width)
    assert not any("gpu" in line.split() for line in unsampled)


def busy(view: LiveView | PlainView) -> None:
    """A worker in the midst of its training."""
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.gpus({"worker-0": 0.874})
    view.records(
        "worker-0",
        [
            record("worker-0", seq, epoch=49, local_step=27_400 + seq, global_step=82_500,
                   loss=0.25, staleness=2, time_unix=float(seq))
            for seq in range(2)
        ],
    )  # fmt: skip


def drawn(view: LiveView, width: int) -> list[str]:
    return printed(view._render(), width)


@pytest.mark.parametrize("width", [80, 100])
def test_the_live_view_shows_current_gpu_usage(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("lab.run.view.time.monotonic", lambda: now)
    view = LiveView(INFO, Console(file=io.StringIO(), force_terminal=False))
    busy(view)
    view.records("worker-1", [{"kind": "event", "message": "waits for worker-0"}])
    found = drawn(view, width)
    assert all(len(line) <= width for line in found)
    assert found[-2].split() == [
        "worker-0", "training", "50/50", "27,401", "82,500", "1", "0.2500", "87", "%", "2",
        "updates",
    ]  # fmt: skip
    assert found[-1].startswith("worker-1  pending")
    assert "waits for" in found[-1]
    assert found[-1].endswith("worker-0" if width == 100 else "…")
    before = [line.index("%") for line in found if "%" in line]
    now = 103.0
    assert "87 %" in drawn(view, width)[-2]
    now = 103.1
    assert "%" not in drawn(view, width)[-2]
    view.gpus({"worker-0": 1.0})
    assert [line.index("%") for line in drawn(view, width) if "%" in line] == before


def test_there_is_no_column_without_gpus() -> None:
    bare = without(tasks=tuple({**task, "gpus": []} for task in INFO.tasks))
    view = LiveView(bare, Console(file=io.StringIO(), force_terminal=False))
    busy(view)
    assert "gpu" not in "\n".join(drawn(view, 80))


def test_the_plain_view_shows_it_with_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    busy(PlainView(INFO, stream))
    assert stream.getvalue().splitlines()[-1].endswith(", loss 0.2500, 1 steps/s, GPU 87 %")
