"""Verification of the GPUs of a boot: its lines, and its refusals."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends import gpu_probe, gpu_verification
from lab.backends.compose.client import Engine
from lab.backends.compose.containers import parse_inspection
from lab.backends.compose.environment import probe_anchor, probe_task
from lab.errors import LabError
from lab.gpu import Condition, Fault, Gpu, NvmlError
from lab.gpu.verification import GpuView
from lab.placement.plan import Plan, PlannedNode, PlannedTask
from tests.unit.fakes import FakeBackend, FakeEnvironment
from tests.unit.test_compose_containers import INSPECTED
from tests.unit.test_gpu_check import A, B, inside, local, on_a_box

BOTH = Plan(
    name="mnist",
    mode="uuid",
    cluster_sha256="abc",
    nodes=(PlannedNode("tf1"), PlannedNode("tf2")),
    tasks=(
        PlannedTask("ps", 0, "tf1", 2222),
        PlannedTask("worker", 0, "tf1", 2223, (A,)),
        PlannedTask("worker", 1, "tf2", 2222, (B,)),
    ),
)
CARDS = (Gpu(0, A, minor=0), Gpu(1, B, minor=1))


@dataclass
class Looked(FakeEnvironment):
    """Counts how often it is looked at, with TensorFlow or without."""

    looks: list[bool] = field(default_factory=list)
    with_tensorflow: Mapping[str, GpuView] = field(default_factory=dict)

    def probe_gpus(self, *, tensorflow: bool) -> dict[str, GpuView]:
        self.looks.append(tensorflow)
        return dict(self.with_tensorflow if tensorflow else self.sights)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """The GPUs of this host."""
    gpus: list[Gpu] = list(CARDS)
    monkeypatch.setattr(gpu_verification, "read_host", lambda: SimpleNamespace(gpus=tuple(gpus)))
    # Whatever this machine has: there are no nodes to compare with.
    real = Path.exists
    monkeypatch.setattr(
        Path, "exists", lambda path: not str(path).startswith("/dev/nvidia") and real(path)
    )
    return gpus


def seen_by(tmp_path: Path, **sights: GpuView) -> Looked:
    named = {name.replace("_", "-"): sight for name, sight in sights.items()}
    return Looked(tmp_path, plan=BOTH, sights=named)


def said_of(environment: Looked, plan: Plan = BOTH) -> list[str]:
    output: list[str] = []
    backend = FakeBackend(environment=environment)
    assert gpu_verification.boot(backend, plan, root=Path(), notify=output.append) is environment
    return output


def test_proved_is_one_line(tmp_path: Path) -> None:
    nodes = {"worker_0": on_a_box(A, nodes=(0,)), "worker_1": on_a_box(B, nodes=(1,))}
    environment = seen_by(tmp_path, ps_0=inside(), tf1=inside(nodes=None), **nodes)
    environment.with_tensorflow = {
        name: replace(sight, tensorflow=len(sight.nvml or ()))
        for name, sight in environment.sights.items()
    }
    assert said_of(environment) == [
        "GPUs: 2 GPUs of 2 tasks proved (CUDA, NVML, device nodes, TensorFlow, environment,"
        " engine), ps-0 sees none"
    ]
    assert environment.looks == [False, True]


def test_declared_is_never_called_proved(tmp_path: Path) -> None:
    """And TensorFlow, which takes seconds, is not queried where no driver answers."""
    environment = seen_by(tmp_path, ps_0=inside(), worker_0=inside(A), worker_1=inside(B))
    assert said_of(environment) == [
        "GPUs: 2 GPUs of 2 tasks declared only (CUDA: no libcuda.so.1, NVML: no"
        " libnvidia-ml.so.1, device nodes: no device nodes, as on this host), ps-0 sees none"
    ]
    assert environment.looks == [False]


def test_unknown_views_are_reported(tmp_path: Path) -> None:
    gone = GpuView.unknown("exited (1)")
    (line,) = said_of(seen_by(tmp_path, ps_0=gone, worker_0=gone, worker_1=local(B)))
    assert "1 GPU of 1 task declared only" in line
    assert "ps-0 and 1 other: planned none; the GPUs that it sees are unknown" in line


def test_many_tasks_without_gpus_are_counted(tmp_path: Path) -> None:
    tasks = tuple(PlannedTask("ps", index, "tf1", 2222 + index) for index in range(4))
    environment = Looked(tmp_path, sights={task.name: inside() for task in tasks})
    assert said_of(environment, replace(BOTH, tasks=tasks)) == ["GPUs: 4 tasks see none"]
    environment.sights = {"ps-0": inside(nodes=None), "ps-1": inside(nodes=None)}
    plan = replace(BOTH, tasks=tasks[:2])
    assert said_of(environment, plan) == ["GPUs: ps-0 and ps-1 have none (declared only)"]


def test_without_any_gpu_no_query(tmp_path: Path, host: list[Gpu]) -> None:
    without = replace(BOTH, tasks=tuple(replace(task, gpus=()) for task in BOTH.tasks))
    host.clear()
    environment = seen_by(tmp_path)
    assert (said_of(environment, without), environment.looks) == ([], [])
    # A plan without GPUs on a host with some: the check must prove that no task sees one.
    host.extend(CARDS)
    environment.sights = {task.name: inside() for task in without.tasks}
    assert said_of(environment, without) == ["GPUs: ps-0, worker-0 and worker-1 see none"]


def test_a_failing_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> None:
        raise NvmlError("it failed", "mend it", Fault(Condition.OTHER, "driver", "x", "y"))

    monkeypatch.setattr(gpu_verification, "read_host", failing)
    assert gpu_verification.host_gpus() == ()


@pytest.mark.parametrize(
    ("sights", "message"),
    [
        (
            {"worker_0": inside(A, engine=(B,)), "worker_1": inside(B)},
            f"worker-0: planned {A}, sees {B} (engine); boot it again; if that does not help, run",
        ),
        (
            {"worker_0": inside(A, engine=(B,)), "worker_1": inside(B, engine=(A,))},
            f"worker-0: planned {A}, sees {B} (engine) (also not as planned: worker-1); boot",
        ),
        (
            {"worker_0": inside(A), "worker_1": on_a_box(B, nodes=(1,), cuda=())},
            f"worker-1: planned {B}, sees none (CUDA); boot it again",
        ),
        (
            {
                "worker_0": inside(A, nodes={0: "Operation not permitted"}),
                "worker_1": inside(B),
                "tf2": inside(),
            },
            f"worker-0: planned {A}, but cannot use it: /dev/nvidia0 cannot be opened (Operation"
            " not permitted); restart its container (`docker restart`)",
        ),
        (
            {"worker_0": inside(A), "worker_1": inside(B), "tf2": inside(engine=(A,))},
            f"tf2: planned none, sees {A} (engine); boot",
        ),
    ],
)
def test_a_boot_that_is_refused(tmp_path: Path, sights: dict[str, GpuView], message: str) -> None:
    environment = seen_by(tmp_path, ps_0=inside(), **sights)
    with pytest.raises(LabError) as caught:
        said_of(environment)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert environment.looks == [False]


def test_a_tensorflow_that_lists_too_few_is_refused(tmp_path: Path) -> None:
    nodes = {"worker_0": on_a_box(A, nodes=(0,)), "worker_1": on_a_box(B, nodes=(1,))}
    environment = seen_by(tmp_path, ps_0=inside(), **nodes)
    environment.with_tensorflow = {
        name: replace(sight, tensorflow=0) for name, sight in environment.sights.items()
    }
    with pytest.raises(LabError, match=r"worker-0: planned .*, sees none \(TensorFlow\).*build"):
        said_of(environment)


def test_a_silent_tensorflow_withdraws_nothing(tmp_path: Path) -> None:
    nodes = {"worker_0": on_a_box(A, nodes=(0,)), "worker_1": on_a_box(B, nodes=(1,))}
    environment = seen_by(tmp_path, ps_0=inside(), **nodes)
    late = GpuView.unknown("it did not answer within 125 s")
    environment.with_tensorflow = dict.fromkeys(environment.sights, late)
    (line,) = said_of(environment)
    assert line.startswith("GPUs: 2 GPUs of 2 tasks proved (CUDA, NVML, device nodes, environment")


def test_device_nodes_count_if_this_host_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)
    environment = seen_by(tmp_path, worker_0=inside(A, nodes={0: ""}), worker_1=inside(B))
    verdicts = gpu_verification.evaluate(environment, {"worker-0": (A,), "worker-1": (B,)}, CARDS)
    assert verdicts["worker-0"].status.value == "proved"
    assert verdicts["worker-1"].explanation == f"planned {B}, sees none (device nodes)"


def test_gpus_of_this_host_do_not_count_for_a_remote_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pins by index on another host: its GPU 0 is not this host's."""
    first, second = BOTH.tasks[-2:]
    by_index = replace(
        BOTH, tasks=(*BOTH.tasks[:-2], replace(first, gpus=("0",)), replace(second, gpus=("1",)))
    )
    there = {
        name: GpuView(
            environment={"NVIDIA_VISIBLE_DEVICES": pin},
            nodes={},
            nvml=(f"GPU-of-another-box-{pin}",),
            isolated=True,
            engine=(pin,),
        )
        for name, pin in (("worker_0", "0"), ("worker_1", "1"))
    }
    environment = seen_by(tmp_path, ps_0=inside(), **there)
    with pytest.raises(LabError, match="worker-0: planned 0, sees GPU-of-another-box-0"):
        said_of(environment, by_index)
    environment.is_local = False
    (line,) = said_of(environment, by_index)
    assert line.startswith("GPUs: 2 GPUs of 2 tasks declared only")


