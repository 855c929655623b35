"""The torture harness: its cases, its expectations, its reading, its findings and its files."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.config import load_cluster
from lab.gpu import take_inventory
from lab.placement.place import place as plan_of
from lab.task.protocol.states import Cause, State
from tests.agents import PATIENCE_S, wait_for
from tests.conditions import lacking
from tests.torture import clock, leftovers, processes, records, results
from tests.torture.__main__ import main
from tests.torture.case import (
    BACKENDS,
    CLEAN_END,
    CLEAN_END_RUNS,
    FAULTS_ON,
    HARMS,
    HOSTILE_RUNS,
    HOSTILE_S,
    NEW_FROM,
    UNTIMED,
    Case,
    Fault,
    Policy,
    When,
    clean_end,
    description,
    draw,
    hostile,
)
from tests.torture.expected import END_S, WELL, Outcome, expected, may_succeed, patience_s
from tests.torture.injecting import Hit, Scene, wait_for_moment
from tests.torture.judging import Judgement, Seen, Verdict, judge
from tests.torture.place import Place, foreign
from tests.torture.records import Home
from tests.torture.results import FAULTS, Row
from tests.torture.running import Tools, lacks, words
from tests.torture.session import Order, backends_of, cases, run_all

MANY = [draw(seed) for seed in range(NEW_FROM, NEW_FROM + 600)]
KILLED = Case(
    seed=7,
    backend="local",
    experiment="async",
    workers=2,
    ps=1,
    steps=300,
    fault=Fault.KILL,
    target="worker-1",
    when=When(at_step=40),
)
CALM = dataclasses.replace(KILLED, fault=Fault.NONE, target="", when=When())


def finding(case: Case, fault: Fault) -> Case:
    return dataclasses.replace(case, fault=fault)


# Cases.


def test_a_seed_is_always_the_same_case() -> None:
    assert draw(17) == draw(17)
    assert len({case.line() for case in MANY}) == len(MANY)


def test_everything_is_drawn() -> None:
    for backend in BACKENDS:
        drawn = {case.fault for case in MANY if case.backend == backend}
        assert drawn == set(FAULTS_ON[backend])
    assert {case.workers for case in MANY} == set(range(2, 9))
    assert {case.ps for case in MANY} == {1, 2, 3}
    assert {case.experiment for case in MANY} == {"async", "sync"}
    assert {case.policy for case in MANY} == set(Policy)
    assert {case.follow_up for case in MANY} == {"", "attach", "collect"}


def test_cases_are_possible() -> None:
    for case in MANY:
        timed = case.when.after_s is not None or case.when.at_step is not None
        assert timed is (case.fault not in UNTIMED), case.line()
        assert (case.when.at_step or 1) <= case.steps
        assert case.experiment == "async" or case.policy is not Policy.CONTINUE
        if case.target:
            assert case.tasks_on(case.target), case.line()


@pytest.mark.parametrize(
    "case", [*MANY[:40], clean_end(260, "local"), hostile(3, "local")], ids=Case.line
)
def test_its_config_is_a_cluster(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(description(case))
    cluster = load_cluster(path)
    plan = plan_of(cluster, take_inventory("none", cluster))
    assert [task.name for task in plan.tasks] == case.tasks
    for task in plan.tasks:
        assert task.name in case.tasks_on(task.node)


def test_ends_are_checked_as_often_as_requested() -> None:
    all_of_them = [clean_end(seed, "local") for seed in range(CLEAN_END_RUNS)]
    for workers, replicas, count in CLEAN_END:
        same = [c for c in all_of_them if (c.workers, c.replicas) == (workers, replicas)]
        assert len(same) == count
        assert {case.fault for case in same} == {Fault.NONE}
    with pytest.raises(IndexError):
        clean_end(CLEAN_END_RUNS, "local")


def test_the_command_line_of_a_case() -> None:
    output = words(dataclasses.replace(KILLED, fault=Fault.FREEZE), {"--ready-within"})
    assert output[:2] == ["run", "async"]
    assert output[-4:] == ["--stall", "8s", "--ready-within", "120s"]
    assert "--ready-within" not in words(finding(KILLED, Fault.FREEZE), set())
    assert words(KILLED, {"--ready-within"})[-2:] == ["--ready-within", "240s"]
    late = dataclasses.replace(KILLED, fault=Fault.LATE, amount_s=7, policy=Policy.CONTINUE)
    assert words(late, set())[-4:] == ["--on-failure", "continue", "--start", "worker-1: 7s"]
    assert "--replicas_to_aggregate" in words(clean_end(100, "local"), set())
    harm = hostile(3, "local")
    assert words(harm, set())[1].endswith("harm.py")
    assert words(harm, set())[-3:] == ["--", harm.harm, str(HOSTILE_S)]


def test_hostile_programs_cover_every_fault_and_harm() -> None:
    cases = [hostile(seed, BACKENDS[seed % 2]) for seed in range(200)]
    assert {case.harm for case in cases} == set(HARMS)
    assert len({case.fault for case in cases}) == 9
    harms = (Path(__file__).parents[1] / "hostile/programs/harm.py").read_text()
    assert all(f"def {harm}()" in harms for harm in HARMS)


def test_seeds_of_an_earlier_list_of_faults_draw_from_it() -> None:
    later = {Fault.ROOM, Fault.READ_ONLY, Fault.NODE_CLOCK}
    assert not later.intersection(draw(seed).fault for seed in range(1000))
    assert later.issubset(draw(seed).fault for seed in range(NEW_FROM, NEW_FROM + 300))


def test_a_case_that_lab_cannot_express_is_skipped() -> None:
    assert lacks(KILLED, set()) is None
    restart = dataclasses.replace(KILLED, policy=Policy.RESTART)
    assert lacks(restart, set()) == "lab run has no --on-failure"
    assert lacks(restart, {"--on-failure"}) is None
    assert lacks(finding(KILLED, Fault.LATE), set()) == "lab run has no --start"
    early = dataclasses.replace(KILLED, fault=Fault.FREEZE, when=When(after_s=1))
    assert lacks(early, set()) == "lab run has no --ready-within"
    assert lacks(finding(KILLED, Fault.FREEZE), set()) is None


@pytest.mark.parametrize("name", ["LAB_STATE", "LAB_RUN_ID", "PYTHONPATH", "TF_CONFIG"])
def test_variables_of_the_harness_do_not_reach_its_runs(name: str) -> None:
    assert foreign(name)
    assert not foreign("LAB_IMAGE")
    assert not foreign("PATH")


# Expectations.


def one(fault: Fault, target: str = "worker-1", policy: Policy = Policy.FAIL) -> set[Outcome]:
    return set(expected(fault, policy, "async", target))


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.PAUSE, Fault.HELPER, Fault.LATE, Fault.CLOCK])
@pytest.mark.parametrize("policy", Policy)
def test_survived_faults(fault: Fault, policy: Policy) -> None:
    for target in ("", "ps-0", "worker-0", "worker-1"):
        assert one(fault, target, policy) == {Outcome("succeeded", 0)}


def test_faults_that_end_a_strict_run() -> None:
    assert one(Fault.KILL) == {Outcome("failed", 1, "signal")}
    assert one(Fault.KILL, "ps-0") == {Outcome("failed", 1, "signal")}
    assert one(Fault.FREEZE) == {
        Outcome("failed", 1, "stalled"),
        Outcome("failed", 1, "time-out"),
    }
    assert one(Fault.AGENT) == {Outcome("lost", 1, "node lost")}
    assert Outcome("failed", 1, "node lost") in one(Fault.AGENT, "ps-0")
    assert one(Fault.MEMORY) == {Outcome("failed", 1, "out of memory")}
    assert one(Fault.DISK, "") == {Outcome("failed", 1, "volume")}


def test_faults_that_a_restart_fixes() -> None:
    assert one(Fault.KILL, policy=Policy.RESTART) == set(WELL)
    assert one(Fault.AGENT, policy=Policy.RESTART) == {
        Outcome("succeeded", 0),
        Outcome("lost", 1, "node lost"),
    }
    assert one(Fault.DISK, "", Policy.RESTART) == {Outcome("failed", 1, "volume")}


def test_optional_tasks() -> None:
    assert one(Fault.KILL, policy=Policy.CONTINUE) == {Outcome("succeeded", 0, "signal")}
    assert one(Fault.AGENT, policy=Policy.CONTINUE) == {Outcome("succeeded", 0, "node lost")}
    assert one(Fault.KILL, "ps-0", Policy.CONTINUE) == {Outcome("failed", 1, "signal")}
    assert Outcome("failed", 1, "signal") in one(Fault.KILL, "worker-0", Policy.CONTINUE)


def test_continuing_tasks_get_time() -> None:
    assert may_succeed(Fault.PAUSE, Policy.FAIL, "sync", "worker-1")
    assert may_succeed(Fault.KILL, Policy.CONTINUE, "async", "worker-1")
    assert may_succeed(Fault.KILL, Policy.RESTART, "sync", "worker-1")
    assert not may_succeed(Fault.KILL, Policy.FAIL, "async", "worker-1")
    assert not may_succeed(Fault.KILL, Policy.CONTINUE, "async", "ps-0")


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("policy", Policy)
def test_expectations_are_possible(fault: Fault, policy: Policy) -> None:
    known = {*(cause.value for cause in Cause), "", "time-out"}
    for experiment in ("async", "sync"):
        for target in ("ps-0", "worker-0", "worker-1", "tf2", ""):
            allowed = expected(fault, policy, experiment, target)
            assert allowed
            for outcome in allowed:
                assert State(outcome.state).ended
                assert outcome.cause in known
                assert (outcome.exit_code == 0) is (outcome.state == "succeeded")
    assert patience_s(fault) >= END_S


# Reading.


def record(seq: int, kind: str = "step", attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "attempt": attempt, "seq": seq, **more}


def worker(local: int, steps: int, attempt: int = 0) -> list[dict[str, Any]]:
    return [
        record(0, "start", attempt),
        record(1, attempt=attempt, local_step=1, global_step=2),
        record(2, "final", attempt, local_step=local, global_step=steps),
    ]


def chief(local: int, steps: int, probe: int) -> list[dict[str, Any]]:
    return [
        record(0, "start"),
        record(1, "eval", global_step=steps, probe=probe),
        record(2, "final", local_step=local, global_step=steps),
    ]


def home_of(
    state: str = "succeeded",
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    kept: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    **summary: Any,
) -> Home:
    well = {"state": "succeeded", "exit_code": 0, "cause": None, "ended_unix": 100.0}
    statuses = {"ps-0": {**well, "exit_code": None}, "worker-0": well, "worker-1": well}
    statuses |= {task: {**well, **status} for task, status in (tasks or {}).items()}
    rows = [{"task": task, "state": status["state"]} for task, status in statuses.items()]
    told = {"state": state, "records_lost": 0, "updates_conserved": True, "tasks": rows}
    both = {"worker-0": chief(200, 300, 300), "worker-1": worker(100, 300)}
    return Home({"state": state}, {**told, **summary}, statuses, both | dict(kept or {}))


def test_a_stored_run_is_read(tmp_path: Path) -> None:
    for folder in ("tasks", "status"):
        (tmp_path / folder).mkdir()
    (tmp_path / "run.json").write_text('{"state": "failed"}')
    (tmp_path / "status/worker-0.json").write_text('{"state": "failed"}')
    lines = [json.dumps(record(0)), "half a rec", json.dumps(record(1))]
    (tmp_path / "tasks/worker-0.jsonl").write_text("\n".join(lines))
    found = Home.read(tmp_path)
    assert (found.info, found.summary) == ({"state": "failed"}, {})
    assert found.statuses == {"worker-0": {"state": "failed"}}
    assert found.records == {"worker-0": [record(0)]}
    # The last line has no end: its writer had not finished.
    assert found.torn == ("worker-0: line 2 is no record", "worker-0: line 3 is no record")
    assert records.missing(found) == list(found.torn)


def test_nothing_is_missing() -> None:
    assert records.missing(home_of()) == []
    # Each attempt counts anew, and records of the agent have no number.
    twice = [record(0), record(1), {"kind": "event"}, *worker(100, 300, attempt=1)]
    assert records.missing(home_of(kept={"worker-1": twice})) == []


@pytest.mark.parametrize(
    ("kept", "what"),
    [
        ([record(0), record(2, "final")], "2 where 1 belongs"),
        ([record(0), record(1), record(1, "final")], "1 where 2 belongs"),
        ([record(0), record(2), record(2, "final")], "2 where 1 belongs"),
        ([record(1), record(0, "final")], "1 where 0 belongs"),
        ([record(0), record(1)], "its last record is not at home"),
        ([], "its last record is not at home"),
    ],
)
def test_missing_is_found(kept: list[dict[str, Any]], what: str) -> None:
    (found,) = records.missing(home_of(kept={"worker-1": kept}))
    assert what in found
    assert found.startswith("worker-1")


def test_missing_summary_entries_count() -> None:
    assert records.missing(home_of(records_lost=3)) == ["the summary has 3 records lost"]


def test_sums_of_a_run_without_faults() -> None:
    assert records.wrong_sums(home_of(), "async", 300) == []
    found = records.wrong_sums(home_of(), "async", 301)
    assert found == ["global step 300 instead of 301"]
    lost = home_of(kept={"worker-0": chief(200, 300, 299)})
    assert records.wrong_sums(lost, "async", 300) == [
        "global step 300, but 299 updates, with 0 attempts killed"
    ]
    more = home_of(kept={"worker-1": worker(101, 300)})
    assert records.wrong_sums(more, "async", 300) == ["301 local steps in all, but global step 300"]
    # Of synchronous workers each one counts all updates that it took part in.
    assert records.wrong_sums(more, "sync", 300) == []
    told = home_of(updates_conserved=False)
    assert records.wrong_sums(told, "async", 300) == ["updates_conserved is False"]
    nothing = home_of(kept={"worker-0": worker(200, 300)})
    assert records.wrong_sums(nothing, "async", 300) == ["no record tells of the final parameters"]


def test_a_killed_attempt_may_have_taken_one_number_more() -> None:
    killed = [record(0), record(1)]
    kept = {"worker-0": chief(200, 300, 299), "worker-1": [*killed, *worker(60, 300, attempt=1)]}
    home = home_of(kept=kept, updates_conserved=False)
    assert records.wrong_sums(home, "async", 300) == []
    kept["worker-0"] = chief(200, 300, 298)
    (found,) = records.wrong_sums(home_of(kept=kept), "async", 300)
    assert found == "global step 300, but 298 updates, with 1 attempts killed"
    kept["worker-0"] = chief(200, 300, 301)
    assert records.wrong_sums(home_of(kept=kept), "async", 300)


def test_an_attempt_that_failed_leaves_its_steps_unknown() -> None:
    ended = record(2, "final", status="failed", message="no space left")
    first = [record(0, "start"), record(1, local_step=60, global_step=180), ended]
    kept = {"worker-0": chief(200, 300, 300), "worker-1": [*first, *worker(0, 0, attempt=1)]}
    assert records.wrong_sums(home_of(kept=kept), "async", 300) == []


def test_progress_of_a_training() -> None:
    lines = [b'half": 3}', b'{"global_step": 40}', b'{"global_step": 30}', b'{"kind": "event"}']
    assert records.highest_step(lines) == 40
    assert records.highest_step([]) == 0


# Findings.


def failed(cause: str, *, task: str = "worker-1", reason: str = "worker-1 failed") -> Home:
    ended: dict[str, Any] = {"state": "cancelled", "cause": "peer lost"}
    tasks: dict[str, Mapping[str, Any]] = {
        **dict.fromkeys(("ps-0", "worker-0", "worker-1"), ended),
        task: {"state": "failed", "cause": cause, "exit_code": None},
    }
    kept = {"worker-0": [record(0)], "worker-1": [record(0), record(1)]}
    return home_of("failed", tasks, kept, reason=reason)


def seen(home: Home, exit_code: int | None = 0, **more: Any) -> Seen:
    return Seen(exit_code, dict(home.summary), home, **more)


def hit(home: Home, **more: Any) -> Seen:
    return seen(home, **{"exit_code": 1, "hit_unix": 50.0, "seconds": 4.0, **more})


def test_no_fault() -> None:
    assert judge(CALM, seen(home_of())) == Judgement(Outcome("succeeded", 0), Verdict.OK)
    found = judge(KILLED, hit(failed("signal")))
    assert found == Judgement(Outcome("failed", 1, "signal"), Verdict.OK)


def test_hang_is_the_worst() -> None:
    found = judge(KILLED, hit(failed("signal"), exit_code=None, left=("process 4",)))
    assert (found.verdict, found.outcome.exit_code) == (Verdict.HANG, -1)
    assert found.details == ("it did not end", "left: process 4")


@pytest.mark.parametrize(
    ("told", "what"),
    [
        (hit(failed("exit code")), "not what kill under fail may come to"),
        (hit(failed("signal"), exit_code=0), "failed with exit code 0"),
        (hit(failed("signal", reason="worker-0 failed")), "worker-1 was hit, and the reason is"),
        (hit(home_of()), "not what kill under fail may come to"),
    ],
)
def test_false_reports_are_detected(told: Seen, what: str) -> None:
    found = judge(KILLED, told)
    assert found.verdict is Verdict.LIE
    assert what in " ".join(found.details)


def test_contradicting_files_are_a_false_report() -> None:
    home = dataclasses.replace(home_of(), info={"state": "training"})
    output = " ".join(judge(CALM, seen(home)).details)
    assert "run.json still says training" in output
    assert "run.json says training, the summary succeeded" in output
    other = Seen(0, {"state": "succeeded"}, home_of())
    assert judge(CALM, other).details == (
        "the summary that was printed is not the one that was written",
    )
    going = home_of(tasks={"ps-0": {"state": "training"}})
    assert judge(CALM, seen(going)).details == ("the run has ended, and ps-0 not",)


def test_success_without_a_worker() -> None:
    home = home_of(
        tasks={"worker-1": {"state": "failed", "cause": "signal", "exit_code": None}},
        kept={"worker-1": [record(0)]},
        degraded=True,
    )
    free = dataclasses.replace(KILLED, policy=Policy.CONTINUE)
    assert judge(free, hit(home, exit_code=0)).verdict is Verdict.OK
    silent = dataclasses.replace(home, summary={**home.summary, "degraded": False})
    assert judge(free, hit(silent, exit_code=0)).details == ("succeeded without worker-1",)
    assert "succeeded without worker-1" in judge(KILLED, hit(home, exit_code=0)).details


def test_tensorflows_name_of_a_task_names_it_too() -> None:
    reason = "worker-0 failed: lost contact with /job:ps/replica:0/task:0"
    case = dataclasses.replace(KILLED, target="ps-0")
    found = judge(case, hit(failed("signal", task="ps-0", reason=reason)))
    assert found.verdict is Verdict.OK


def test_records_sums_leftovers_and_time() -> None:
    gap = home_of(kept={"worker-1": [record(0), record(2, "final", local_step=100)]})
    assert judge(CALM, seen(gap)).verdict is Verdict.LOST_RECORDS
    sums = home_of(kept={"worker-1": worker(99, 300)})
    assert judge(CALM, seen(sums)).verdict is Verdict.SUMS
    orphan = judge(CALM, seen(home_of(), left=("volume v",)))
    assert (orphan.verdict, orphan.details) == (Verdict.ORPHAN, ("left: volume v",))
    late = judge(KILLED, hit(failed("signal"), seconds=15.1))
    assert late.verdict is Verdict.LATE
    assert judge(KILLED, hit(failed("signal"), seconds=14.9)).verdict is Verdict.OK
    # Before its first step a training may take longer than between two.
    frozen = finding(KILLED, Fault.FREEZE)
    assert judge(frozen, hit(failed("stalled"), seconds=24)).verdict is Verdict.LATE
    assert judge(frozen, hit(failed("time-out"), seconds=24)).verdict is Verdict.OK
    # A program that imports writes nothing, and does not notice a full volume.
    full, before = finding(KILLED, Fault.DISK), failed("volume")
    trained = dataclasses.replace(before, summary={**before.summary, "global_step": 7})
    assert judge(full, hit(before, seconds=24)).verdict is Verdict.OK
    assert judge(full, hit(trained, seconds=24)).verdict is Verdict.LATE


def test_a_late_fault_is_ignored() -> None:
    late = judge(KILLED, seen(home_of(), missed=True))
    assert (late.verdict, late.details) == (Verdict.MISSED, ())
    # It hit a program that had printed its last line and was about to end.
    assert judge(KILLED, hit(home_of(), exit_code=0, hit_unix=99.5)).verdict is Verdict.MISSED
    assert judge(KILLED, hit(home_of(), exit_code=0, hit_unix=98.0)).verdict is Verdict.LIE
    # A task that ended at once because of its fault was hit.
    ended = {"state": "cancelled", "cause": "interrupted", "exit_code": None}
    gone = home_of("cancelled", dict.fromkeys(CALM.tasks, ended))
    engine = dataclasses.replace(KILLED, fault=Fault.ENGINE, target="")
    found = judge(engine, hit(gone, hit_unix=99.5))
    assert found == Judgement(Outcome("cancelled", 1, "interrupted"), Verdict.OK)
    # A run that failed without a fault is a finding all the same.
    assert judge(KILLED, seen(failed("signal"), 1, missed=True)).verdict is Verdict.LIE


def test_the_cause_is_that_of_the_target() -> None:
    home = failed("signal")
    other = {"state": "failed", "cause": "peer lost", "ended_unix": 1.0}
    both = dataclasses.replace(home, statuses={**home.statuses, "worker-0": other})
    assert judge(KILLED, hit(both)).outcome.cause == "signal"
    # A frozen task reports nothing: the cause of the first failed task counts.
    frozen = dataclasses.replace(KILLED, fault=Fault.FREEZE, target="ps-0")
    assert judge(frozen, hit(failed("stalled"))).verdict is Verdict.OK


# Files.


def row(seed: int, verdict: Verdict = Verdict.OK, **more: Any) -> Row:
    known = {
        "campaign": FAULTS,
        "seconds": 4.2,
        "commit": "abc1234",
        "date": "2026-11-21",
    }
    details = ("it did not end",) if verdict in results.BAD else ()
    judgement = Judgement(Outcome("failed", 1, "signal"), verdict, details)
    case = dataclasses.replace(KILLED, seed=seed)
    made = results.row_of(case, judgement, **known)  # type: ignore[arg-type]
    return dataclasses.replace(made, **more)


def test_rows_round_trip(tmp_path: Path) -> None:
    file = tmp_path / "new" / "rows.jsonl"
    kept = [row(1), row(2, Verdict.HANG, seconds=None)]
    for each in kept:
        results.append(file, each)
    assert results.read(file) == kept
    assert results.read(tmp_path / "nothing") == []


def test_a_stopped_harness_resumes() -> None:
    rows = [row(3), row(NEW_FROM), row(NEW_FROM + 2), row(1, campaign="clean end")]
    unseen = results.unseen(rows, FAULTS)
    expected_seeds = [NEW_FROM + 1, NEW_FROM + 3, NEW_FROM + 4]
    assert [next(unseen) for _ in range(3)] == expected_seeds
    todo = cases(Order(FAULTS, BACKENDS, policies=tuple(Policy)), rows)
    assert [next(todo).seed for _ in range(3)] == expected_seeds
    harms = list(cases(Order("hostile", BACKENDS), [row(1, campaign="hostile")]))
    assert len(harms) == HOSTILE_RUNS - 1
    assert {case.backend for case in harms} == set(BACKENDS)
    ends = list(cases(Order("clean end", ["local"]), rows))
    assert len(ends) == CLEAN_END_RUNS - 1


def test_a_request_selects_its_cases() -> None:
    order = Order(FAULTS, ["local"], [Fault.KILL, Fault.DISK])
    some = [case for case, _ in zip(cases(order, []), range(20), strict=False)]
    assert {case.fault for case in some} == {Fault.KILL, Fault.DISK}
    assert {case.policy for case in some} == {Policy.FAIL}
    assert {case.backend for case in some} == {"local"}
    named = Order(FAULTS, BACKENDS, seeds=[5, 9])
    assert [case.seed for case in cases(named, [])] == [5, 9]
    assert backends_of(named, []) == {draw(5).backend, draw(9).backend}
    bad = [row(4, Verdict.LIE), row(6, Verdict.HANG), row(4)]
    assert [case.seed for case in cases(Order(FAULTS, BACKENDS, again=True), bad)] == [6]


def test_the_totals() -> None:
    rows = [
        row(3),
        row(9, Verdict.MISSED),
        row(11, Verdict.HANG, seconds=None),
        row(12, Verdict.LIE),
    ]
    assert results.totals(rows) == (
        "4 runs: 1 hangs, 1 lies, 0 with lost records, 0 with wrong sums,"
        " 0 with something left behind, 0 too late,"
        " 1 with the fault after the end, which counts for nothing"
    )


def test_a_session_of_which_nothing_can_run_ends(tmp_path: Path) -> None:
    output: list[str] = []
    order = Order(FAULTS, ["local"], [Fault.LATE])
    done = run_all(
        order, tmp_path / "rows.jsonl", Tools(), say=output.append, runs=None, minutes=None
    )
    assert done == []
    assert len(output) == 1
    assert "lab run has no --start" in output[0]


@pytest.mark.parametrize("argv", [["--faults", "kil"], ["--policies", "x"], ["--backend", "x"]])
def test_bad_arguments_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "error" in capsys.readouterr().err


# Actions from outside.

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with the variables of a program."""
    with subprocess.Popen(
        ["sleep", "60"], env={**os.environ, "LAB_RUN_ID": f"r{os.getpid()}", "LAB_TASK": "ps-3"}
    ) as process:
        yield process
        process.kill()


