"""The target of runs: the checks before a start, and during the boot of an environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.backends import Environment, Notify
from lab.config import parse_cluster
from lab.errors import InputError, LabError
from lab.placement.plan import Plan
from lab.run.store import all_runs
from lab.service import target as targets
from lab.service.planning import PlanResult, Project
from lab.service.target import Target, find_target
from lab.task.protocol import Request, RunSpec
from lab.task.protocol.experiments import EXPERIMENTS
from lab.task.protocol.states import State
from tests.support.fakes import PLAN, Boots, FakeBackend, FakeEnvironment

CLUSTER = parse_cluster(
    b"{version: 1, name: mnist, nodes: {tf1: {}}, jobs: {worker: {on: [tf1]}}}", "cluster.yaml"
)
WARNING = "warning: GPU 0 is in use"


def target_of(backend: FakeBackend, folder: Path, output: list[str]) -> Target:
    return find_target(
        "auto",
        PlanResult(PLAN, (WARNING.removeprefix("warning: "),), ""),
        Project(CLUSTER, folder / "cluster.yaml", folder),
        [backend],
        folder / "runs",
        notify=output.append,
    )


def test_a_matching_environment_is_reused(tmp_path: Path) -> None:
    up = FakeEnvironment(tmp_path, cluster_sha256=PLAN.cluster_sha256)
    output: list[str] = []
    target = target_of(FakeBackend(environment=up), tmp_path, output)
    assert target.found is up
    assert WARNING not in output


def test_a_different_environment_is_refused(tmp_path: Path) -> None:
    up = FakeEnvironment(tmp_path, cluster_sha256="another")
    with pytest.raises(InputError, match="lab down"):
        target_of(FakeBackend(environment=up), tmp_path, [])


def test_a_boot_checks_placement_and_collects_leftovers(
    tmp_path: Path,
) -> None:
    dead = FakeEnvironment(tmp_path / "volume")
    (tmp_path / "volume").mkdir()
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
    output: list[str] = []
    dead.is_left = True
    target = target_of(FakeBackend(environment=dead), tmp_path, output)
    assert (target.found, output.count(WARNING)) == (None, 1)
    (run,) = all_runs(tmp_path / "runs")
    assert run.read().state is State.SUCCEEDED


def test_a_boot_is_verified_before_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def prove(environment: Environment, plan: Plan, _say: Notify) -> None:
        assert environment is made
        assert plan is PLAN
        order.append("proved")

    monkeypatch.setattr(targets, "verify_gpus", prove)
    made = FakeEnvironment(tmp_path)
    target = Target(Boots(made=made), PLAN, tmp_path, None)
    assert target.boot(lambda: order.append("relied on"), lambda _line: None) is made
    assert order == ["proved", "relied on"]

    def odd(*_words: object) -> None:
        raise LabError("worker-0 sees another card")

    monkeypatch.setattr(targets, "verify_gpus", odd)
    with pytest.raises(LabError, match="another card"):
        target.boot(lambda: order.append("relied on"), lambda _line: None)
    assert len(order) == 2
