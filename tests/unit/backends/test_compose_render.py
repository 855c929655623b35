"""The real `docker compose` with rendered files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.backends.compose.render import DEFAULTS, render
from lab.backends.names import COMPOSE
from lab.backends.rendered_file import RenderOptions, stale_diff
from lab.cluster.config import Cluster, load_cluster
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Plan
from lab.verbs.render import recorded
from tests.golden.boxes import MODES, inventory
from tests.golden.cases import GOOD
from tests.support.composing import ROOT, config
from tests.support.rendering import render_file

CASES = [(source, mode) for source in GOOD for mode in MODES]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].stem}-{case[1]}")
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Cluster, Plan, Any]:
    source, mode = request.param
    cluster = load_cluster(source)
    plan = place(cluster, inventory(mode, cluster))
    file = tmp_path / "docker-compose.yml"
    file.write_text(render(plan), encoding="utf-8")
    return cluster, plan, config(file)


def devices(service: dict[str, Any]) -> list[dict[str, Any]]:
    resources = service.get("deploy", {}).get("resources", {})
    return resources.get("reservations", {}).get("devices", [])


def test_a_rendered_file_keeps_every_promise(rendered: tuple[Cluster, Plan, Any]) -> None:
    """One test, because reading a file takes compose a while."""
    cluster, plan, project = rendered
    services = project["services"]
    assert project["name"] == plan.name
    assert set(services) == {node.name for node in plan.nodes} | {task.name for task in plan.tasks}
    for service in services.values():
        hardened(service)
    # Compose builds once for each service that has a `build`.
    assert [name for name, each in services.items() if "build" in each] == [plan.nodes[0].name]
    linked = {node.name for node in plan.nodes if node.link is not None}
    for name, service in services.items():
        rights = ("0:0", ["NET_ADMIN"]) if name in linked else ("1000:1000", None)
        assert (service["user"], service.get("cap_add")) == rights
    for task in plan.tasks:
        joined = f"service:{task.node}"
        assert services[task.name]["network_mode"] == services[task.name]["ipc"] == joined
        mounts = services[task.name]["volumes"]
        assert {each["target"] for each in mounts if each["type"] == "bind"} == {
            "/lab/scripts",
            "/lab/data",
        }
        assert all(each["read_only"] for each in mounts if each["type"] == "bind")
    gpus(cluster, plan, services)
    network = project["networks"]["cluster"]
    assert network["internal"] is True
    assert list(project["networks"]) == ["cluster"]
    assert list(project["volumes"]) == ["runs"]


def hardened(service: dict[str, Any]) -> None:
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["pids_limit"] > 0
    assert service["init"] is True
    forbidden = {"privileged", "container_name", "ports", "restart", "devices", "gpus", "expose"}
    assert not forbidden & service.keys()
    assert "docker.sock" not in json.dumps(service)


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


def test_the_callers_environment_chooses_image_build_and_run(tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(render_file(ROOT / "cluster.yaml"), encoding="utf-8")
    project = config(
        file,
        LAB_IMAGE="lab:mine",
        LAB_BUILD_NETWORK="host",
        LAB_BASE_IMAGE="lab-base:bookworm",
        LAB_TENSORFLOW="tensorflow-cpu==2.21.*",
        LAB_RUN="sync --epochs=2",
        LAB_ONCE="1",
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
    run = project["services"]["run"]["environment"]
    assert (run["LAB_RUN"], run["LAB_ONCE"]) == ("sync --epochs=2", "1")
    spec = json.loads(task["environment"]["LAB_CLUSTER"])
    assert spec == {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222", "tf4:2222"]}


def test_a_class_sets_the_addresses_of_a_network() -> None:
    cluster = load_cluster(GOOD[0])
    plan = place(cluster, inventory("none", cluster))
    assert "subnet" not in render(plan)
    assert "- subnet: 10.89.1.0/28\n" in render(plan, {**DEFAULTS, "subnet": "10.89.1.0/28"})


def test_the_file_at_the_root_is_fresh() -> None:
    file = ROOT / "docker-compose.yml"
    assert recorded(file, COMPOSE) == RenderOptions("index", "tensorflow")
    again = render_file(ROOT / "cluster.yaml", relative_to=ROOT)
    assert stale_diff(file, again) == "", "write it with `python -m lab render --gpus index`"