@linux
def test_a_program_is_found_by_its_variables(sleeper: subprocess.Popen[bytes]) -> None:
    run_id = f"r{os.getpid()}"
    wait_for(lambda: processes.program("demo", run_id, "ps-3"), "the program is there")
    found = processes.program("demo", run_id, "ps-3")
    assert found is not None
    assert found.pid == sleeper.pid
    assert processes.program("demo", run_id, "ps-4") is None
    assert processes.agent(run_id, "ps-3") is None
    assert processes.resident_bytes(found.pid) > 0
    assert "sleep" in processes.describe(found.pid)
    assert found.signal(signal.SIGKILL)
    wait_for(lambda: not found.runs(), "it has ended")
    # It was not reaped, and a signal to it would be none.
    assert not found.signal(signal.SIGKILL)
    found.close()


@linux
def test_a_forked_program_is_found_by_its_name() -> None:
    project = f"p{os.getpid()}"
    code = (
        "import time; from lab.task.agent import process; process.set_process_name('ps-3');"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "LAB_PROJECT": project}
    ) as process:
        try:
            wait_for(lambda: processes.program(project, "r", "ps-3"), "the program is there")
            assert processes.program(project, "r", "ps-4") is None
        finally:
            process.kill()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place.make(KILLED, {"SOME": "thing"})
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


