"""Where runs are made: what is seen to before anything starts, and while an environment boots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.backends import Environment, Say
from lab.cli import sites
from lab.cli.planning import Draft
from lab.cli.sites import Site, find_site
from lab.errors import InputError, LabError
from lab.placement.plan import Plan
from lab.run.directory import all_runs
from lab.task.experiments import EXPERIMENTS
from lab.task.protocol import Request, RunSpec
from lab.task.states import State
from tests.unit.fakes import PLAN, Boots, FakeBackend, FakeEnvironment


class Dead(FakeBackend):
    """One whose environment has ended and left its run volume."""

    def find(self, project: str) -> None:
        return None

    def find_volume(self, project: str) -> FakeEnvironment | None:
        return super().find(project)


def site_of(backend: FakeBackend, home: Path, heed: Callable[[], None]) -> Site:
    return find_site(
        "auto",
        Draft(PLAN, (), ""),
        [backend],
        description="cluster.yaml",
        root=home,
        home=home / "runs",
        say=lambda _line: None,
        heed=heed,
    )


@dataclass
class Heeded:
    """Counts how often the placement was heeded."""

    times: int = 0

    def __call__(self) -> None:
        self.times += 1


def test_what_is_up_and_the_same_is_taken_as_it_is(tmp_path: Path) -> None:
    up = FakeEnvironment(tmp_path, cluster_sha256=PLAN.cluster_sha256)
    heeded = Heeded()
    site = site_of(FakeBackend(environment=up), tmp_path, heeded)
    assert site.found is up
    assert heeded.times == 0


def test_what_is_up_and_another_one_is_refused(tmp_path: Path) -> None:
    up = FakeEnvironment(tmp_path, cluster_sha256="another")
    with pytest.raises(InputError, match="lab down"):
        site_of(FakeBackend(environment=up), tmp_path, Heeded())


def test_where_nothing_is_up_the_placement_is_heeded_and_leftovers_come_home(
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
    heeded = Heeded()
    site = site_of(Dead(environment=dead), tmp_path, heeded)
    assert (site.found, heeded.times) == (None, 1)
    (run,) = all_runs(tmp_path / "runs")
    assert run.read().state is State.SUCCEEDED


def test_a_boot_is_proved_before_anybody_relies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def prove(environment: Environment, plan: Plan, _say: Say) -> None:
        assert environment is made
        assert plan is PLAN
        order.append("proved")

    monkeypatch.setattr(sites, "prove", prove)
    made = FakeEnvironment(tmp_path)
    site = Site(Boots(made=made), PLAN, tmp_path, None)
    assert site.boot(lambda: order.append("relied on"), lambda _line: None) is made
    assert order == ["proved", "relied on"]

    def odd(*_words: object) -> None:
        raise LabError("worker-0 sees another card")

    monkeypatch.setattr(sites, "prove", odd)
    with pytest.raises(LabError, match="another card"):
        site.boot(lambda: order.append("relied on"), lambda _line: None)
    assert len(order) == 2
