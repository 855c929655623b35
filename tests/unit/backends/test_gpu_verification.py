"""Verification of the GPUs of a boot: its lines, its refusals, and how tasks are asked."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from lab.backends import gpu_verification
from lab.backends.compose.environment import ComposeEnvironment, probe_container
from lab.backends.engine.client import Done, Engine
from lab.backends.engine.containers import parse_inspection
from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.cluster.gpu import Condition, Fault, Gpu, NvmlError, inventory
from lab.cluster.gpu.verification import GpuView, check_all
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from tests.support.containers import INSPECTED, an_engine
from tests.support.fakes import FakeBackend, FakeEnvironment, raising
from tests.support.gpu_views import NO_DRIVER, A, B, inside, local
from tests.support.shown import assert_shows

PS = PlannedTask("ps", 0, "tf1", 2222)
WORKERS = (
    PlannedTask("worker", 0, "tf1", 2223, (A,)),
    PlannedTask("worker", 1, "tf2", 2222, (B,)),
)
BOTH = Plan("mnist", "uuid", "abc", (PlannedNode("tf1"), PlannedNode("tf2")), (PS, *WORKERS))
CARDS = (Gpu(0, A, minor=0), Gpu(1, B, minor=1))
RIGHT = {"ps_0": NO_DRIVER, "worker_0": inside(A), "worker_1": inside(B)}


@dataclass
class Looked(FakeEnvironment):
    looks: int = 0

    def probe_gpus(self) -> dict[str, GpuView]:
        self.looks += 1
        return dict(self.sights)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    gpus: list[Gpu] = list(CARDS)
    monkeypatch.setattr(gpu_verification, "host_gpus", lambda: tuple(gpus))
    has_nodes(monkeypatch, False)  # whatever this machine has
    return gpus


def has_nodes(monkeypatch: pytest.MonkeyPatch, value: bool) -> None:
    """Whether this host has the device nodes of GPUs, that is, a driver."""
    real = Path.exists
    monkeypatch.setattr(
        Path, "exists", lambda path: value if str(path).startswith("/dev/nv") else real(path)
    )


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


GONE = GpuView(why="exited (1)")
WITHOUT = replace(BOTH, tasks=(PS, *(replace(task, gpus=()) for task in WORKERS)))


NONE_PROVED = "worker-0 and worker-1 not proved (no NVIDIA driver in the task), ps-0 sees none"
ONE_PROVED = "1 GPU of 1 task proved (NVML), ps-0 and worker-0 not proved (exited (1))"


def of_each(*sights: GpuView) -> dict[str, GpuView]:
    return dict(zip(("ps_0", "worker_0", "worker_1"), sights, strict=True))


@pytest.mark.parametrize(
    ("plan", "sights", "line"),
    [
        (BOTH, {**RIGHT, "tf1": inside()}, "2 GPUs of 2 tasks proved (NVML), ps-0 sees none"),
        (BOTH, of_each(NO_DRIVER, NO_DRIVER, NO_DRIVER), NONE_PROVED),
        (BOTH, of_each(GONE, GONE, local(B)), ONE_PROVED),
        # A plan without GPUs on a host with some: the check must prove that no task sees one.
        (WITHOUT, of_each(inside(), inside(), inside()), "ps-0, worker-0 and worker-1 see none"),
    ],
    ids=["proved", "not proved", "gone", "without"],
)
def test_the_line_of_a_boot(
    plan: Plan, sights: dict[str, GpuView], line: str, tmp_path: Path
) -> None:
    environment = seen_by(tmp_path, plan=plan, **sights)
    assert boot(environment) == [f"GPUs: {line}"]
    assert environment.looks == 1
    if line.endswith("(NVML), ps-0 sees none"):
        assert_shows("docs/how-to/gpus.md", "GPUs: ", f"GPUs: {line}", figures=False)


def test_without_any_gpu_no_query(
    tmp_path: Path, host: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.clear()
    environment = seen_by(tmp_path, plan=WITHOUT)
    assert (boot(environment), environment.looks) == ([], 0)
    monkeypatch.setattr(
        inventory,
        "read_host",
        raising(NvmlError("it failed", "fix it", Fault(Condition.OTHER, "x", "y", "driver"))),
    )
    assert inventory.host_gpus() == ()


@pytest.mark.parametrize(
    ("sights", "message"),
    [
        (
            {"worker_0": inside(B), "worker_1": inside(A)},
            f"worker-0: planned {A}, sees {B} (also not as planned: worker-1); boot it again",
        ),
        (
            {"worker_0": GpuView(nvml="error 999 (Unknown Error)"), "tf2": inside()},
            f"worker-0: planned {A}, but cannot use it: NVML reports: error 999 (Unknown Error);"
            " restart its container (`docker restart`)",
        ),
        ({"tf2": inside(A)}, f"tf2: planned none, sees {A}; boot"),
    ],
)
def test_a_boot_that_is_refused(tmp_path: Path, sights: dict[str, GpuView], message: str) -> None:
    environment = seen_by(tmp_path, **{**RIGHT, **sights})
    with pytest.raises(LabError) as caught:
        boot(environment)
    assert str(caught.value).startswith(message)
    if "also" in message:
        error = f"error: {caught.value}"
        assert_shows("docs/how-to/gpus.md", "error: worker-", error, figures=False)
    assert "\n" not in str(caught.value)


def test_a_task_without_a_driver_is_refused_if_this_host_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_nodes(monkeypatch, True)
    environment = seen_by(tmp_path, **{**RIGHT, "worker_1": NO_DRIVER})
    with pytest.raises(LabError, match=f"worker-1: planned {B}, sees none: no NVIDIA driver"):
        boot(environment)
    # WSL has a driver without device nodes.
    checks = check_all({"worker-1": NO_DRIVER}, {"worker-1": (B,)}, [Gpu(1, B, minor=None)])
    assert checks["worker-1"].status.good


def test_gpus_of_this_host_do_not_count_for_a_remote_engine(tmp_path: Path) -> None:
    """Pins by index on another host: its GPU 0 is not this host's."""
    there = {f"worker_{pin}": inside(f"GPU-of-another-box-{pin}") for pin in ("0", "1")}
    by_index = tuple(replace(task, gpus=(str(task.index),)) for task in WORKERS)
    plan = replace(BOTH, tasks=(PS, *by_index))
    environment = seen_by(tmp_path, plan=plan, ps_0=inside(), **there)
    with pytest.raises(LabError, match="worker-0: planned 0, sees GPU-of-another-box-0"):
        boot(environment)
    environment.is_local = False
    (line,) = boot(environment)
    assert line.startswith("GPUs: worker-0 and worker-1 not proved (the number is as planned")


