"""Pinned GPUs: what each task really has, and boots that are refused.

The host has no GPU: NVML is compiled here, and the engine's hook adds nothing to a container. The
reports of the engine and of PID 1 are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.environment import Environment
from lab.backends.gpu_verification import boot
from lab.backends.local.backend import LocalBackend
from lab.base.errors import LabError
from lab.cluster.gpu.verification import GpuStatus, GpuView, check_all
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from lab.protocol.volume import Request, RunSpec
from tests.support.agents import wait_for
from tests.support.commands import lab
from tests.support.conditions import needs_namespaces
from tests.support.docker import docker, inspect, left_behind
from tests.support.engine import ROOT
from tests.support.nvml.box import Box, load
from tests.support.nvml.library import Driver

DriverOf = Callable[[str | Box], Driver]

PATIENCE_S = 420
PINS = "lab-e2e-pins"


@pytest.fixture(scope="module")
def host(driver: DriverOf) -> Driver:
    return driver("eight-h100")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "data").mkdir()
    eight = (ROOT / "clusters" / "eight-gpus.yaml").read_text()
    assert "\nname: eight-gpus\n" in eight
    (folder / "eight.yaml").write_text(eight.replace("name: eight-gpus", f"name: {PINS}"))
    return folder


def of_pid_1(container: str) -> dict[str, str]:
    code = "print(open('/proc/1/environ').read())"
    text = docker("exec", container, "python", "-c", code)
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs}


def check_pins(environment: ComposeEnvironment, planned: Mapping[str, tuple[str, ...]]) -> None:
    described = inspect(environment)
    for each in environment.inspect():
        told = of_pid_1(each.name)
        requests = described[each.service]["HostConfig"]["DeviceRequests"] or []
        gpus = planned.get(each.task, ())
        if gpus:
            assert told["NVIDIA_VISIBLE_DEVICES"].split(",") == list(gpus), each.service
            assert told["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
            assert "CUDA_VISIBLE_DEVICES" not in told
            (request,) = requests
            assert (request["DeviceIDs"], request["Count"]) == (list(gpus), 0)
        else:
            assert told["NVIDIA_VISIBLE_DEVICES"] == "void", each.service
            assert told["CUDA_VISIBLE_DEVICES"] == "-1", each.service
            assert requests == []
    assert {task.task: task.gpus for task in environment.tasks()} == planned
    held = [gpu for gpus in planned.values() for gpu in gpus]
    assert len(held) == len(set(held))
    # No driver is in a container: a task without GPUs and a node can see none.
    verdicts = check_all(environment.probe_gpus(), planned, ())
    assert {name: each.status for name, each in verdicts.items()} == {
        name: GpuStatus.UNKNOWN if planned.get(name) else GpuStatus.PROVED for name in verdicts
    }
    assert verdicts.keys() == {each.service for each in environment.inspect()}


@pytest.mark.engine
def test_eight_workers_have_a_gpu_each(pinning: None, project: Path, host: Driver) -> None:
    variables = dict(host.environment)
    flags = ("--cluster", "eight.yaml", "--gpus", "uuid", "--backend", "compose")
    _, err = lab(project, "up", *flags, **variables)
    try:
        assert "GPUs: 8 tasks not proved (no NVIDIA driver in the task), ps-0 sees none" in err
        environment = ComposeBackend().find(PINS)
        pins = {task.task: task.gpus for task in environment.tasks()}
        assert {gpu for gpus in pins.values() for gpu in gpus} == {
            gpu.uuid for gpu in host.box.cards
        }
        assert [len(gpus) for gpus in pins.values()] == [0, *[1] * 8]
        check_pins(environment, pins)
        lose_a_gpu(environment)
    finally:
        lab(project, "down", PINS, **variables)
    assert left_behind(PINS) == []


def lose_a_gpu(environment: ComposeEnvironment) -> None:
    """A GPU that disappears is named by the tasks' list and refused to runs."""
    container = f"{environment.project}-worker-1-1"
    # As the first check would have found it: no node can be made in a container without rights.
    note = "open('/tmp/lab-gpus', 'w').write('/dev/nvidia3')"
    docker("exec", container, "python", "-c", note)
    wait_for(lambda: not all(task.alive for task in environment.tasks()), "the loss is seen")
    (lost,) = (task for task in environment.tasks() if not task.alive)
    assert lost.task == "worker-1"
    assert "GPU lost: /dev/nvidia3 is missing" in lost.detail
    request = Request("r", RunSpec("async", "mnist_async.py"), environment.cluster_spec())
    fix = f"GPU lost: /dev/nvidia3 is missing; run `docker restart {container}`"
    with pytest.raises(LabError, match=fix):
        environment.submit(request)
    docker("restart", "--time", "1", container)
    wait_for(lambda: all(task.alive for task in environment.tasks()), "a restart helps")


UUIDS = [gpu.uuid for gpu in load("eight-h100").cards]
LOCAL = Plan(
    name="lab-e2e-local-pins",
    mode="uuid",
    cluster_sha256="0" * 64,
    nodes=(PlannedNode("tf1"), PlannedNode("tf2")),
    tasks=(
        PlannedTask("ps", 0, "tf1", 23951),
        PlannedTask("worker", 0, "tf1", 23952, (UUIDS[2],)),
        PlannedTask("worker", 1, "tf2", 23953, (UUIDS[3], UUIDS[0])),
    ),
)


@pytest.fixture
def local(tmp_path: Path, host: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    # The agent's variables count, not those of this process.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[1])
    needs_namespaces()
    (tmp_path / "scripts").mkdir()
    yield tmp_path
    for environment in LocalBackend().all():
        environment.down()


def test_locally_each_pin_is_proved(local: Path, notices: list[str]) -> None:
    environment: Environment = boot(LocalBackend(), LOCAL, root=local)
    assert notices[-1] == "GPUs: 3 GPUs of 2 tasks proved (NVML), ps-0 sees none"
    views = environment.probe_gpus()
    assert views["worker-1"] == GpuView(seen=(UUIDS[3], UUIDS[0]))
    assert views["ps-0"] == GpuView(seen=())
    assert {task.task: task.gpus for task in environment.tasks()} == {
        task.name: task.gpus for task in LOCAL.tasks
    }
    environment.down()
