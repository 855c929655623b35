"""Requests and `run.json` of tests, from the fields of a specification and others in one list."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

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


def info() -> RunInfo:
    return RunInfo(
        "r1", RunSpec("async"), cluster=PLAN.cluster_spec(), hyperparameters={"epochs": 5}
    )
