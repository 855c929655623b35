"""Runs as the stages of lessons need them, and the same runs without what one condition asks for.

`tests/support/lesson_runs` has the right runs of each stage: `RUNS[lesson][stage][name]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from lab.experiments.policy import OnFailure
from lab.lessons.lesson import Condition
from lab.lessons.measures import MeasuredRun
from lab.store.run_info import RunInfo
from lab.store.summary import ResultSummary, Summary, TaskSummary
from tests.support.specs import changed, run_info

Runs = Mapping[str, MeasuredRun]

WORKERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "worker-0": {"local_step": 550, "global_step": 1598, "staleness_sum": 500},
    "worker-1": {"local_step": 550, "global_step": 1639, "staleness_sum": 900},
    "worker-2": {"local_step": 550, "global_step": 1650, "staleness_sum": 600},
}
FEWER: Final = {**WORKERS, "worker-1": {"local_step": 100, "global_step": 313}}
ROUNDS: Final = {name: {"local_step": 550, "global_step": 550} for name in WORKERS}

LATE: Final = {"start": {"worker-2": "after 600 steps"}}
SLOW: Final = {"faults": ("slow:0.3 worker-1",)}
KILLED: Final = {
    "faults": ("kill worker-1 after 300 steps",),
    "on_failure": OnFailure.CONTINUE,
}
ONE: Final = {"hyperparameters": {"epochs": 1}}


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
    info = run_info("r1", experiment, **given or {})
    return MeasuredRun(info, lambda: Summary(**usual | facts))


def result(name: str, value: float) -> ResultSummary:
    """A result that a program reported."""
    return ResultSummary(name, "worker-0", value, None, None, as_expected=True)


def rounds(*given: Mapping[str, Any], **facts: Any) -> MeasuredRun:
    """A synchronous run."""
    merged = {name: value for each in given for name, value in each.items()}
    usual = {"global_step": 550, "steps_per_s": 40.0}
    return measured("sync", ROUNDS, ONE | merged, **usual | facts)


def runs_of(lesson: str) -> Mapping[str, Runs]:
    """The right runs of each stage of a lesson."""
    for path in sorted((Path(__file__).parent / "lesson_runs").glob("[a-z]*.py")):
        runs = import_module(f"tests.support.lesson_runs.{path.stem}").RUNS
        if lesson in runs:
            found: Mapping[str, Runs] = runs[lesson]
            return found
    raise AssertionError(f"no runs of the lesson {lesson} in tests/support/lesson_runs")


_FIELDS: Final = {
    "last_step": "global_step",
    "test_accuracy": "accuracy",
    "task_state": "state",
    "task_steps_per_s": "steps_per_s",
    "staleness": "staleness_sum",
    "mean_staleness": "staleness_sum",
}
"""The fields of a task whose measures have other names."""


def without(condition: Condition, runs: Runs) -> Runs:
    """The same runs, but one lacks what the condition asks for, as after a wrong command."""
    run = runs[condition.of]
    if condition.setting:
        lacking = replace(run, info=_without_setting(condition, run.info))
    else:
        assert run.summary is not None
        summary = _without_measure(condition, run.summary)
        lacking = replace(run, read=lambda: summary)
    return {**runs, condition.of: lacking}


def _without_setting(condition: Condition, info: RunInfo) -> RunInfo:
    name = condition.setting
    if name == "fault":
        return changed(info, **SLOW) if condition.absent else changed(info, faults=())
    if name == "start":
        return changed(info, **LATE) if condition.absent else changed(info, start={})
    flags = {flag: value for flag, value in info.hyperparameters.items() if flag != name}
    return changed(info, hyperparameters=flags | ({name: 1} if condition.absent else {}))


def _without_measure(condition: Condition, summary: Summary) -> Summary:
    name = condition.measure
    if condition.result:
        others = [each for each in summary.results if each.name != condition.result]
        return replace(summary, results=others)
    if name == "state":
        return replace(summary, state="succeeded" if condition.equals == "failed" else "failed")
    if name == "present":
        *_, lost = (each for each in summary.tasks if each.job_name == condition.job)
        return replace(summary, tasks=[each for each in summary.tasks if each is not lost])
    if name in Summary.__slots__:
        return replace(summary, **{name: None})
    unknown: dict[str, Any] = {_FIELDS.get(name, name): None}
    return replace(summary, tasks=[replace(each, **unknown) for each in summary.tasks])