# ---- Concurrent queries


def test_a_hanging_query_is_abandoned() -> None:
    hanging = threading.Event()

    def hang() -> GpuView:
        hanging.wait(60)
        return GpuView()

    asks = {"worker-0": lambda: local(A), "worker-1": hang}
    try:
        found = gpu_probe.probe_all(asks, tensorflow=False, limit_s=0.2)
    finally:
        hanging.set()
    assert list(found) == ["worker-0", "worker-1"]
    assert found["worker-0"] == local(A)
    assert found["worker-1"].reasons == {"environment": "it did not answer within 0 s"}
    assert gpu_probe.probe_all({}, tensorflow=True) == {}


def test_more_tasks_than_concurrent_queries() -> None:
    asks = {f"worker-{index}": local for index in range(40)}
    assert list(gpu_probe.probe_all(asks, tensorflow=True)) == list(asks)


def test_a_defect_is_not_hidden() -> None:
    def broken() -> GpuView:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        gpu_probe.probe_all({"worker-0": broken}, tensorflow=False)


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "why"),
    [
        (
            1,
            b"",
            b"Traceback\nNo module named lab.task.probes.gpu_probe\n",
            "1: No module named lab.task",
        ),
        (137, b"", b"", "137: no output"),
        (-14, b"half", b"", "-14: half"),
        (None, b"", b"", "None: no output"),
        (0, b"\n", b"", "0: no output"),
        (0, b"{", b"", "not a GPU report: Input data was truncated"),
        (0, b"[]", b"", "not a GPU report"),
    ],
)
def test_an_invalid_answer(code: int | None, stdout: bytes, stderr: bytes, why: str) -> None:
    (reason,) = gpu_probe.parse_output(code, stdout, stderr).reasons.values()
    assert why in reason