@linux
def test_leftovers_are_found_and_removed(place: Place) -> None:
    assert leftovers.left(place, None) == ()
    environ = {**os.environ, "LAB_STATE": str(place.state)}
    with subprocess.Popen(["sleep", "60"], env=environ) as orphan:
        (place.state / "local" / KILLED.project).mkdir(parents=True)
        (place.folder / "tmp" / "scrap").touch()
        wait_for(lambda: processes.having(LAB_STATE=str(place.state)), "the orphan")
        found = leftovers.left(place, None, sleep=lambda _: time.sleep(0.5))
        assert [each.split()[0] for each in found] == ["process", "directory", "file"]
        leftovers.preserve(place, None)
        leftovers.clear(place, None)
        assert orphan.wait(PATIENCE_S) == -signal.SIGKILL
    assert (place.folder / "evidence/state/local" / KILLED.project).is_dir()
    assert not place.state.exists()


def test_progress_of_a_run_in_a_place(place: Place) -> None:
    assert place.environ["SOME"] == "thing"
    assert not place.submitted()
    run = place.runs / "r1"
    (run / "tasks").mkdir(parents=True)
    (run / "run.json").write_text('{"submitted_unix": null}')
    assert not place.submitted()
    (run / "run.json").write_text('{"submitted_unix": 3.5}')
    assert place.submitted()
    assert place.global_step() == 0
    lines = [json.dumps({"global_step": step}) for step in range(1000)]
    (run / "tasks/worker-0.jsonl").write_text("\n".join(lines) + "\n")
    assert place.global_step() == 999


