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

from lab.experiments.registry import EXPERIMENTS
from lab.run.prepare import Submission, prepare
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.volume import Request, RunSpec
from tests.support.fakes import PLAN

T = TypeVar("T", Request, RunInfo)

_OF_SPEC = frozenset(each.name for each in fields(RunSpec))


def run_info(run_id: str, experiment: str = "async", **facts: Any) -> RunInfo:
    """A `run.json`."""
    spec, others = parted(facts)
    return RunInfo(run_id, RunSpec(experiment, **spec), **others)


def request(run_id: str, experiment: str, cluster: dict[str, list[str]], **facts: Any) -> Request:
    """A request."""
    spec, others = parted(facts)
    return Request(run_id, RunSpec(experiment, **spec), cluster, **others)


def changed(of: T, **facts: Any) -> T:
    """The same with other facts."""
    spec, others = parted(facts)
    return replace(of, spec=replace(of.spec, **spec), **others)


def update(run: RunDir, **facts: Any) -> None:
    """Change facts of a run's `run.json`."""
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


def prepared(project: Path, *argv: str, **more: Any) -> RunDir:
    """A run of `async` in the run store `runs` of a project, before its start."""
    spec = RunSpec("async", args=argv).completed(EXPERIMENTS["async"])
    order = Submission(spec, PLAN, project, project / "cluster.yaml", **more)
    return prepare(order, project / "runs")


HOLD = """\
import sys
from pathlib import Path
from lab.store.directory import RunDir
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
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        yield
        other.communicate(b"\n")