def test_earlier_library_output_is_skipped() -> None:
    found = gpu_probe.parse_output(0, b'hello\n{"tensorflow": 2}\n', b"a warning")
    assert found == GpuView(tensorflow=2)


def test_the_module_gets_its_time() -> None:
    assert gpu_probe.arguments(tensorflow=False) == ["--within", "30"]
    assert gpu_probe.arguments(tensorflow=True) == ["--within", "120", "--tensorflow"]


# ---- One container


class Exec:
    """The part of docker-py's client that starts a program in a container."""

    def __init__(self, stdout: bytes | None, code: int) -> None:
        self.api = self
        self.said = (stdout, None)
        self.code = code
        self.command: list[str] = []

    def exec_create(self, container: str, command: list[str]) -> dict[str, str]:
        self.command = command
        return {"Id": "x"}

    def exec_start(self, exec_id: str, *, demux: bool) -> tuple[bytes | None, None]:
        return self.said

    def exec_inspect(self, exec_id: str) -> dict[str, int]:
        return {"ExitCode": self.code}


def engine_with(client: object) -> Engine:
    engine = Engine()
    engine._local.client = client
    return engine


def test_a_container_is_queried_inside_and_outside() -> None:
    client = Exec(b'{"nvml": ["GPU-4"]}\n', 0)
    seen = probe_task(engine_with(client), parse_inspection(INSPECTED), tensorflow=True)
    assert seen == GpuView(nvml=("GPU-4",), isolated=True, engine=("GPU-4", "GPU-5"))
    assert client.command == [
        *("python", "-m", "lab.task.probes.gpu_probe", "--within", "120", "--tensorflow")
    ]
    failed = probe_task(engine_with(Exec(None, 1)), parse_inspection(INSPECTED), tensorflow=False)
    assert (failed.engine, failed.isolated) == (("GPU-4", "GPU-5"), True)
    assert "no output" in failed.reasons["environment"]


def test_reason_of_a_failed_container_query() -> None:
    stopped: dict[str, Any] = {**INSPECTED, "State": {**INSPECTED["State"], "Status": "exited"}}
    seen = probe_task(engine_with(None), parse_inspection(stopped), tensorflow=False)
    assert seen.reasons == {"environment": "exited (0)"}

    class Away(Exec):
        def exec_create(self, container: str, command: list[str]) -> dict[str, str]:
            raise ConnectionError("away")

    away = probe_task(engine_with(Away(None, 0)), parse_inspection(INSPECTED), tensorflow=False)
    assert "probing the GPUs of worker-1" in away.reasons["environment"]


def test_a_pause_container_is_recognized() -> None:
    variables = ["NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=-1", "A=b"]
    attributes = {
        **INSPECTED,
        "Config": {**INSPECTED["Config"], "Env": variables},
        "HostConfig": {"DeviceRequests": [{"Driver": "nvidia", "Count": -1}, {"Count": 2}]},
    }
    seen = probe_anchor(parse_inspection(attributes))
    assert seen.environment == {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "-1"}
    assert (seen.engine, seen.isolated) == (("all", "2 of any"), True)


# ---- The image


def test_the_module_needs_nothing_but_the_image(tmp_path: Path) -> None:
    """It imports the standard library and the few modules of lab in the image."""
    code = (
        "import sys, lab.task.probes.gpu_probe;"
        "print(*sorted(m for m in sys.modules if m[:4] == 'lab.'))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        ["python3", "-S", "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    names = ("", ".probes", ".probes.gpu_probe", ".probes.health")
    assert done.stdout.split() == [f"lab.task{name}" for name in names]