def test_waiting_for_a_moment_of_a_run(place: Place) -> None:
    (place.runs / "r1/tasks").mkdir(parents=True)
    (place.runs / "r1/tasks/worker-0.jsonl").write_text('{"global_step": 40}\n')
    with subprocess.Popen(["sleep", "60"]) as helper:
        deadline = time.monotonic() + 60
        scene = Scene(KILLED, place, "r1", helper, deadline)
        assert wait_for_moment(scene, time.monotonic())
        later = dataclasses.replace(KILLED, when=When(at_step=41))
        assert not wait_for_moment(dataclasses.replace(scene, case=later, deadline=0.0), 0.0)
        soon = dataclasses.replace(KILLED, when=When(after_s=0.1))
        began = time.monotonic()
        assert wait_for_moment(dataclasses.replace(scene, case=soon), began)
        assert Hit.now().monotonic - began >= 0.1
        helper.kill()
        helper.wait()
        assert not wait_for_moment(dataclasses.replace(scene, case=later), 0.0)


TIMES = """\
import os, sys, threading, time
print(time.time(), flush=True)
sys.stdin.readline()
began = time.monotonic()
threading.Event().wait(0.1)
print(time.time(), time.monotonic() - began, flush=True)
"""


@linux
def test_a_clock_is_set_while_its_program_runs(tmp_path: Path) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        lacking("no C compiler")
    made = clock.make(tmp_path, "worker-1")

    def times(task: str) -> tuple[float, float, float]:
        made.set(0)
        environ = {**os.environ, **made.environ, "LAB_TASK": task, "LAB_RUN_ID": "r1"}
        with subprocess.Popen(
            [sys.executable, "-S", "-c", TIMES],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stdout is not None
            first = float(program.stdout.readline())
            made.set(-3600)
            out, _ = program.communicate("go\n", timeout=PATIENCE_S)
        second, waited = map(float, out.split())
        return first, second, waited

    first, second, waited = times("worker-1")
    assert abs(first - time.time()) < 600
    assert -3600 <= second - first < -3000
    assert 0.1 <= waited < 600  # the clock was changed by an hour
    first, second, _ = times("worker-0")
    assert 0 < second - first < 600
