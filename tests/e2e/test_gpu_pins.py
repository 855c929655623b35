"""Pinned GPUs: what each task really has, and boots that are refused.

The host has no GPU: NVML and CUDA are compiled here, and the engine's hook
adds nothing to a container. The reports of the engine and of PID 1 are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.backends import Environment
from lab.backends.compose import ComposeBackend, ComposeEnvironment
from lab.backends.compose import backend as compose_backend
from lab.backends.gpu_verification import boot, evaluate
from lab.backends.local import LocalBackend, manifest
from lab.backends.local.state import TaskRecord
from lab.config import load_cluster
from lab.errors import LabError
from lab.gpu import Gpu, Inventory
from lab.gpu.verification import GpuStatus
from lab.placement.place import place
from lab.placement.plan import Plan, PlannedNode, PlannedTask
from lab.render.compose import render
from lab.task.protocol import Request, RunSpec
from tests.support import cuda
from tests.support.agents import wait_for
from tests.support.conditions import needs_namespaces
from tests.support.engine import ROOT
from tests.support.nvml.box import Box
from tests.support.nvml.library import Driver

DriverOf = Callable[[str | Box], Driver]

PATIENCE_S = 420
PINS = "lab-e2e-pins"


@pytest.fixture(scope="module")
def host(driver: DriverOf) -> Driver:
    return driver("eight-h100")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the real programs, and its own names."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "data").mkdir()
    eight = (ROOT / "clusters" / "eight-gpus.yaml").read_text()
    assert "\nname: eight-gpus\n" in eight
    (folder / "eight.yaml").write_text(eight.replace("name: eight-gpus", f"name: {PINS}"))
    four = (ROOT / "cluster.yaml").read_text()
    assert "\nname: mnist " in four
    (folder / "cluster.yaml").write_text(four.replace("name: mnist", f"name: {PINS}-train"))
    return folder


def lab(project: Path, host: Driver, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A user's command on the host with eight GPUs."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), **host.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def left_behind(name: str) -> list[str]:
    found: list[str] = []
    for what in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
        found += docker(*what, "--quiet", "--filter", f"label=lab.project={name}").split()
    return found


def of_pid_1(container: str) -> dict[str, str]:
    code = "print(open('/proc/1/environ').read())"
    text = docker("exec", container, "python", "-c", code)
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs}


def check_pins(environment: ComposeEnvironment, planned: Mapping[str, tuple[str, ...]]) -> None:
    """PID 1 and the engine: exactly these GPUs, and none of another task."""
    seen = environment.inspect()
    described = json.loads(docker("inspect", *(each.id for each in seen)))
    by_service = {
        each["Config"]["Labels"]["com.docker.compose.service"]: each for each in described
    }
    for each in seen:
        told = of_pid_1(each.name)
        requests = by_service[each.service]["HostConfig"]["DeviceRequests"] or []
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
    verdicts = evaluate(environment, planned, ())
    assert {name: verdicts[name].status for name, gpus in planned.items() if gpus} == dict.fromkeys(
        [name for name, gpus in planned.items() if gpus], GpuStatus.DECLARED
    )
    # No device node is in it, and a ps can show nothing else.
    assert verdicts["ps-0"].status is GpuStatus.PROVED
    assert {each.status for name, each in verdicts.items() if name not in planned} == {
        GpuStatus.DECLARED
    }


def found(name: str) -> ComposeEnvironment:
    environment = ComposeBackend().find(name)
    assert environment is not None
    return environment


@pytest.mark.engine
def test_eight_workers_have_a_gpu_each(pinning: None, project: Path, host: Driver) -> None:
    done = lab(
        project, host, "up", "--cluster", "eight.yaml", "--gpus", "uuid", "--backend", "compose"
    )
    try:
        assert "GPUs: 8 GPUs of 8 tasks declared only (CUDA: no libcuda.so.1, NVML: " in done.stderr
        assert "proved" not in done.stderr
        environment = found(PINS)
        pins = {task.task: task.gpus for task in environment.tasks()}
        assert {gpu for gpus in pins.values() for gpu in gpus} == {
            gpu.uuid for gpu in host.box.cards
        }
        assert [len(gpus) for gpus in pins.values()] == [0, *[1] * 8]
        check_pins(environment, pins)
    finally:
        lab(project, host, "down", PINS)
    assert left_behind(PINS) == []


@pytest.mark.engine
@pytest.mark.tensorflow
def test_training_on_pinned_gpus(pinning: None, project: Path, host: Driver) -> None:
    arguments = ("--epochs", "2", "--seed", "7", "--gpus", "uuid", "--backend", "compose")
    done = lab(project, host, "run", "async", *arguments, "--json", "--keep")
    try:
        assert "GPUs: 6 GPUs of 3 tasks declared only" in done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        assert (summary["state"], summary["global_step"]) == ("succeeded", 3 * 2 * 550)
        environment = found(f"{PINS}-train")
        pins = {task.task: task.gpus for task in environment.tasks()}
        assert [len(gpus) for gpus in pins.values()] == [0, 2, 2, 2]
        check_pins(environment, pins)
        lose_a_card(environment)
    finally:
        lab(project, host, "down", f"{PINS}-train")
    assert left_behind(f"{PINS}-train") == []


def lose_a_card(environment: ComposeEnvironment) -> None:
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
    mend = f"GPU lost: /dev/nvidia3 is missing; run `docker restart {container}`"
    with pytest.raises(LabError, match=mend):
        environment.submit(request)
    docker("restart", "--time", "1", container)
    wait_for(lambda: all(task.alive for task in environment.tasks()), "a restart helps")


def swapped(plan: Plan, first: str, second: str) -> Plan:
    """The same plan in which two tasks have each other's GPUs."""
    gpus = {task.name: task.gpus for task in plan.tasks}
    instead = {first: gpus[second], second: gpus[first]}
    tasks = tuple(replace(task, gpus=instead.get(task.name, task.gpus)) for task in plan.tasks)
    return replace(plan, tasks=tasks)


