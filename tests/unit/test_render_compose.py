"""The real `docker compose` with rendered files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.config import Cluster, load_cluster
from lab.placement.place import place
from lab.placement.plan import Plan
from lab.render import RenderOptions, render, render_file, render_options, stale_diff, write
from tests.golden.boxes import MODES, inventory
from tests.golden.cases import GOOD
from tests.support.composing import ROOT, config

SHIPPED = sorted([ROOT / "cluster.yaml", *(ROOT / "clusters").glob("*.yaml")])
CASES = [(source, mode) for source in [*GOOD, *SHIPPED] for mode in MODES]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].stem}-{case[1]}")
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Cluster, Plan, Any]:
    """A config, its plan, and its compose file as compose reads it."""
    source, mode = request.param
    cluster = load_cluster(source)
    plan = place(cluster, inventory(mode, cluster))
    file = tmp_path / "docker-compose.yml"
    file.write_text(render(plan), encoding="utf-8")
    return cluster, plan, config(file)


def devices(service: dict[str, Any]) -> list[dict[str, Any]]:
    resources = service.get("deploy", {}).get("resources", {})
    found: list[dict[str, Any]] = resources.get("reservations", {}).get("devices", [])
    return found


def test_a_rendered_file_keeps_every_promise(rendered: tuple[Cluster, Plan, Any]) -> None:
    """One test, because reading a file takes compose a while."""
    cluster, plan, project = rendered
    services = project["services"]
    assert project["name"] == plan.name
    assert set(services) == {node.name for node in plan.nodes} | {task.name for task in plan.tasks}
    for service in services.values():
        hardened(service, plan)
    built_once(services, plan)
    for node in plan.nodes:
        anchor(services[node.name], node.name, linked=node.link is not None)
    for task in plan.tasks:
        joiner(services[task.name], task.node, task.name)
    gpus(cluster, plan, services)
    network = project["networks"]["cluster"]
    assert network["internal"] is True
    assert network["driver_opts"] == {"com.docker.network.driver.mtu": "65535"}
    assert project["networks"]["cluster"]["labels"] == {"lab.project": plan.name}
    assert project["volumes"]["runs"]["labels"] == {"lab.project": plan.name}
    assert list(project["networks"]) == ["cluster"]
    assert list(project["volumes"]) == ["runs"]


def hardened(service: dict[str, Any], plan: Plan) -> None:
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["pids_limit"] > 0
    assert service["init"] is True
    forbidden = {"privileged", "container_name", "ports", "restart", "devices", "gpus", "expose"}
    assert not forbidden & service.keys()
    assert "docker.sock" not in json.dumps(service)
    assert service["labels"]["lab.project"] == plan.name
    assert service["labels"]["lab.cluster-sha256"] == plan.cluster_sha256
    with_gpus = any(task.gpus for task in plan.tasks)
    assert service["image"] == ("lab:cuda" if with_gpus else "lab:cpu")
    assert service["pull_policy"] == "never"
    assert service["healthcheck"]["test"][0] == "CMD"


def built_once(services: dict[str, dict[str, Any]], plan: Plan) -> None:
    """Compose builds, and exports, once for each service that has a `build`."""
    builds = {name: service["build"] for name, service in services.items() if "build" in service}
    with_gpus = any(task.gpus for task in plan.tasks)
    build = {
        "context": str(ROOT),
        "dockerfile": "Dockerfile.gpu",
        "network": "default",
        "args": {
            "BASE_IMAGE": "python:3.11-slim-bookworm",
            "REQUIREMENTS": "image-cuda" if with_gpus else "image-cpu",
            "TENSORFLOW": "",
        },
    }
    assert builds == {plan.nodes[0].name: build}


def anchor(service: dict[str, Any], node: str, *, linked: bool) -> None:
    assert service["hostname"] == node
    assert list(service["networks"]) == ["cluster"]
    assert service["ipc"] == "shareable"
    assert int(service["shm_size"]) > 0
    assert service["command"] == ["python", "-m", "lab.task.probes.pause"]
    assert "volumes" not in service
    assert service["labels"]["lab.node"] == node
    assert "lab.task" not in service["labels"]
    assert (service["user"], service.get("cap_add")) == (
        ("0:0", ["NET_ADMIN"]) if linked else ("1000:1000", None)
    )
    has_link = {"LAB_LINK_RATE_BITS", "LAB_LINK_DELAY_US"} & service["environment"].keys()
    assert bool(has_link) == linked


def joiner(service: dict[str, Any], node: str, task: str) -> None:
    assert service["network_mode"] == service["ipc"] == f"service:{node}"
    condition = {"condition": "service_healthy", "restart": True, "required": True}
    assert service["depends_on"] == {node: condition}
    assert not {"hostname", "networks", "extra_hosts", "cap_add"} & service.keys()
    assert service["user"] == "1000:1000"
    assert service["stop_grace_period"] == "15s"
    assert service["command"] == ["python", "-m", "lab.task.agent"]
    mounts = {mount["target"]: mount for mount in service["volumes"]}
    assert (mounts["/runs"]["type"], mounts["/runs"]["source"]) == ("volume", "runs")
    for folder in ("scripts", "data"):
        mount = mounts[f"/lab/{folder}"]
        assert (mount["type"], mount["source"]) == ("bind", str(ROOT / folder))
        assert mount["read_only"] is True
    environment = service["environment"]
    assert environment["LAB_TASK"] == service["labels"]["lab.task"] == task
    assert environment["LAB_NODE"] == service["labels"]["lab.node"] == node
    assert environment["LAB_EXPERIMENT"] == environment["LAB_FLAGS"] == ""


def gpus(cluster: Cluster, plan: Plan, services: dict[str, dict[str, Any]]) -> None:
    """No count, no GPU twice, and none for those that planned none."""
    planned = {task.name: task for task in plan.tasks}
    alone: list[str] = []
    shared: set[str] = set()
    for name, service in services.items():
        task = planned.get(name)
        ids: list[str] = []
        if task is not None and task.gpus:
            (device,) = devices(service)
            assert device["driver"] == "nvidia"
            assert device["capabilities"] == ["gpu", "compute", "utility"]
            # compose itself writes -1 for "all of them".
            assert "count" not in device
            ids = device["device_ids"]
            assert service["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
            assert "CUDA_VISIBLE_DEVICES" not in service["environment"]
            assert "NVIDIA_VISIBLE_DEVICES" not in service["environment"]
            if cluster.jobs[task.job].share:
                shared.update(ids)
            else:
                alone += ids
        else:
            assert devices(service) == []
            assert service["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
            assert service["environment"]["CUDA_VISIBLE_DEVICES"] == "-1"
        assert ids == list(task.gpus if task is not None else ())
        assert all(isinstance(device_id, str) for device_id in ids)
        if name.startswith("ps-"):
            assert ids == []
    assert len(set(alone)) == len(alone)
    assert not shared & set(alone)


def test_the_callers_environment_chooses_image_build_and_experiment(tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(render_file(ROOT / "cluster.yaml", RenderOptions("index")), encoding="utf-8")
    project = config(
        file,
        LAB_IMAGE="lab:mine",
        LAB_BUILD_NETWORK="host",
        LAB_BASE_IMAGE="lab-base:bookworm",
        LAB_TENSORFLOW="tensorflow-cpu==2.21.*",
        LAB_EXPERIMENT="async",
        LAB_FLAGS="--epochs 2",
    )
    task = project["services"]["worker-1"]
    assert task["image"] == project["services"]["tf1"]["image"] == "lab:mine"
    build = project["services"]["tf1"]["build"]
    assert build["network"] == "host"
    assert build["args"] == {
        "BASE_IMAGE": "lab-base:bookworm",
        "REQUIREMENTS": "image-cuda",
        "TENSORFLOW": "tensorflow-cpu==2.21.*",
    }
    assert task["environment"]["LAB_EXPERIMENT"] == "async"
    assert task["environment"]["LAB_FLAGS"] == "--epochs 2"
    spec = json.loads(task["environment"]["LAB_CLUSTER"])
    assert spec == {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222", "tf4:2222"]}


def test_programs_of_2017_have_an_image_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(render_file(ROOT / "cluster.yaml", RenderOptions("index", "2.15", "none")))
    # A user's choice for the other image does not apply to this one.
    project = config(file, LAB_IMAGE="lab:mine", LAB_TENSORFLOW="tensorflow-cpu==2.21.*")
    task, anchor = project["services"]["worker-1"], project["services"]["tf1"]
    assert task["image"] == anchor["image"] == "lab:heritage-cuda"
    assert anchor["build"]["args"]["TENSORFLOW"] == ""
    assert anchor["build"]["args"]["REQUIREMENTS"] == "image-heritage-cuda"
    assert anchor["build"]["args"]["HOROVOD"] == "horovod"
    assert anchor["build"]["args"]["HOROVOD_GPU_OPERATIONS"] == ""
    assert task["labels"]["lab.tensorflow"] == task["environment"]["LAB_TENSORFLOW_VERSION"]
    project = config(
        file,
        LAB_HERITAGE_IMAGE="lab:old",
        LAB_HERITAGE_TENSORFLOW="tensorflow==2.12",
        LAB_HOROVOD_GPU_OPERATIONS="NCCL",
    )
    assert project["services"]["worker-1"]["image"] == "lab:old"
    args = project["services"]["tf1"]["build"]["args"]
    assert (args["TENSORFLOW"], args["HOROVOD_GPU_OPERATIONS"]) == ("tensorflow==2.12", "NCCL")
    without = render_file(ROOT / "cluster.yaml", RenderOptions("none", "2.15", "none"))
    assert "lab:heritage-cpu" in without
    assert "REQUIREMENTS: image-heritage-cpu\n" in without


def test_the_file_at_the_root_is_fresh() -> None:
    file = ROOT / "docker-compose.yml"
    assert render_options(file) == RenderOptions("index", "2.21")
    again = render_file(ROOT / "cluster.yaml", RenderOptions("index"), relative_to=ROOT)
    assert stale_diff(file, again) == "", "write it with `python -m lab render --gpus index`"


def test_the_written_text_is_compared(tmp_path: Path) -> None:
    file = tmp_path / "out.yml"
    text = render_file(ROOT / "cluster.yaml", RenderOptions("index"))
    assert render_options(file) is None
    assert stale_diff(file, text).startswith(f"--- {file}\n+++ {file} (rendered again)\n")
    write(file, text)
    assert stale_diff(file, text) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["out.yml"]
