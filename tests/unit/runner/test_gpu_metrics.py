"""GPU telemetry: its samples, its end, and its sums."""

from __future__ import annotations

import io
import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from lab.cluster.gpu import Condition, Fault, NvmlError
from lab.protocol.records.reader import read_records
from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.states import State
from lab.runner import gpu_metrics
from lab.runner.gpu_metrics import Sample, append_lines, sample_until, sampled
from lab.runner.store.directory import RunDir
from lab.runner.store.gpu_samples import NO_FIGURES, GpuFigures, figures
from lab.runner.store.run_info import RunInfo, gpus_of
from lab.runner.view import View
from lab.verbs.live_view import LiveView
from tests.support.agents import PATIENCE_S
from tests.support.fakes import PLAN

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


@dataclass
class Box(threading.Event):
    moments: list[list[Sample] | Exception]
    opened: list[tuple[str, ...]] = field(default_factory=list)
    closed: int = 0
    waited: list[float] = field(default_factory=list)
    now: float = 1000.0
    took: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @contextmanager
    def open(self, ids: Sequence[str]) -> Iterator[Callable[[], list[Sample]]]:
        self.opened.append(tuple(ids))
        try:
            yield self.sample
        finally:
            self.closed += 1

    def sample(self) -> list[Sample]:
        self.now += self.took.pop(0) if self.took else 0.0
        moment = self.moments.pop(0)
        if isinstance(moment, Exception):
            raise moment
        return moment

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout or 0.0)
        self.now += timeout or 0.0
        if not self.moments:
            self.set()
        return self.is_set()

    def go(self, path: Path) -> Seen:
        view = Seen()
        # The clock is read once: it may be changed during a run.
        clock = SimpleNamespace(time=iter([self.now]).__next__, monotonic=lambda: self.now)
        with patch.multiple(gpu_metrics, time=clock, open_gpus=self.open):
            sample_until(self, path, CARDS, view)
        return view


@dataclass
class Seen(View):
    """The calls of a view."""

    uses: list[Mapping[str, float]] = field(default_factory=list)
    masks: list[set[Any]] = field(default_factory=list)
    called: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(INFO)

    def gpus(self, use: Mapping[str, float]) -> None:
        self.uses.append(use)
        self.masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        self.called.set()


def fault(what: str) -> NvmlError:
    return NvmlError(what, "fix it", Fault(Condition.OTHER, "driver", "a word", "fix it"))


def both(a: float | None, b: float | None) -> list[Sample]:
    return [Sample("GPU-a", a, 100, 70.0), Sample("GPU-b", b, 100, 70.0)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpu.jsonl"


def test_each_sample_has_a_line_per_gpu_and_task(path: Path, notices: list[str]) -> None:
    box = Box([both(0.25, 0.75), both(None, 1.0)])
    view = box.go(path)
    found = lines(path)
    known = {"utilisation": 0.25, "memory_used_bytes": 100, "power_w": 70.0}
    assert found[0] == {"time_unix": 1000.0, "task": "worker-0", "gpu": "GPU-a", **known}
    named = [(line["time_unix"], line["task"], line["gpu"], line.get("shared")) for line in found]
    cards = (("worker-0", "GPU-a", None), ("worker-0", "GPU-b", True), ("worker-1", "GPU-b", True))
    assert named == [(moment, *card) for moment in (1000.0, 1001.0) for card in cards]
    assert found[3]["utilisation"] is None
    assert view.uses == [{"worker-0": 0.5, "worker-1": 0.75}, {"worker-0": 1.0, "worker-1": 1.0}]
    assert notices == []
    assert box.opened == [("GPU-a", "GPU-b")]  # once, each GPU once
    assert (box.closed, box.waited) == (1, [1.0, 1.0])


def test_an_unresponsive_gpu_has_lines_without_values(path: Path, notices: list[str]) -> None:
    view = Box([both(0.5, None)[:1], []]).go(path)
    found = lines(path)
    assert [line["utilisation"] for line in found] == [0.5, *[None] * 5]
    assert {"memory_used_bytes", "power_w"} <= found[1].keys()
    assert (view.uses, notices) == ([{"worker-0": 0.5}, {}], [])


GONE_DISK = "GPU telemetry stopped: gpu.jsonl: "


@pytest.mark.parametrize(
    ("moments", "prepare", "notice", "kept"),
    [
        ([[], [], []], None, "no GPU telemetry: this host has none of the run's GPUs", 0),
        ([fault("no driver")], None, "GPU telemetry stopped: no driver", 0),
        ([both(0.5, 0.5), fault("it failed")], None, "GPU telemetry stopped: it failed", 3),
        # It is not followed.
        ([both(0.5, 0.5)], lambda path: path.symlink_to("elsewhere"), GONE_DISK, 0),
    ],
    ids=["no GPU", "no driver", "lost driver", "link"],
)
def test_the_end_of_sampling_is_one_notice(
    moments: list[list[Sample] | Exception],
    prepare: Callable[[Path], None] | None,
    notice: str,
    kept: int,
    path: Path,
    notices: list[str],
) -> None:
    if prepare is not None:
        prepare(path)
    box = Box(moments)
    box.go(path)
    (line,) = notices
    assert line.startswith(notice)
    assert len(lines(path) if path.exists() else []) == kept
    assert box.closed == 1


def test_missed_samples_are_skipped_and_times_do_not_drift(path: Path) -> None:
    box = Box([both(0.5, 0.5)] * 3, took=[0.002, 1.5, 0.0])
    box.go(path)
    assert [line["time_unix"] for line in lines(path)[::3]] == [1000.0, 1001.0, 1003.0]


@pytest.mark.parametrize("torn", ["", '{"task": "wor', '{"task": "a"}\n', '{"task": "a"}\n{"ta'])
def test_a_later_client_appends_after_the_last_complete_line(path: Path, torn: str) -> None:
    path.write_text(torn)
    append_lines(path, [{"task": "b"}, {"task": "c"}])
    whole = torn[: torn.rfind("\n") + 1]
    assert path.read_text() == whole + '{"task": "b"}\n{"task": "c"}\n'


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "r1")
    run.create(INFO)
    return run


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "lab-telemetry"]


