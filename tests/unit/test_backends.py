"""What holds for every backend; tests/e2e/test_daily_use.py trains on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.backends import Backend
from lab.backends.names import CAPABILITIES
from lab.backends.registry import backend_named, backends
from lab.config import parse_cluster
from lab.errors import InputError

CLUSTER = b"{version: 1, name: m, nodes: {tf1: {gpus: 1}}, jobs: {worker: {on: [tf1]}}}"


@pytest.fixture(params=CAPABILITIES)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    return backend_named(request.param)


def test_the_registry_has_the_backends_with_capabilities() -> None:
    assert {each.name for each in backends()} == {*CAPABILITIES}


def test_its_reason_is_one_line(backend: Backend) -> None:
    reason = backend.unavailable_reason()
    assert reason is None or len(reason.splitlines()) == 1


def test_it_plans_a_config_without_gpus(backend: Backend) -> None:
    cluster = parse_cluster(CLUSTER, "cluster.yaml")
    placed = backend.plan(cluster, "none", tensorflow="2.21")
    assert [(task.name, task.gpus) for task in placed.plan.tasks] == [("worker-0", ())]
    assert placed.plan.cluster_sha256 == cluster.sha256
    assert placed.plan.tensorflow == "2.21"


def test_only_tasks_that_see_files_under_the_same_path_have_any_file(
    backend: Backend, tmp_path: Path
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    if CAPABILITIES[backend.name].containers:
        with pytest.raises(InputError, match="--data_dir"):
            backend.task_path(outside, project)
    else:
        assert backend.task_path(outside, project) == str(outside)
