"""The target of runs: the checks before a start, the boot, and the TensorFlow of its tasks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lab
from lab.backends import gpu_verification
from lab.backends.environment import Environment
from lab.backends.local.backend import LocalBackend
from lab.base.errors import LabError
from lab.cluster.config import parse_cluster
from lab.cluster.placement.place import Placed
from lab.cluster.placement.plan import Plan
from lab.cluster.project import Project
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.runtimes import HERITAGE, INSTALLED_MARKER
from lab.protocol.volume import Request, RunSpec
from lab.protocol.volume.states import State
from lab.runner.prepared import PlaceOptions
from lab.runner.store.directory import all_runs
from tests.support.cli import replace_backends
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment, raising
from tests.support.specs import place_in, prepared

CLUSTER = parse_cluster(
    b"{version: 1, name: mnist, nodes: {tf1: {}}, jobs: {worker: {on: [tf1]}}}", "cluster.yaml"
)
NOTICE = "tf1: it gets fewer CPUs than the config states"


def test_a_boot_reports_the_plan_and_collects_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    dead = FakeEnvironment(tmp_path / "volume")
    wanted = EXPERIMENTS["async"]
    dead.submit(
        Request(
            run_id="20260101-0900-async-1a2b",
            spec=RunSpec(
                experiment=wanted.name, program=wanted.program, args=(), services=wanted.services
            ),
            cluster=PLAN.cluster_spec(),
        )
    )
    for thread in dead.threads:
        thread.join(30)
    dead.is_left = True
    replace_backends(monkeypatch, FakeBackend(environment=dead))
    placed = Placed(replace(PLAN, notices=(NOTICE,)), None)
    project = Project(CLUSTER, tmp_path / "cluster.yaml", tmp_path)
    store = tmp_path / "runs"
    found = PlaceOptions(gpus="none").find(placed, project, store)
    assert (found[1], notices.count(NOTICE)) == (None, 1)
    (run,) = all_runs(tmp_path / "runs")
    assert run.read().state is State.SUCCEEDED


def test_a_boot_is_verified_before_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def prove(environment: Environment, plan: Plan) -> None:
        assert environment is made
        assert plan is PLAN
        order.append("proved")

    monkeypatch.setattr(gpu_verification, "verify_gpus", prove)
    made = FakeEnvironment(tmp_path)
    run = prepared(tmp_path)
    with place_in(made) as place:
        assert place.prepare(run) is made
    assert (order, made.is_down) == (["proved"], True)
    monkeypatch.setattr(
        gpu_verification, "verify_gpus", raising(LabError("worker-0 sees another card"))
    )
    made.is_down = False
    with pytest.raises(LabError, match="another card"), place_in(made) as place:
        place.prepare(run)
    assert not made.is_down  # the backend removes what it could not boot


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put the package in a directory without such an environment."""
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "site/lab/__init__.py"))


@pytest.mark.usefixtures("elsewhere")
def test_an_environment_counts_once_all_of_it_is_installed(tmp_path: Path) -> None:
    backend, plan = LocalBackend(), replace(PLAN, runtime="tensorflow-2.15")
    assert backend.missing_image(PLAN, root=tmp_path) is None
    what = f"TensorFlow 2.15 is not installed for {sys.executable}"
    lacks = f"{what}; create .venv-heritage with `make heritage`"
    assert backend.missing_image(plan, root=tmp_path) == lacks
    folder = tmp_path / HERITAGE.environment
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to("/usr/bin/python3")
    assert backend.missing_image(plan, root=tmp_path) == lacks
    (folder / INSTALLED_MARKER).touch()
    assert backend.missing_image(plan, root=tmp_path) is None
    # The link itself: by it Python finds the packages installed beside it.
    assert HERITAGE.python(tmp_path) == folder / "bin" / "python"


def test_the_one_beside_the_package_is_for_every_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "checkout/lab/__init__.py"))
    folder = tmp_path / "checkout" / HERITAGE.environment
    folder.mkdir(parents=True)
    (folder / INSTALLED_MARKER).touch()
    project = tmp_path / "project"
    assert HERITAGE.python(project) == folder / "bin" / "python"
    own = project / HERITAGE.environment
    own.mkdir(parents=True)
    (own / INSTALLED_MARKER).touch()
    assert HERITAGE.python(project) == own / "bin" / "python"
