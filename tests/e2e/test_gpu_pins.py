"""Cards that are pinned: what each task really holds, and boots that are refused.

The cards are those of a box without any: NVML and CUDA are compiled here, and the engine's hook
lets nothing into a container. What the engine and PID 1 say is real.
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
from tests import cuda
from tests.agents import wait_for
from tests.conditions import needs_namespaces
from tests.engine import ROOT
from tests.nvml import Box, Driver

DriverOf = Callable[[str | Box], Driver]

PATIENCE_S = 420
PINS = "lab-e2e-pins"


@pytest.fixture(scope="module")
def box(driver: DriverOf) -> Driver:
    return driver("eight-h100")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the real programs, and names of its own."""
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


def lab(project: Path, box: Driver, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of a user on the box with eight cards."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), **box.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=True)
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
    """PID 1 and the engine: exactly these cards, nobody another's, and none for the others."""
    seen = environment.inspect()
    described = json.loads(docker("inspect", *(each.id for each in seen)))
    by_service = {
        each["Config"]["Labels"]["com.docker.compose.service"]: each for each in described
    }
    for each in seen:
        told = of_pid_1(each.name)
        requests = by_service[each.service]["HostConfig"]["DeviceRequests"] or []
        cards = planned.get(each.task, ())
        if cards:
            assert told["NVIDIA_VISIBLE_DEVICES"].split(",") == list(cards), each.service
            assert told["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
            assert "CUDA_VISIBLE_DEVICES" not in told
            (request,) = requests
            assert (request["DeviceIDs"], request["Count"]) == (list(cards), 0)
        else:
            assert told["NVIDIA_VISIBLE_DEVICES"] == "void", each.service
            assert told["CUDA_VISIBLE_DEVICES"] == "-1", each.service
            assert requests == []
    assert {task.task: task.gpus for task in environment.tasks()} == planned
    held = [card for cards in planned.values() for card in cards]
    assert len(held) == len(set(held))
    verdicts = evaluate(environment, planned, ())
    assert {
        name: verdicts[name].status for name, cards in planned.items() if cards
    } == dict.fromkeys([name for name, cards in planned.items() if cards], GpuStatus.DECLARED)
    # No device node is in there, and that is all that a ps can be asked.
    assert verdicts["ps-0"].status is GpuStatus.PROVED
    assert {each.status for name, each in verdicts.items() if name not in planned} == {
        GpuStatus.DECLARED
    }


def found(name: str) -> ComposeEnvironment:
    environment = ComposeBackend().find(name)
    assert environment is not None
    return environment


@pytest.mark.engine
def test_eight_workers_hold_a_card_each(pinning: None, project: Path, box: Driver) -> None:
    done = lab(
        project, box, "up", "--cluster", "eight.yaml", "--gpus", "uuid", "--backend", "compose"
    )
    try:
        assert (
            "GPUs: 8 cards of 8 tasks declared only (CUDA: no libcuda.so.1, NVML: " in done.stderr
        )
        assert "proved" not in done.stderr
        environment = found(PINS)
        pins = {task.task: task.gpus for task in environment.tasks()}
        assert {card for cards in pins.values() for card in cards} == {
            card.uuid for card in box.box.cards
        }
        assert [len(cards) for cards in pins.values()] == [0, *[1] * 8]
        check_pins(environment, pins)
    finally:
        lab(project, box, "down", PINS)
    assert left_behind(PINS) == []


@pytest.mark.engine
@pytest.mark.tensorflow
def test_training_on_pinned_cards(pinning: None, project: Path, box: Driver) -> None:
    words = ("--epochs", "2", "--seed", "7", "--gpus", "uuid", "--backend", "compose")
    done = lab(project, box, "run", "async", *words, "--json", "--keep")
    try:
        assert "GPUs: 6 cards of 3 tasks declared only" in done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        assert (summary["state"], summary["global_step"]) == ("succeeded", 3 * 2 * 550)
        environment = found(f"{PINS}-train")
        pins = {task.task: task.gpus for task in environment.tasks()}
        assert [len(cards) for cards in pins.values()] == [0, 2, 2, 2]
        check_pins(environment, pins)
        lose_a_card(environment)
    finally:
        lab(project, box, "down", f"{PINS}-train")
    assert left_behind(f"{PINS}-train") == []


def lose_a_card(environment: ComposeEnvironment) -> None:
    """A card that was there at first is named by the tasks' list and refused to runs."""
    container = f"{environment.project}-worker-1-1"
    # As the first check would have found it: no node can be made in a container without rights.
    note = "open('/tmp/lab-cards', 'w').write('/dev/nvidia3')"
    docker("exec", container, "python", "-c", note)
    wait_for(lambda: not all(task.alive for task in environment.tasks()), "the loss is seen")
    (lost,) = (task for task in environment.tasks() if not task.alive)
    assert lost.task == "worker-1"
    assert "GPU lost: /dev/nvidia3 is gone" in lost.detail
    request = Request("r", RunSpec("async", "mnist_async.py"), environment.cluster_spec())
    mend = f"GPU lost: /dev/nvidia3 is gone; `docker restart {container}`"
    with pytest.raises(LabError, match=mend):
        environment.submit(request)
    docker("restart", "--time", "1", container)
    wait_for(lambda: all(task.alive for task in environment.tasks()), "a restart helps")


def swapped(plan: Plan, first: str, second: str) -> Plan:
    """The same plan in which two tasks have each other's cards."""
    cards = {task.name: task.gpus for task in plan.tasks}
    instead = {first: cards[second], second: cards[first]}
    tasks = tuple(replace(task, gpus=instead.get(task.name, task.gpus)) for task in plan.tasks)
    return replace(plan, tasks=tasks)


@pytest.mark.engine
def test_a_broken_pin_is_refused(
    pinning: None, project: Path, box: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = load_cluster(project / "eight.yaml")
    cards = tuple(Gpu(index, card.uuid) for index, card in enumerate(box.box.cards))
    plan = place(cluster, Inventory("uuid", cards, None, None))
    right, wrong = render(plan), render(swapped(plan, "worker-1", "worker-6"))
    labels = iter(line for line in right.splitlines(keepends=True) if "lab.gpus:" in line)
    tampered = "".join(
        next(labels) if "lab.gpus:" in line else line for line in wrong.splitlines(keepends=True)
    )
    assert tampered != right
    monkeypatch.setattr(compose_backend, "render", lambda plan: tampered)
    by_name = {task.name: task.gpus[0] for task in plan.tasks if task.gpus}
    said: list[str] = []
    with pytest.raises(LabError) as caught:
        boot(ComposeBackend(), plan, root=project, notify=said.append)
    assert str(caught.value).startswith(
        f"worker-1: planned {by_name['worker-1']}, sees {by_name['worker-6']} (environment)"
        " (nor is worker-6 as planned); boot it anew"
    )
    # It was up, all of it, and is gone.
    assert any("is up (14 of 14)" in line for line in said)
    assert not any(line.startswith("GPUs:") for line in said)
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
    """A project on a box whose CUDA shows four cards."""
    driver("bare")  # brings a compiler, or says that there is none
    library = cuda.build(tmp_path / "cuda")
    for name, value in cuda.variables(library, UUIDS).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    # What an agent is given counts, not what this process has.
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
    said: list[str] = []
    environment: Environment = boot(LocalBackend(), LOCAL, root=local, notify=said.append)
    assert said[-1] == "GPUs: 3 cards of 2 tasks proved (CUDA, environment), ps-0 sees none"
    sights = environment.probe_gpus(tensorflow=False)
    assert sights["worker-1"].cuda == (UUIDS[3][4:], UUIDS[0][4:])
    assert sights["ps-0"].cuda == ()
    assert {task.task: task.gpus for task in environment.tasks()} == {
        task.name: task.gpus for task in LOCAL.tasks
    }
    environment.down(lambda line: None)


def test_locally_a_broken_pin_is_refused(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = manifest.tasks_of

    def tampered(plan: Plan, *words: Any, **named: Any) -> tuple[TaskRecord, ...]:
        right, wrong = honest(plan, *words, **named), honest(swap, *words, **named)
        return tuple(
            replace(task, environ=other.environ) for task, other in zip(right, wrong, strict=True)
        )

    swap = swapped(LOCAL, "ps-0", "worker-0")
    monkeypatch.setattr(manifest, "tasks_of", tampered)
    words = rf"ps-0: planned none, sees {UUIDS[2]} \(environment\) \(nor is worker-0 as planned\)"
    with pytest.raises(LabError, match=words):
        boot(LocalBackend(), LOCAL, root=local, notify=lambda line: None)
    assert LocalBackend().all() == []
    assert LocalBackend().find_any(LOCAL.name) is None
