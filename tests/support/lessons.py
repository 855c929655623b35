"""Runs as the stages of lessons need them, and the same runs without what one condition asks for.

A right run is the run of a command of the lesson: it has the settings and tasks of the command, and
figures that follow from them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, Final

from lab.base.command_line import read_arguments
from lab.cluster.config import load_cluster
from lab.protocol.experiments.experiment import Experiment, OnFailure
from lab.protocol.experiments.faults import Fault, Kind
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume import RunSpec
from lab.protocol.volume.layout import task_names
from lab.runner.store.run_info import RunInfo, parameters_of
from lab.runner.store.summary import ResultSummary, Summary, TaskSummary
from lab.teach.lessons.check import MeasuredRun, holds
from lab.teach.lessons.lesson import Condition, Stage, load_lesson
from lab.verbs.run import command
from tests.support.commands import ROOT
from tests.support.shown import commands
from tests.support.specs import changed

Runs = Mapping[str, MeasuredRun]

PAGES: Final = ROOT / "docs/tutorials/lessons"
LATE: Final = {"start": {"worker-2": "after 600 steps"}}
SLOW: Final = {"faults": ("slow:0.3 worker-1",)}


def task(name: str, **facts: Any) -> TaskSummary:
    job, _, index = name.rpartition("-")
    usual: dict[str, Any] = dict.fromkeys(TaskSummary.__slots__)
    usual |= {"task": name, "job_name": job, "task_index": int(index), "node": "tf1", "gpus": []}
    usual |= {"state": "succeeded"}
    return TaskSummary(**usual | facts)


def measured(
    experiment: str = "async", given: Mapping[str, Any] | None = None, **facts: Any
) -> MeasuredRun:
    """A run of an experiment that has succeeded; `given` are facts of its `run.json`."""
    run = _run(f"lab run {experiment} --cluster clusters/book.yaml --epochs 1", 0)
    assert run.summary is not None
    summary = replace(run.summary, **facts)
    return MeasuredRun(changed(run.info, **given or {}), lambda: summary)


def runs_of(lesson: str, stage: Stage) -> Runs:
    """The runs of a stage: those of the lesson's commands that fulfil the most conditions."""
    made = [
        [run for run in _runs(lesson) if run.info.spec.experiment == experiment]
        for experiment in stage.runs.values()
    ]
    choices = [dict(zip(stage.runs, chosen, strict=True)) for chosen in product(*made)]
    return max(choices, key=lambda runs: sum(holds(each, runs) for each in stage.holds))


@cache
def _runs(lesson: str) -> Sequence[MeasuredRun]:
    """The runs of the commands of a lesson's page, or of its stages if it has no page."""
    page, lines = PAGES / f"{lesson}.md", [each.command for each in load_lesson(lesson).stages]
    if page.is_file():
        section = page.read_text("utf-8").partition("\n## Run\n")[2].partition("\n## ")[0]
        lines = [line for line in commands(section) if line.startswith("lab run ")]
    return [_run(line, place) for place, line in enumerate(lines)]


def _run(line: str, place: int) -> MeasuredRun:
    """The run of a command. The place makes its rates and its staleness differ from others."""
    given = read_arguments("run", command, shlex.split(line)[2:])
    experiment = EXPERIMENTS[given["experiment"]]
    faults = given.get("fault", ())
    info = _info(experiment, given, faults)
    flags, hit = info.hyperparameters, {each.target for each in faults}
    jobs = {job: each.on for job, each in load_cluster(ROOT / given["cluster"]).jobs.items()}

    # Without a restart, the steps of a killed task are missing. A slow one makes fewer than others.
    is_killed = any(each.kind is Kind.KILL for each in faults)
    reaction = info.spec.on_failure if is_killed else None
    counted = len(jobs["worker"]) if experiment.steps_add_up else 1
    updates = flags.get("global_steps") or 550 * flags.get("epochs", 1) * counted
    if reaction in {OnFailure.FAIL, OnFailure.CONTINUE}:
        updates = updates * 3 // 5
    steps = updates // counted

    tasks = []
    for name in task_names(jobs):
        index, is_hit = int(name[-1]), name in hit
        tasks.append(
            task(
                name,
                attempts=2 if reaction is OnFailure.RESTART else 1,
                local_step=steps // 3 if is_hit else steps,
                global_step=updates * (8 + index) // 10,
                accuracy=0.7184,
                staleness_sum=steps * (10 + index + 5 * is_hit - 2 * place) // 10,
                staleness_steps=steps,
            )
        )
    values = _results(flags, updates)
    summary = Summary(
        run_id="r1",
        experiment=experiment.name,
        backend="local",
        state="failed" if reaction is OnFailure.FAIL else "succeeded",
        reason=", ".join(info.spec.faults),
        degraded=reaction is OnFailure.CONTINUE,
        global_step=updates,
        updates_conserved=True,
        updates_lost=None,
        steps_redone=0,
        resumed_from="",
        accuracy=0.967 - flags.get("average_every", 0) / 100_000,
        wall_s=20.0 + place,
        first_step_s=None,
        steps_per_s=40 * 0.45**place,
        records_lost=0,
        tasks=tasks,
        results=[
            ResultSummary(name, "", values.get(name, 0), None, None, as_expected=True)
            for name in experiment.results
        ],
    )
    return MeasuredRun(info, lambda: summary)


def _info(experiment: Experiment, given: Mapping[str, Any], faults: Sequence[Fault]) -> RunInfo:
    """The `run.json` of a command with these options."""
    policy = given.get("on_failure", experiment.policy)
    spec = replace(
        RunSpec(experiment.name, args=given["args"]).completed(experiment),
        faults=tuple(each.text for each in faults),
        start=given.get("start", {}),
        on_failure=policy.on_failure,
        restarts=policy.restarts,
    )
    return RunInfo("r1", spec, **parameters_of(spec))


def _results(flags: Mapping[str, Any], updates: int) -> dict[str, float]:
    return {
        "tasks that greeted": 3,
        "refused without soft placement": 1,
        "replicas compared": 2,
        "replicas built": 2,
        "ranks compared": 2,
        "apart from one process": 2.4e-7,
        "apart from the joined batch": 3e-7,
        "examples a second": 12_000 - 500 * flags.get("towers", 0),
        "w": 2 - 4.8 / flags.get("steps", 200),
        "b": 9.999,
        "steps counted": updates,
        "checkpoints evaluated": 24 / flags.get("checkpoint_every", 1),
        "accuracy gained": 0.6021,
        "staleness": 1.72,
        "bytes of this rank": 795_020,
        "bytes of all ranks": 1_590_040,
        "means": max(1, updates // flags.get("average_every", 1)),
    }


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
        return changed(info, **SLOW if condition.absent else {"faults": ("pause:9s tf9",)})
    if name == "start":
        return changed(info, **LATE if condition.absent else {"start": {"ps-0": "9s"}})
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
