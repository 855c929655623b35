"""The torture harness: its cases, its expectations, its findings and its leftovers."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.config import load_cluster
from lab.gpu import take_inventory
from lab.placement.place import place as plan_of
from lab.volume.states import Cause
from tests.support.agents import PATIENCE_S, wait_for
from tests.torture import leftovers, processes, records
from tests.torture.case import UNTIMED, Case, Fault, Policy, draw
from tests.torture.expected import expected
from tests.torture.judging import Seen, Verdict, judge
from tests.torture.place import Place
from tests.torture.records import Home

SOME = [draw(seed) for seed in range(20)]
CALM = Case(seed=7, backend="local", experiment="async", workers=2, ps=1, steps=300)


def of(fault: Fault, target: str = "worker-1", **more: Any) -> Case:
    return dataclasses.replace(CALM, fault=fault, target=target, at_step=40, **more)


KILLED, RESTARTED = of(Fault.KILL), of(Fault.KILL, policy=Policy.RESTART)


@pytest.mark.parametrize("case", SOME, ids=Case.line)
def test_a_case_is_possible(case: Case, tmp_path: Path) -> None:
    timed = case.after_s is not None or case.at_step is not None
    assert timed is (case.fault not in UNTIMED)
    assert (case.at_step or 1) <= case.steps
    assert case.tasks_on(case.target) or not case.target
    path = tmp_path / "cluster.yaml"
    path.write_text(case.config())
    cluster = load_cluster(path)
    plan = plan_of(cluster, take_inventory("none", cluster))
    assert [task.name for task in plan.tasks] == case.tasks
    assert all(task.name in case.tasks_on(task.node) for task in plan.tasks)
    assert {each.cause for each in expected(case)} <= {*map(str, Cause), "", "time-out"}


# ---- Reading


def record(seq: int, kind: str = "step", attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "attempt": attempt, "seq": seq, **more}


def worker(local: int, attempt: int = 0) -> list[dict[str, Any]]:
    final = record(2, "final", attempt, local_step=local, global_step=300)
    return [record(0, "start", attempt), record(1, attempt=attempt), final]


def chief(probe: int) -> list[dict[str, Any]]:
    final = record(2, "final", local_step=200, global_step=300)
    return [record(0, "start"), record(1, "eval", global_step=300, probe=probe), final]


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
    both = {"worker-0": chief(300), "worker-1": worker(100)}
    return Home({"state": state}, {**told, **summary}, statuses, both | dict(kept or {}))


# Each attempt counts anew, and records of the agent have no number.
AGAIN = [record(0), record(1), {"kind": "event"}, *worker(100, attempt=1)]


@pytest.mark.parametrize(
    ("home", "what"),
    [
        (home_of(kept={"worker-1": worker(100)}), ""),
        (home_of(kept={"worker-1": AGAIN}), ""),
        (home_of(kept={"worker-1": [record(0), record(2, "final")]}), "0: 2 where 1 belongs"),
        (home_of(kept={"worker-1": [record(0), record(1)]}), "its last record is not at home"),
        (home_of(records_lost=3), "the summary has 3 records lost"),
    ],
)
def test_missing_records_are_found(home: Home, what: str) -> None:
    assert [what in line for line in records.missing(home)] == ([True] if what else [])


@pytest.mark.parametrize(
    ("first", "second", "experiment", "what"),
    [
        (chief(300), worker(100), "async", ""),
        (chief(299), worker(100), "async", "299 updates"),
        (chief(300), worker(101), "async", "301 local steps"),
        # Of synchronous workers each one counts all updates that it took part in.
        (chief(300), worker(101), "sync", ""),
        (worker(200), worker(100), "async", "no record has"),
        # A killed attempt, or one that failed, may have taken one number more.
        (chief(299), [record(0), *worker(60, 1)], "async", ""),
        (chief(298), [record(0), *worker(60, 1)], "async", "298 updates"),
        (chief(301), [record(0), *worker(60, 1)], "async", "301 updates"),
    ],
)
def test_sums(first: list[Any], second: list[Any], experiment: str, what: str) -> None:
    home = home_of(kept={"worker-0": first, "worker-1": second})
    found = records.wrong_sums(home, experiment, 300)
    assert [what in line for line in found] == ([True] if what else [])


# ---- Findings


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


SHORT = home_of(
    tasks={"worker-1": {"state": "failed", "cause": "signal", "exit_code": None}},
    kept={"worker-1": [record(0)]},
)
GOING = home_of(tasks={"ps-0": {"state": "training"}})
WRONG = dataclasses.replace(home_of(), info={"state": "training"})
GAP = home_of(kept={"worker-1": [record(0), record(2, "final", local_step=100)]})
BY_TENSORFLOW = failed("signal", task="ps-0", reason="worker-0 lost /job:ps/replica:0/task:0")


@pytest.mark.parametrize(
    ("case", "told", "verdict", "what"),
    [
        (CALM, seen(home_of()), Verdict.OK, ""),
        (KILLED, hit(failed("signal")), Verdict.OK, ""),
        (KILLED, hit(failed("signal"), exit_code=None, left=("process 4",)), Verdict.HANG, "ss 4"),
        # What it says is not true.
        (KILLED, hit(failed("exit code")), Verdict.LIE, "not what kill under fail may come to"),
        (KILLED, hit(failed("signal"), exit_code=0), Verdict.LIE, "failed with exit code 0"),
        (KILLED, hit(failed("signal", reason="worker-0")), Verdict.LIE, "worker-1 was hit"),
        (of(Fault.KILL, "ps-0"), hit(BY_TENSORFLOW), Verdict.OK, ""),
        (CALM, seen(WRONG), Verdict.LIE, "run.json says training, the summary succeeded"),
        (CALM, seen(GOING), Verdict.LIE, "the run has ended, and ps-0 not"),
        (KILLED, hit(SHORT, exit_code=0), Verdict.LIE, "succeeded without worker-1"),
        # Records, leftovers and time.
        (CALM, seen(GAP), Verdict.LOST_RECORDS, "2 where 1 belongs"),
        (CALM, seen(home_of(updates_conserved=False)), Verdict.SUMS, "updates_conserved"),
        (CALM, seen(home_of(), left=("volume v",)), Verdict.ORPHAN, "left: volume v"),
        (KILLED, hit(failed("signal"), seconds=15.1), Verdict.LATE, "15 s are allowed"),
        # Before its first step a training may take longer than between two.
        (of(Fault.FREEZE), hit(failed("stalled"), seconds=24), Verdict.LATE, "23 s"),
        (of(Fault.FREEZE), hit(failed("time-out"), seconds=24), Verdict.OK, ""),
        # It hit a program that had printed its last line and was about to end.
        (KILLED, seen(home_of(), missed=True), Verdict.MISSED, ""),
        (KILLED, hit(home_of(), exit_code=0, hit_unix=99.5), Verdict.MISSED, ""),
        (KILLED, hit(home_of(), exit_code=0, hit_unix=98.0), Verdict.LIE, "not what kill under"),
        (of(Fault.AGENT), hit(failed("node lost")), Verdict.LIE, "not what agent under fail"),
        (RESTARTED, seen(home_of(), hit_unix=50.0), Verdict.OK, ""),
        (RESTARTED, hit(failed("signal")), Verdict.LIE, "not what kill under restart"),
    ],
)
def test_verdicts(case: Case, told: Seen, verdict: Verdict, what: str) -> None:
    found = judge(case, told)
    assert found.verdict is verdict, found
    assert what in " ".join(found.details)
    assert bool(found.details) is bool(what)


# ---- Actions from outside


def test_leftovers_are_found_and_removed() -> None:
    place = Place.make(KILLED, {"SOME": "thing"})
    try:
        assert place.environ["SOME"] == "thing"
        assert leftovers.left(place, None) == ()
        environ = {**os.environ, "LAB_STATE": str(place.state)}
        with subprocess.Popen(["sleep", "60"], env=environ) as orphan:
            (place.state / "local" / KILLED.project).mkdir(parents=True)
            (place.folder / "tmp" / "scrap").touch()
            (place.state / "link").symlink_to("/dev/zero")
            os.mkfifo(place.state / "pipe")
            wait_for(lambda: bool(processes.having(LAB_STATE=str(place.state))), "the orphan")
            found = leftovers.left(place, None, settle_s=0)
            assert [each.split()[0] for each in found] == ["process", "directory", "file"]
            leftovers.preserve(place, None)
            leftovers.clear(place, None)
            assert orphan.wait(PATIENCE_S) == -signal.SIGKILL
        assert (place.folder / "evidence/state/local" / KILLED.project).is_dir()
        assert (place.folder / "evidence/state/link").is_symlink()
        assert not place.state.exists()
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
