"""Requests and `run.json` of tests, from the fields of a specification and others in one list."""

from __future__ import annotations

import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from lab.backends.local import manifest
from lab.backends.local.state import EnvironmentRecord, Isolation
from lab.backends.process import ProcessHandle
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec
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


def a_record(**changes: object) -> EnvironmentRecord:
    record = EnvironmentRecord(
        project="demo",
        cluster_sha256="0" * 64,
        root="/p",
        isolation=Isolation.NAMESPACES,
        process=ProcessHandle.of(os.getpid()),
        interpreter=sys.executable,
        nodes=manifest.nodes_of(PLAN, Isolation.NAMESPACES),
        tasks=manifest.tasks_of(PLAN, Isolation.NAMESPACES, root=Path("/p"), runs=Path("/v")),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def info() -> RunInfo:
    return RunInfo(
        "r1", RunSpec("async"), cluster=PLAN.cluster_spec(), hyperparameters={"epochs": 5}
    )
