"""Verification of the GPUs of a boot: its lines, its refusals, and how tasks are asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from lab.backends import gpu_probe, gpu_verification
from lab.backends.compose.environment import probe_anchor, probe_task
from lab.backends.engine.client import Done, Engine
from lab.backends.engine.containers import parse_inspection
from lab.errors import LabError
from lab.gpu import Condition, Fault, Gpu, NvmlError
from lab.gpu.evidence import GpuView
from lab.log import shown_by
from lab.placement.plan import Plan, PlannedNode, PlannedTask
from tests.support.containers import INSPECTED
from tests.support.fakes import FakeBackend, FakeEnvironment
from tests.support.gpu_views import A, B, inside, local, on_a_box
from tests.support.shown import assert_shows

PS = PlannedTask("ps", 0, "tf1", 2222)
WORKERS = (
    PlannedTask("worker", 0, "tf1", 2223, (A,)),
    PlannedTask("worker", 1, "tf2", 2222, (B,)),
)
BOTH = Plan("mnist", "uuid", "abc", (PlannedNode("tf1"), PlannedNode("tf2")), (PS, *WORKERS))
CARDS = (Gpu(0, A, minor=0), Gpu(1, B, minor=1))
SHOWN = {"worker_0": on_a_box(A, nodes=(0,)), "worker_1": on_a_box(B, nodes=(1,))}


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


def seen_by(tmp_path: Path, *, plan: Plan = BOTH, **sights: GpuView) -> Looked:
    named = {name.replace("_", "-"): sight for name, sight in sights.items()}
    return Looked(tmp_path, plan=plan, sights=named)


def boot(environment: Looked) -> list[str]:
    output: list[str] = []
    backend = FakeBackend(environment=environment)
    plan = environment.plan
    with shown_by(output.append):
        assert gpu_verification.boot(backend, plan, root=Path()) is environment
    return [line for line in output if line != "booting"]


GONE = GpuView.unknown("exited (1)")
WITHOUT = replace(BOTH, tasks=(PS, *(replace(task, gpus=()) for task in WORKERS)))


@pytest.mark.parametrize(
    ("plan", "sights", "words"),
    [
        (
            BOTH,
            {"ps_0": inside(), "worker_0": inside(A), "worker_1": inside(B)},
            # Declared is never called proved.
            [
                "GPUs: 2 GPUs of 2 tasks declared only (CUDA: no libcuda.so.1, NVML: no ",
                ", device nodes: no device nodes, as on this host), ps-0 sees none",
            ],
        ),
        (
            BOTH,
            {"ps_0": GONE, "worker_0": GONE, "worker_1": local(B)},
            [
                "GPUs: 1 GPU of 1 task declared only",
                "ps-0 and 1 other: planned none; the GPUs that it sees are unknown",
            ],
        ),
        # A plan without GPUs on a host with some: the check must prove that no task sees one.
        (
            WITHOUT,
            {"ps_0": inside(), "worker_0": inside(), "worker_1": inside()},
            ["GPUs: ps-0, worker-0 and worker-1 see none"],
        ),
    ],
    ids=["declared", "unknown", "without"],
)
def test_the_line_of_a_boot(
    plan: Plan, sights: dict[str, GpuView], words: list[str], tmp_path: Path
) -> None:
    environment = seen_by(tmp_path, plan=plan, **sights)
    (line,) = boot(environment)
    assert [part for part in words if part not in line] == [], line
    # TensorFlow, which takes seconds, is not queried where no driver answers.
    assert environment.looks == [False]


def test_proved_is_one_line_also_with_a_silent_tensorflow(tmp_path: Path) -> None:
    environment = seen_by(tmp_path, ps_0=inside(), tf1=inside(nodes=None), **SHOWN)
    environment.with_tensorflow = {
        name: replace(sight, tensorflow=len(sight.nvml or ()))
        for name, sight in environment.sights.items()
    }
    proved = "GPUs: 2 GPUs of 2 tasks proved (CUDA, NVML, device nodes, {}environment, engine), "
    line = proved.format("TensorFlow, ") + "ps-0 sees none"
    assert boot(environment) == [line]
    assert_shows("docs/how-to/gpus.md", "GPUs: ", line, figures=False)
    assert environment.looks == [False, True]
    late = GpuView.unknown("it did not answer within 125 s")
    environment.with_tensorflow = dict.fromkeys(environment.sights, late)
    assert boot(environment) == [proved.format("") + "ps-0 sees none"]


def test_without_any_gpu_no_query(
    tmp_path: Path, host: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.clear()
    environment = seen_by(tmp_path, plan=WITHOUT)
    assert (boot(environment), environment.looks) == ([], [])

    def failing() -> None:
        raise NvmlError("it failed", "fix it", Fault(Condition.OTHER, "x", "y", "driver"))

    monkeypatch.setattr(gpu_verification, "read_host", failing)
    assert gpu_verification.host_gpus() == ()


@pytest.mark.parametrize(
    ("sights", "message"),
    [
        (
            {"worker_0": inside(A, engine=(B,)), "worker_1": inside(B, engine=(A,))},
            f"worker-0: planned {A}, sees {B} (engine) (also not as planned: worker-1); boot",
        ),
        (
            {"worker_0": inside(A, nodes={0: "Operation not permitted"}), "tf2": inside()},
            f"worker-0: planned {A}, but cannot use it: /dev/nvidia0 cannot be opened (Operation"
            " not permitted); restart its container (`docker restart`)",
        ),
        ({"tf2": inside(engine=(A,))}, f"tf2: planned none, sees {A} (engine); boot"),
    ],
)
def test_a_boot_that_is_refused(tmp_path: Path, sights: dict[str, GpuView], message: str) -> None:
    good = {"ps_0": inside(), "worker_0": inside(A), "worker_1": inside(B)}
    environment = seen_by(tmp_path, **{**good, **sights})
    with pytest.raises(LabError) as caught:
        boot(environment)
    assert str(caught.value).startswith(message)
    if "also" in message:
        error = f"error: {caught.value}"
        assert_shows("docs/how-to/gpus.md", "error: worker-", error, figures=False)
    assert "\n" not in str(caught.value)
    assert environment.looks == [False]


def test_a_tensorflow_that_lists_too_few_is_refused(tmp_path: Path) -> None:
    environment = seen_by(tmp_path, ps_0=inside(), **SHOWN)
    environment.with_tensorflow = {
        name: replace(sight, tensorflow=0) for name, sight in environment.sights.items()
    }
    with pytest.raises(LabError, match=r"worker-0: planned .*, sees none \(TensorFlow\).*build"):
        boot(environment)


def test_device_nodes_count_if_this_host_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)
    environment = seen_by(tmp_path, worker_0=inside(A, nodes={0: ""}), worker_1=inside(B))
    cards = (*CARDS, Gpu(2, "GPU-of-wsl", minor=None))
    verdicts = gpu_verification.evaluate(environment, {"worker-0": (A,), "worker-1": (B,)}, cards)
    assert verdicts["worker-0"].status.value == "proved"
    assert verdicts["worker-1"].what == f"planned {B}, sees none (device nodes)"


def test_gpus_of_this_host_do_not_count_for_a_remote_engine(tmp_path: Path) -> None:
    """Pins by index on another host: its GPU 0 is not this host's."""
    there = {
        f"worker_{pin}": GpuView(
            {"NVIDIA_VISIBLE_DEVICES": pin},
            {},
            (f"GPU-of-another-box-{pin}",),
            isolated=True,
            engine=(pin,),
        )
        for pin in ("0", "1")
    }
    by_index = tuple(replace(task, gpus=(str(task.index),)) for task in WORKERS)
    plan = replace(BOTH, tasks=(PS, *by_index))
    environment = seen_by(tmp_path, plan=plan, ps_0=inside(), **there)
    with pytest.raises(LabError, match="worker-0: planned 0, sees GPU-of-another-box-0"):
        boot(environment)
    environment.is_local = False
    (line,) = boot(environment)
    assert line.startswith("GPUs: 2 GPUs of 2 tasks declared only")


