"""How many steps a fault met: none if it is over before the first one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.protocol.volume.states import State
from lab.runner.store.summarize import faults_met, summary_of
from lab.runner.store.summary import FaultSummary
from lab.teach.lessons.check import MeasuredRun, check_stage
from lab.teach.lessons.lesson import load_lesson
from tests.support.fakes import record
from tests.support.lessons import runs_of
from tests.support.summaries import INFO, folded, shown

Mark = tuple[float, int | None, int]
"""The time, local step and attempt of a step record."""


def steps(*marks: Mark) -> list[dict[str, Any]]:
    return [
        record("worker-0", seq, local_step=step, time_unix=time) | {"attempt": attempt}
        for seq, (time, step, attempt) in enumerate(marks)
    ]


def event(fault: str, time: float, **fields: Any) -> dict[str, Any]:
    return {"kind": "event", "message": f"fault: {fault}", "time_unix": time, **fields}


def met(requested: tuple[str, ...] = (), **records: list[dict[str, Any]]) -> list[FaultSummary]:
    info = replace(INFO, spec=replace(INFO.spec, faults=requested))
    of_task = {name.replace("_", "-"): each for name, each in records.items()}
    return faults_met(info, folded(**records), lambda task: of_task.get(task, []))


EACH_SECOND: list[Mark] = [(110.0 + second, 10 * second + 1, 0) for second in range(11)]
AGAIN = [*EACH_SECOND, (130.0, 1, 1), (131.0, 11, 1)]


@pytest.mark.parametrize(
    ("fault", "begin", "marks", "expected"),
    [
        ("slow:0.3,5s worker-0", 100.0, EACH_SECOND, 0),  # before the first step
        ("slow:0.3,5s worker-0", 120.5, EACH_SECOND, 0),  # after the last one
        ("slow:0.3,5s worker-0", 120.5, AGAIN, 0),  # between two programs
        ("slow:0.3,5s worker-0", 106.0, EACH_SECOND, 1 + 10 + 10),
        ("slow:0.3,3s worker-0", 112.5, EACH_SECOND, 4 * 10),
        ("pause:10s worker-0", 111.0, [(110.0, 5, 0), (122.0, 6, 0)], 1),
        ("slow:0.3,5s worker-0", 110.5, [(110.0, 5, 0), (111.0, None, 0), (112.0, 9, 0)], 1 + 4),
        ("kill worker-0", 100.0, EACH_SECOND, 0),
        ("kill worker-0", 120.5, EACH_SECOND, 1),
        ("kill worker-0", 120.5, AGAIN, 1),
        ("stop worker-0", 120.0, [], 0),
    ],
)
def test_a_fault_meets_the_steps_under_way(
    fault: str, begin: float, marks: list[Mark], expected: int
) -> None:
    found = met(worker_0=[event(fault, begin), *steps(*marks)])
    assert found == [FaultSummary(fault, "worker-0", expected)]


def test_a_fault_of_a_task_without_steps_meets_those_of_the_others() -> None:
    fault = "pause:2s ps-0"
    found = met(
        ps_0=[event(fault, 112.5)], worker_0=steps(*EACH_SECOND), worker_1=steps((50.0, 1, 0))
    )
    assert [(each.task, each.steps) for each in found] == [("worker-0", 30), ("worker-1", 0)]


def test_a_fault_that_never_began_and_a_line_of_a_program() -> None:
    killed = "kill worker-0 after 9 steps"
    assert met((killed,), worker_0=[event("x", 1.0)]) == [FaultSummary(killed, "", 0)]
    under_way = replace(INFO, state=State.TRAINING, spec=replace(INFO.spec, faults=(killed,)))
    assert faults_met(under_way, folded(), lambda _: []) == []


def test_a_fault_that_met_no_step_is_a_warning_and_passes_no_stage() -> None:
    some, none = FaultSummary("kill ps-0", "worker-0", 1200), FaultSummary("x", "worker-1", 0)
    also = FaultSummary("kill ps-0", "worker-1", 0)
    summary = replace(summary_of(INFO, {}, folded()), faults=[some, also, none])
    assert summary.ineffective_faults == ["x"]
    table = " ".join(shown(summary).split())
    assert "fault kill ps-0: steps met: 1,200 of worker-0" in table
    assert "fault x: no step ran during it; start it later" in table

    stage = next(each for each in load_lesson("all-reduce").stages if each.name == "killed")
    run = runs_of("all-reduce", stage)["run"]
    for fault, hint in (
        (some, ""),
        (none, f"{run.info.run_id}: x: no step ran during it; start it"),
    ):
        assert run.summary is not None
        hit = MeasuredRun(run.info, lambda fault=fault: replace(run.summary, faults=[fault]))
        result = check_stage(stage, {"multiworker": [hit]}, {})
        assert result.hint[: len(hint) or None] == hint


@pytest.mark.parametrize(
    ("fault", "met", "is_enough"),
    [
        ("slow:0.3,30s worker-1", 800, False),
        ("slow:0.3,30s worker-1 at start", 800, False),
        ("slow:0.3 worker-1", 950, True),
        ("slow:0.3 worker-1 after 300 steps", 100, True),  # it begins late on purpose
    ],
)
def test_a_slow_worker_passes_a_stage_if_it_was_slow_throughout(
    fault: str, met: int, is_enough: bool
) -> None:
    stage = next(each for each in load_lesson("async").stages if each.name == "slow")
    (run,) = runs_of("async", stage).values()
    assert run.summary is not None
    tasks = [replace(task, local_step=1000) for task in run.summary.tasks]
    summary = replace(run.summary, tasks=tasks, faults=[FaultSummary(fault, "worker-1", met)])
    result = check_stage(stage, {"async": [MeasuredRun(run.info, lambda: summary)]}, {})
    hint = f"{fault} met {met} of the 1,000 steps of worker-1; repeat it with `slow:0.3 worker-1`."
    assert result.hint == ("" if is_enough else f"{summary.run_id}: {hint}")