@pytest.mark.engine
def test_a_broken_pin_is_refused(
    pinning: None, project: Path, host: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = load_cluster(project / "eight.yaml")
    gpus = tuple(Gpu(index, gpu.uuid) for index, gpu in enumerate(host.box.cards))
    plan = place(cluster, Inventory("uuid", gpus, None, None))
    right, wrong = render(plan), render(swapped(plan, "worker-1", "worker-6"))
    labels = iter(line for line in right.splitlines(keepends=True) if "lab.gpus:" in line)
    tampered = "".join(
        next(labels) if "lab.gpus:" in line else line for line in wrong.splitlines(keepends=True)
    )
    assert tampered != right
    monkeypatch.setattr(compose_backend, "render", lambda plan, options: tampered)
    by_name = {task.name: task.gpus[0] for task in plan.tasks if task.gpus}
    output: list[str] = []
    with pytest.raises(LabError) as caught:
        boot(ComposeBackend(), plan, root=project, notify=output.append)
    assert str(caught.value).startswith(
        f"worker-1: planned {by_name['worker-1']}, sees {by_name['worker-6']} (environment)"
        " (also not as planned: worker-6); boot it again"
    )
    # The whole environment was up, and is removed.
    assert any("is up (14 of 14)" in line for line in output)
    assert not any(line.startswith("GPUs:") for line in output)
    assert left_behind(PINS) == []


# ---- Processes: CUDA's driver is the witness


UUIDS = [f"GPU-0000000{index}-1111-2222-3333-444444444444" for index in range(4)]
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


@pytest.fixture(params=["namespaces", "processes"])
def local(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    driver: DriverOf,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """A project on a host whose CUDA shows four GPUs."""
    driver("bare")  # finds a compiler, or raises
    library = cuda.build(tmp_path / "cuda")
    for name, value in cuda.variables(library, UUIDS).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    # The agent's variables count, not those of this process.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[1])
    if request.param == "processes":
        monkeypatch.setenv("LAB_LOCAL_NAMESPACES", "0")
    else:
        needs_namespaces()
    (tmp_path / "scripts").mkdir()
    yield tmp_path
    for environment in LocalBackend().all():
        environment.down(lambda line: None)


def test_locally_cuda_proves_each_pin(local: Path) -> None:
    output: list[str] = []
    environment: Environment = boot(LocalBackend(), LOCAL, root=local, notify=output.append)
    assert output[-1] == "GPUs: 3 GPUs of 2 tasks proved (CUDA, environment), ps-0 sees none"
    sights = environment.probe_gpus(tensorflow=False)
    assert sights["worker-1"].cuda == (UUIDS[3][4:], UUIDS[0][4:])
    assert sights["ps-0"].cuda == ()
    assert {task.task: task.gpus for task in environment.tasks()} == {
        task.name: task.gpus for task in LOCAL.tasks
    }
    environment.down(lambda line: None)


def test_locally_a_broken_pin_is_refused(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = manifest.tasks_of

    def tampered(plan: Plan, *message: Any, **named: Any) -> tuple[TaskRecord, ...]:
        right, wrong = honest(plan, *message, **named), honest(swap, *message, **named)
        return tuple(
            replace(task, environ=other.environ) for task, other in zip(right, wrong, strict=True)
        )

    swap = swapped(LOCAL, "ps-0", "worker-0")
    monkeypatch.setattr(manifest, "tasks_of", tampered)
    message = (
        rf"ps-0: planned none, sees {UUIDS[2]} \(environment\) \(also not as planned: worker-0\)"
    )
    with pytest.raises(LabError, match=message):
        boot(LocalBackend(), LOCAL, root=local, notify=lambda line: None)
    assert LocalBackend().all() == []
    assert LocalBackend().find_any(LOCAL.name) is None
