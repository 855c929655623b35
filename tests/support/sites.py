"""For each backend a host on which it boots, with fakes where it must: the conformance suite's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends.compose import boot, cli
from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.image_build import ImageBuilder
from lab.backends.engine.client import Engine
from lab.backends.kubernetes.backend import KubernetesBackend
from lab.backends.local.backend import LocalBackend
from lab.backends.slurm.backend import SlurmBackend
from lab.cluster.placement.plan import Plan
from lab.testing.backend import Site, files_left
from tests.support.containers import Docker, inspected
from tests.support.fakes import PLAN
from tests.support.kube import a_cluster
from tests.support.queueing import FakeHost, a_queue, plan_in_seat
from tests.support.slurm_site import both_start, make_site


@contextmanager
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Real processes, whose agents train nothing."""
    monkeypatch.setenv("LAB_LOCAL", "namespaces")
    yield Site(LocalBackend(), PLAN, tmp_path, lambda: files_left(tmp_path / "state"))


@contextmanager
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Fakes of Slurm's commands."""
    site = make_site(tmp_path, monkeypatch)

    def left() -> list[str]:
        return [*files_left(tmp_path / "state"), *site.read("queue").splitlines()]

    yield Site(SlurmBackend(), site.plan, tmp_path, left, lambda: site.pauses.append(both_start))


@contextmanager
def classroom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A real queue with fake containers."""
    del monkeypatch
    host = FakeHost()
    with a_queue(tmp_path / "queue", host) as queue:

        def left() -> list[str]:
            queue.wait("ada", None)
            files = [each for each in files_left(tmp_path / "state") if not each.endswith(".lock")]
            return [*files, *filter(host.runs, host.environments)]

        yield Site(queue.seat("ada"), plan_in_seat(1), tmp_path, left)
    host.stop()


class _Containers(Docker):
    """An engine whose containers can be added and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.api.networks = lambda **_: []
        self.containers = SimpleNamespace(list=self._list, get=self._get)
        self.info = lambda: {"ID": "engine", "Name": "another host"}
        self.version = lambda: {"Version": "28.0"}

    def names(self) -> list[str]:
        return [each.name for each in self._containers]

    def add(self, plan: Plan, root: Path) -> None:
        """Add the containers of a plan, as compose does."""
        for node, task in [*((each.name, "") for each in plan.nodes), *_tasks(plan)]:
            attributes = inspected(Health={"Status": "healthy"})
            attributes["Id"] = attributes["Name"] = task or node
            labels = {
                "com.docker.compose.service": task or node,
                "com.docker.compose.project.working_dir": str(root),
                "lab.project": plan.name,
                "lab.node": node,
                "lab.cluster-sha256": plan.cluster_sha256,
                **({"lab.task": task, "lab.gpus": ""} if task else {}),
            }
            attributes["Config"]["Labels"] = labels
            attributes["Config"]["Env"] = [f"LAB_CLUSTER={json.dumps(plan.cluster_spec())}"]
            attributes["Mounts"] = []
            made = SimpleNamespace(id=task or node, name=task or node, attrs=attributes)
            made.status, made.labels = "running", labels
            made.stop = lambda **_: None
            made.remove = lambda made=made, **_: self._containers.remove(made)
            self._containers.append(made)

    def _get(self, name: str) -> Any:
        return next(each for each in self._containers if each.id == name)


def _tasks(plan: Plan) -> list[tuple[str, str]]:
    return [(each.node, each.name) for each in plan.tasks]


@contextmanager
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A fake engine, and a fake of the compose command."""
    engine = _Containers()
    monkeypatch.setattr(Engine, "client", lambda _: engine)
    monkeypatch.setattr(cli, "docker", lambda: "docker")
    monkeypatch.setattr(cli, "compose_version", lambda: "2.40.3")
    monkeypatch.setattr(ImageBuilder, "of", lambda *_: SimpleNamespace(ensure=lambda: None))
    up = SimpleNamespace(up=lambda: engine.add(PLAN, tmp_path))
    monkeypatch.setattr(boot, "Compose", lambda *_: up)
    left = lambda: [*engine.names(), *files_left(tmp_path / "state")]  # noqa: E731
    yield Site(ComposeBackend(), PLAN, tmp_path, left)


@contextmanager
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A small API server with real agents."""
    with a_cluster(tmp_path / "cluster") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "config"))
        backend = KubernetesBackend({"flavour": "plain"})

        def left() -> list[str]:
            return [*files_left(tmp_path / "state"), *cluster.left()]

        yield Site(backend, PLAN, tmp_path, left)
