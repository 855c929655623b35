"""Without a volume that several nodes can mount, all pods are on one node, and train there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.kubernetes.conftest import LEFT
from tests.kubernetes.site import NODE, PAUSE, Site, render_flags
from tests.support.commands import lab

PATIENCE_S = 60.0


@pytest.fixture
def volume(site: Site) -> Iterator[None]:
    """A volume that one node can mount. It goes with the claim that `lab` makes."""
    site.volume("one-node", "ReadWriteOnce", storage="10Gi")
    yield
    site.kubectl("delete", "persistentvolume", "one-node")


@pytest.fixture
def second_node(site: Site) -> Iterator[str]:
    """A node without a kubelet: Kubernetes places pods on it, but none of them starts."""
    ready = {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    room = {"cpu": "64", "memory": "64Gi", "pods": "100"}
    labels = {"kubernetes.io/hostname": "node-2"}
    status = {"conditions": [ready], "allocatable": room, "capacity": room}
    site.apply("Node", "node-2", labels=labels, status=status)
    # Kubernetes permits pods on it after a look, and forbids them 40 s after its heartbeat.
    site.wait(
        lambda: "taints" not in site.get("node", "node-2")["spec"], "it is tainted", PATIENCE_S
    )
    yield "node-2"
    site.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    site.kubectl("delete", "node", "node-2")


def test_lab_run_trains_with_a_volume_that_one_node_can_mount(
    site: Site, own_project: Path, image: str, volume: None
) -> None:
    out, _ = lab(
        own_project,
        *("run", "async", *site.flags(nodes="one", image=image), "--epochs=1", "--json"),
        **site.access,
    )
    summary = json.loads(out.splitlines()[-1])
    assert (summary["state"], summary["records_lost"]) == ("succeeded", 0)
    assert site.get(LEFT, selector="lab.project") == []


@pytest.mark.parametrize("nodes", ["one", "any"])
def test_the_option_keeps_pods_together(
    site: Site, own_project: Path, image: str, claim: str, second_node: str, nodes: str
) -> None:
    pause = {"name": "pause", "image": PAUSE, "imagePullPolicy": "Never"}
    spec = {"nodeName": NODE, "containers": [pause]}
    site.apply("Pod", "first", labels={"lab.project": "laptop"}, spec=spec)
    file = own_project / "cluster.yml"
    lab(
        own_project,
        *("render", "--target", "kubernetes", "--output", str(file)),
        *render_flags(nodes=nodes, claim=claim, image=image),
    )
    site.kubectl("cordon", NODE)  # so that the others would be on the second node
    try:
        site.kubectl("apply", "-f", str(file))
        site.wait(
            lambda: len(places(site)) == 3 and all(places(site)),
            "Kubernetes has not placed a pod",
            PATIENCE_S,
        )
        found = places(site)
        if nodes == "any":
            assert found == [second_node] * 3
        else:
            assert all("didn't match pod affinity" in each for each in found), found
    finally:
        site.kubectl("uncordon", NODE)
        site.kubectl("delete", "-f", str(file), "--wait=false")


def places(site: Site) -> list[str]:
    """The node of each task's pod, or why it has none; "": Kubernetes has not looked yet."""
    pods = site.get("pods", selector="lab.project=laptop,lab.job")
    conditions = [each["status"].get("conditions", [{}])[0] for each in pods]
    return [
        pod["spec"].get("nodeName") or condition.get("message", "")
        for pod, condition in zip(pods, conditions, strict=True)
    ]
