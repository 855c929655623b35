"""Runs as lessons need them: for each stage one run for each of its hints, then a right one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from lab.experiments.faults import parse
from lab.experiments.policy import OnFailure
from lab.lessons.measures import MeasuredRun
from lab.store.summary import Summary, TaskSummary
from tests.support.specs import run_info

WORKERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "worker-0": {"local_step": 550, "global_step": 1598, "staleness_sum": 500},
    "worker-1": {"local_step": 550, "global_step": 1639, "staleness_sum": 900},
    "worker-2": {"local_step": 550, "global_step": 1650, "staleness_sum": 600},
}


def task(name: str, **facts: Any) -> TaskSummary:
    """A task that has succeeded."""
    job, _, index = name.rpartition("-")
    usual: dict[str, Any] = dict.fromkeys(TaskSummary.__slots__)
    usual |= {"task": name, "job_name": job, "task_index": int(index), "node": "tf1", "gpus": []}
    usual |= {"state": "succeeded", "attempts": 1, "staleness_steps": 550}
    return TaskSummary(**usual | facts)


def measured(
    experiment: str = "async",
    tasks: Mapping[str, Mapping[str, Any]] = WORKERS,
    given: Mapping[str, Any] | None = None,
    **facts: Any,
) -> MeasuredRun:
    """A run of an experiment that has succeeded; `given` are facts of its `run.json`."""
    usual: dict[str, Any] = dict.fromkeys(Summary.__slots__)
    usual |= {"run_id": "r1", "experiment": experiment, "backend": "local", "state": "succeeded"}
    usual |= {"reason": "", "degraded": False, "steps_redone": 0, "resumed_from": ""}
    usual |= {"records_lost": 0, "global_step": 1650, "updates_conserved": True}
    usual |= {"tasks": [task(name, **each) for name, each in tasks.items()]}
    usual |= {"results": [], "left": []}
    return MeasuredRun(run_info("r1", experiment, **given or {}), Summary(**usual | facts))


TWO: Final = {name: each for name, each in WORKERS.items() if name != "worker-2"}
LATE: Final = {"start": {"worker-2": "after 600 steps"}}
SLOW: Final = {"faults": (parse("slow:0.3 worker-1"),)}

KILLED: Final = {
    "faults": (parse("kill worker-1 after 300 steps"),),
    "on_failure": OnFailure.CONTINUE,
}
ONE: Final = {"hyperparameters": {"epochs": 1}}
FEWER: Final = {**WORKERS, "worker-1": {"local_step": 100, "global_step": 313}}
ROUNDS: Final = {name: {"local_step": 550, "global_step": 550} for name in WORKERS}


def rounds(*given: Mapping[str, Any], **facts: Any) -> MeasuredRun:
    """A synchronous run."""
    merged = {name: value for each in given for name, value in each.items()}
    usual = {"global_step": 550, "steps_per_s": 40.0}
    return measured("sync", ROUNDS, ONE | merged, **usual | facts)


Runs = Mapping[str, MeasuredRun]

StageRuns = Mapping[str, Sequence[Runs]]
"""For each stage of a lesson: runs that lack its first, second, … condition, and none."""


def runs_of(lesson: str) -> StageRuns:
    """The runs of a lesson."""
    found = import_module(f"tests.support.lesson_runs.{lesson.replace('-', '_')}_lesson").RUNS
    assert isinstance(found, Mapping)
    return found
