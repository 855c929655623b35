"""Requests and `run.json` of tests, from the fields of a specification and others in one list."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from lab.cluster.config import parse_cluster
from lab.cluster.placement.place import Placed
from lab.cluster.placement.plan import Plan
from lab.cluster.project import Project
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume import Request, RunSpec
from lab.runner.prepared import PlaceOptions, PreparedRun
from lab.runner.record import create_run
from lab.runner.runner import Place, place_of
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment

T = TypeVar("T", Request, RunInfo)

_OF_SPEC = frozenset(each.name for each in fields(RunSpec))


def run_info(run_id: str, experiment: str = "async", **facts: Any) -> RunInfo:
    spec, others = parted(facts)
    return RunInfo(run_id, RunSpec(experiment, **spec), **others)


def request(run_id: str, experiment: str, cluster: dict[str, list[str]], **facts: Any) -> Request:
    spec, others = parted(facts)
    return Request(run_id, RunSpec(experiment, **spec), cluster, **others)


def changed(of: T, **facts: Any) -> T:
    """The same with other facts."""
    spec, others = parted(facts)
    return replace(of, spec=replace(of.spec, **spec), **others)


def update(run: RunDir, **facts: Any) -> None:
    run.write(changed(run.read(), **facts))


def parted(facts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those facts that belong to a specification, and the others."""
    spec = {name: value for name, value in facts.items() if name in _OF_SPEC}
    return spec, {name: value for name, value in facts.items() if name not in _OF_SPEC}


HOSTILE = "<script>alert(1)</script> $x^$ \\frac{ -- \x1b]0;t\x07 \u202e"


def info() -> RunInfo:
    return RunInfo(
        "r1", RunSpec("async"), cluster=PLAN.cluster_spec(), hyperparameters={"epochs": 5}
    )


CONFIG = parse_cluster(
    b"{version: 1, name: mnist, nodes: {tf1: {}}, jobs: {worker: {on: [tf1]}}}", "cluster.yaml"
)


def prepared_run(
    folder: Path, *argv: str, experiment: str = "async", plan: Plan = PLAN, **more: Any
) -> PreparedRun:
    """A run of an experiment in the run store `runs` of a project, before its start."""
    spec = RunSpec(experiment, args=argv).completed(EXPERIMENTS[experiment])
    facts = {
        "place": PlaceOptions(),
        "spec": spec,
        "project": Project(CONFIG, folder / "cluster.yaml", folder),
        "placed": Placed(plan, None),
        "backend": FakeBackend(),
        "environment": None,
        "runs_dir": folder / "runs",
    }
    return PreparedRun(**{**facts, **more})


def prepared(folder: Path, *argv: str, **more: Any) -> RunDir:
    """The directory of such a run."""
    return create_run(prepared_run(folder, *argv, **more))


@contextmanager
def place_in(environment: FakeEnvironment, *, is_up: bool = False) -> Iterator[Place]:
    """Where runs are executed: in this environment, which is up, or else booted for them."""
    running = environment if is_up else None
    backend = FakeBackend(made=environment)
    with place_of(prepared_run(Path(), backend=backend, environment=running)) as place:
        yield place


HOLD = """\
import sys
from pathlib import Path
from lab.runner.store.directory import RunDir
with RunDir(Path(sys.argv[1])).locked():
    print(flush=True)
    input()
"""


@contextmanager
def held(run: RunDir) -> Iterator[None]:
    """Another process follows the run meanwhile."""
    command = [sys.executable, "-c", HOLD, str(run.path)]
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    ) as other:
        assert other.stdout.readline() == b"\n"
        yield
        other.communicate(b"\n")