def test_many_tasks_are_asked_and_a_hanging_one_is_abandoned() -> None:
    hanging = threading.Event()

    def hang() -> GpuView:
        hanging.wait(60)
        return GpuView()

    asks = {"worker-0": lambda: local(A), "worker-1": hang}
    try:
        found = gpu_verification.probe_all(asks, limit_s=0.2)
    finally:
        hanging.set()
    assert found == {"worker-0": local(A), "worker-1": GpuView(why="it did not answer within 0 s")}


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "why"),
    [
        (1, b"", b"Traceback\nNo module named lab.task\n", "1: No module named lab.task"),
        (None, b"", b"", "None: no output"),
        (0, b"{", b"", "not a GPU report: Expecting property name enclosed in double quotes"),
    ],
)
def test_an_invalid_answer(code: int | None, stdout: bytes, stderr: bytes, why: str) -> None:
    assert why in gpu_verification.parse_output(code, stdout, stderr).why
    # The output of a library before it is skipped.
    found = gpu_verification.parse_output(0, b'hello\n{"seen": ["GPU-4"]}\n', b"a warning")
    assert found == local("GPU-4")


@pytest.mark.parametrize(
    ("status", "answer", "seen"),
    [
        ("running", Done(0, b'{"seen": ["GPU-4"]}\n', b""), local("GPU-4")),
        ("running", LabError("probing the GPUs: away"), GpuView(why="probing the GPUs: away")),
        ("exited", None, GpuView(why="exited (0)")),
    ],
)
def test_a_container_is_queried_if_it_runs(
    status: str, answer: Done | LabError | None, seen: GpuView, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Mock(side_effect=[answer])
    monkeypatch.setattr(Engine, "execute", execute)
    task = parse_inspection({**INSPECTED, "State": {**INSPECTED["State"], "Status": status}})
    assert probe_container(Engine(), task) == seen
    commands = [call.args[2] for call in execute.call_args_list]
    module = ["python", "-m", "lab.task.node.gpu_probe", "--within", "30"]
    assert commands == ([module] if answer else [])


def test_nodes_are_queried_like_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"com.docker.compose.service": "tf3", "lab.project": "mnist", "lab.node": "tf3"}
    anchor = {**INSPECTED, "Config": {**INSPECTED["Config"], "Labels": labels}}
    answer = Done(0, b'{"given": ["GPU-4"], "seen": []}\n', b"")
    monkeypatch.setattr(Engine, "execute", Mock(return_value=answer))
    found = ComposeEnvironment(an_engine(INSPECTED, anchor), "mnist").probe_gpus()
    assert found == dict.fromkeys(("tf3", "worker-1"), GpuView(("GPU-4",), ()))