def test_the_thread_runs_while_the_run_is_followed(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = Seen()
    monkeypatch.setattr(gpu_metrics, "open_gpus", Box([both(0.5, 0.5)] * 100).open)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with sampled(run, INFO, view):
        assert view.called.wait(PATIENCE_S)
        assert [each.daemon for each in threads()] == [True]
    assert threads() == []
    assert len(lines(run.gpu_samples)) % 3 == 0
    # Ctrl-C is delivered to the main thread, which handles it in time.
    assert signal.SIGINT in view.masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_hanging_driver_delays_no_run_and_its_last_sample_is_not_written(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()

    class Hanging(Box):
        def sample(self) -> list[Sample]:
            asked.set()
            answers.wait(PATIENCE_S)
            return super().sample()

    monkeypatch.setattr(gpu_metrics, "open_gpus", Hanging([both(0.5, 0.5)]).open)
    monkeypatch.setattr(gpu_metrics, "PATIENCE_S", 0.01)
    view = Seen()
    with sampled(run, INFO, view):
        assert asked.wait(PATIENCE_S)
    (thread,) = threads()
    answers.set()
    thread.join(PATIENCE_S)
    assert (run.gpu_samples.exists(), view.uses) == (False, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": ({"task": "worker-0", "node": "tf2", "gpus": []},)},
        {"tasks": ({"task": "worker-0", "node": "tf2", "gpus": ["0", "1"]},)},  # of any host
        {"backend": "class"},
        {"backend": "slurm"},  # a seat sees no GPU of the host
        {"state": State.SUCCEEDED},
    ],
)
def test_nothing_happens_without_gpus(
    run: RunDir, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []  # in a thread, where a failure would not be seen
    monkeypatch.setattr(gpu_metrics, "open_gpus", asked.append)
    with sampled(run, replace(INFO, **changes), Seen()):
        assert threads() == []
    assert not run.gpu_samples.exists()
    cut = replace(INFO, tasks=({"task": "worker-0", "gpus": ["MIG-1", "3"]},))
    assert gpus_of(cut) == {"worker-0": ("MIG-1",)}
    assert asked == []


def sample(task: str, time: float, utilisation: object = 0.5, **fields: object) -> dict[str, Any]:
    known = {"utilisation": utilisation, "memory_used_bytes": 100, "power_w": 70.0}
    return {"time_unix": time, "task": task, "gpu": "GPU-a", **known, **fields}


BUSY = [
    sample("worker-0", 1.0, 0.0, memory_used_bytes=900, power_w=10.0),  # TensorFlow starts
    sample("worker-0", 2.0, 0.4, power_w=100.0),
    sample("worker-0", 2.0, 0.6, power_w=200.0),  # its other GPU
    sample("worker-0", 3.0, 1.0, power_w=400.0),
    sample("worker-0", 4.0, 0.0, power_w=10.0),
]
PARTLY = [  # a sum is complete or missing
    sample("worker-0", 1.0, 0.5, power_w=None, memory_used_bytes=None),
    sample("worker-0", 1.0, None),
    sample("worker-0", 2.0, 0.5),
    sample("worker-0", 2.0, 0.6),
]


@pytest.mark.parametrize(
    ("moments", "trained", "wanted"),
    [
        (BUSY, (2.0, 3.0), GpuFigures(0.75, 900, 350.0)),
        (BUSY, (7.0, 7.0), GpuFigures(0.375, 900, 180.0)),  # no sample falls into the training
        (BUSY, None, GpuFigures(0.375, 900, 180.0)),
        (PARTLY, None, GpuFigures(0.525, 200, 140.0)),
    ],
)
def test_means_count_while_the_task_trained_and_the_peak_always(
    moments: list[dict[str, Any]], trained: tuple[float, float] | None, wanted: GpuFigures
) -> None:
    assert figures(moments, {"worker-0": trained}) == {"worker-0": wanted}


@pytest.mark.parametrize("value", [None, "1", True, -1, float("nan"), float("inf"), 10**400, []])
def test_invalid_samples_are_ignored(value: object) -> None:
    for name in ("utilisation", "time_unix", "task"):
        bad = {**sample("worker-0", 2.0, 0.5), name: value}
        found = figures([sample("worker-0", 1.0, 0.5), bad], {})
        assert found.get("worker-0", NO_FIGURES).utilisation == 0.5


def test_a_torn_or_foreign_line_is_skipped(path: Path) -> None:
    whole = json.dumps(sample("worker-0", 1.0, 0.5))
    path.write_bytes(f"{whole}\n[]\n\xff\n{{}}\n{whole[:40]}\n{whole}".encode("latin-1"))
    assert figures(read_records(path), {}) == {"worker-0": GpuFigures(0.5, 100, 70.0)}
    assert list(read_records(path.parent / "none")) == []


def printed(renderable: Any, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=False).print(renderable)
    found = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert all(len(line) <= width for line in found)
    return found


def test_the_live_view_shows_a_gpu_usage_for_three_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("lab.runner.view.time.monotonic", lambda: now)
    view = LiveView(INFO, Console(file=io.StringIO(), force_terminal=False))
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.gpus({"worker-0": 0.874})
    for later, shown in ((103.0, True), (103.1, False)):
        now = later
        row = next(line for line in printed(view._render(), 80) if line.startswith("worker-0"))
        assert ("87 %" in row) is shown