# ---- Concurrent queries


def test_many_tasks_are_asked_and_a_hanging_one_is_abandoned() -> None:
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


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "why"),
    [
        (1, b"", b"Traceback\nNo module named lab.task\n", "1: No module named lab.task"),
        (None, b"", b"", "None: no output"),
        (0, b"{", b"", "not a GPU report: Input data was truncated"),
    ],
)
def test_an_invalid_answer(code: int | None, stdout: bytes, stderr: bytes, why: str) -> None:
    (reason,) = gpu_probe.parse_output(code, stdout, stderr).reasons.values()
    assert why in reason
    # The output of a library before it is skipped.
    found = gpu_probe.parse_output(0, b'hello\n{"tensorflow": 2}\n', b"a warning")
    assert found == GpuView(tensorflow=2)


# ---- One container


@pytest.mark.parametrize(
    ("status", "answer", "seen"),
    [
        ("running", Done(0, b'{"nvml": ["GPU-4"]}\n', b""), GpuView(nvml=("GPU-4",))),
        (
            "running", Done(1, b"", b""),
            GpuView.unknown(f"{gpu_probe.MODULE} ended with 1: no output"),
        ),
        ("running", LabError("probing the GPUs: away"), GpuView.unknown("probing the GPUs: away")),
        ("exited", None, GpuView.unknown("exited (0)")),
    ],
)  # fmt: skip
def test_a_container_is_queried_inside_and_outside(
    status: str, answer: Done | LabError | None, seen: GpuView, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Mock(side_effect=[answer])
    monkeypatch.setattr(Engine, "execute", execute)
    task = parse_inspection({**INSPECTED, "State": {**INSPECTED["State"], "Status": status}})
    found = probe_task(Engine(), task, tensorflow=True)
    assert found == replace(seen, isolated=True, engine=("GPU-4", "GPU-5"))
    module = ["python", "-m", "lab.task.node.gpu_probe"]
    commands = [call.args[2] for call in execute.call_args_list]
    assert commands == ([[*module, "--within", "120", "--tensorflow"]] if answer else [])


def test_a_pause_container_is_recognized() -> None:
    given = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "-1"}
    variables = [f"{name}={value}" for name, value in {**given, "A": "b"}.items()]
    attributes = {
        **INSPECTED,
        "Config": {**INSPECTED["Config"], "Env": variables},
        "HostConfig": {"DeviceRequests": [{"Driver": "nvidia", "Count": -1}, {"Count": 2}]},
    }
    seen = probe_anchor(parse_inspection(attributes))
    assert seen == GpuView(given, isolated=True, engine=("all", "2 of any"))
