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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.config import load_cluster
from lab.gpu import take_inventory
from lab.placement.place import place as plan_of
from lab.task.protocol.states import Cause, State
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.conditions import lacking
from tests.support.harms import HARMS
from tests.torture import clock, leftovers, processes, records, results
from tests.torture.__main__ import main
from tests.torture.case import (
    BACKENDS,
    CAMPAIGNS,
    FAULTS_ON,
    UNTIMED,
    Case,
    Fault,
    Policy,
    clean_end,
    draw,
    hostile,
)
from tests.torture.expected import END_S, WELL, Outcome, expected, may_succeed, patience_s
from tests.torture.injecting import Scene
from tests.torture.judging import Judgement, Seen, Verdict, judge
from tests.torture.place import Place
from tests.torture.records import Home
from tests.torture.running import Tools, words

MANY = [draw(seed) for seed in range(600)]
HOSTILE = [hostile(seed) for seed in range(200)]
CALM = Case(seed=7, backend="local", experiment="async", workers=2, ps=1, steps=300)


def of(fault: Fault, target: str = "worker-1", **more: Any) -> Case:
    return dataclasses.replace(CALM, fault=fault, target=target, at_step=40, **more)


KILLED = of(Fault.KILL)


# Cases.


def test_everything_is_drawn() -> None:
    assert draw(17) == draw(17)
    for backend in BACKENDS:
        drawn = {case.fault for case in MANY if case.backend == backend}
        assert drawn == set(FAULTS_ON[backend])
    assert {(case.workers, case.ps) for case in MANY} >= {(n, m) for n in (2, 3) for m in (1, 2, 3)}
    assert {case.workers for case in MANY} == set(range(2, 9))
    assert {case.follow_up for case in MANY} == {"", "attach", "collect"}
    drawn_policies = {(case.experiment, case.policy) for case in MANY}
    every = {(way, policy) for way in ("async", "sync") for policy in Policy}
    assert drawn_policies == every - {("sync", Policy.CONTINUE)}
    assert {case.harm for case in HOSTILE} == set(HARMS)
    assert len({case.fault for case in HOSTILE}) == 9
    ends = [clean_end(seed) for seed in CAMPAIGNS["clean-end"][1]]
    assert [(each.workers, each.replicas) for each in ends].count((3, 2)) == 100


@pytest.mark.parametrize("case", [*MANY[:40], clean_end(260), *HOSTILE[:8]], ids=Case.line)
def test_a_case_is_possible(case: Case, tmp_path: Path) -> None:
    timed = case.after_s is not None or case.at_step is not None
    assert timed is (case.fault not in UNTIMED)
    assert (case.at_step or 1) <= case.steps or case.harm
    assert case.tasks_on(case.target) or not case.target
    path = tmp_path / "cluster.yaml"
    path.write_text(case.config())
    cluster = load_cluster(path)
    plan = plan_of(cluster, take_inventory("none", cluster))
    assert [task.name for task in plan.tasks] == case.tasks
    assert all(task.name in case.tasks_on(task.node) for task in plan.tasks)


@pytest.mark.parametrize(
    ("case", "part"),
    [
        (KILLED, "run async --backend local --gpus none --json --on-failure fail"),
        (KILLED, "--record_every 15 --ready-within 240s"),
        (of(Fault.FREEZE), "--stall 8s --ready-within 120s"),
        (of(Fault.LATE, amount_s=7), "--start worker-1: 7s"),
        (clean_end(100), "--replicas_to_aggregate 2"),
        (hostile(3), f"-- {hostile(3).harm} 12"),
    ],
)
def test_the_command_line_of_a_case(case: Case, part: str) -> None:
    assert part in " ".join(words(case))


# Expectations.

LOST = Outcome("lost", 1, "node lost")
SIGNAL, VOLUME = Outcome("failed", 1, "signal"), Outcome("failed", 1, "volume")


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("target", ["", "ps-0", "worker-0", "worker-1"])
@pytest.mark.parametrize("fault", [Fault.NONE, Fault.PAUSE, Fault.HELPER, Fault.LATE, Fault.CLOCK])
def test_survived_faults(fault: Fault, target: str, policy: Policy) -> None:
    assert expected(of(fault, target, policy=policy)) == {Outcome("succeeded", 0)}


@pytest.mark.parametrize(
    ("fault", "target", "policy", "ends"),
    [
        (Fault.KILL, "worker-1", Policy.FAIL, {SIGNAL}),
        (Fault.KILL, "ps-0", Policy.FAIL, {SIGNAL}),
        (Fault.AGENT, "worker-1", Policy.FAIL, {LOST}),
        (Fault.AGENT, "ps-0", Policy.FAIL, {LOST, Outcome("failed", 1, "node lost")}),
        (Fault.MEMORY, "worker-1", Policy.FAIL, {Outcome("failed", 1, "out of memory")}),
        (Fault.DISK, "", Policy.FAIL, {VOLUME}),
        (Fault.DISK, "", Policy.RESTART, {VOLUME}),
        (Fault.KILL, "worker-1", Policy.RESTART, WELL),
        (Fault.KILL, "ps-0", Policy.RESTART, WELL | {SIGNAL}),
        (Fault.AGENT, "worker-1", Policy.RESTART, WELL | {LOST}),
        (Fault.KILL, "worker-1", Policy.CONTINUE, {Outcome("succeeded", 0, "signal")}),
        (Fault.AGENT, "worker-1", Policy.CONTINUE, {Outcome("succeeded", 0, "node lost")}),
        (Fault.KILL, "ps-0", Policy.CONTINUE, {SIGNAL}),
        (
            *(Fault.KILL, "worker-0", Policy.CONTINUE),
            WELL | {SIGNAL, Outcome("succeeded", 0, "signal")},
        ),
        (
            *(Fault.FREEZE, "worker-1", Policy.FAIL),
            {Outcome("failed", 1, "stalled"), Outcome("failed", 1, "time-out")},
        ),
    ],
)
def test_the_contract(fault: Fault, target: str, policy: Policy, ends: set[Outcome]) -> None:
    case = of(fault, target, policy=policy)
    assert expected(case) == ends
    assert may_succeed(case) is any(each.exit_code == 0 for each in ends)
    if policy is Policy.CONTINUE:
        strict = dataclasses.replace(case, policy=Policy.FAIL, experiment="sync")
        assert expected(dataclasses.replace(case, experiment="sync")) == expected(strict)


@pytest.mark.parametrize("case", [*MANY[:100], of(Fault.ENGINE, "")], ids=Case.line)
def test_expectations_are_possible(case: Case) -> None:
    known = {*(cause.value for cause in Cause), "", "time-out"}
    for outcome in expected(case):
        assert State(outcome.state).ended
        assert outcome.cause in known
        assert (outcome.exit_code == 0) is (outcome.state == "succeeded")
    assert expected(case)
    assert patience_s(case.fault) >= END_S


# Reading.


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


def test_a_stored_run_is_read(tmp_path: Path) -> None:
    for folder in ("tasks", "status"):
        (tmp_path / folder).mkdir()
    (tmp_path / "run.json").write_text('{"state": "failed"}')
    (tmp_path / "status/worker-0.json").write_text('{"state": "failed"}')
    lines = [json.dumps(record(0, global_step=40)), "half a rec", json.dumps(record(1))]
    (tmp_path / "tasks/worker-0.jsonl").write_text("\n".join(lines))
    found = Home.read(tmp_path)
    assert (found.info, found.summary) == ({"state": "failed"}, {})
    assert found.statuses == {"worker-0": {"state": "failed"}}
    assert (found.global_step(), Home().global_step()) == (40, 0)
    # The last line has no end: its writer had not finished.
    assert records.missing(found) == [f"worker-0: line {n} is no record" for n in (2, 3)]


AGAIN = [record(0), record(1), {"kind": "event"}, *worker(100, attempt=1)]
"""Each attempt counts anew, and records of the agent have no number."""


@pytest.mark.parametrize(
    ("kept", "what"),
    [
        (worker(100), ""),
        (AGAIN, ""),
        ([record(0), record(2, "final")], "attempt 0: 2 where 1 belongs"),
        ([record(0), record(1), record(1, "final")], "attempt 0: 1 where 2 belongs"),
        ([record(1), record(0, "final")], "attempt 0: 1 where 0 belongs"),
        ([record(0), record(1)], "its last record is not at home"),
        ([], "its last record is not at home"),
    ],
)
def test_missing_records_are_found(kept: list[dict[str, Any]], what: str) -> None:
    found = records.missing(home_of(kept={"worker-1": kept}))
    assert [what in line and "worker-1" in line for line in found] == ([True] if what else [])


FULL = record(2, "final", status="failed", message="no space left")


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
        (chief(299), [record(0), FULL, *worker(60, 1)], "async", ""),
        (chief(298), [record(0), *worker(60, 1)], "async", "298 updates"),
        (chief(301), [record(0), *worker(60, 1)], "async", "301 updates"),
    ],
)
def test_sums(first: list[Any], second: list[Any], experiment: str, what: str) -> None:
    home = home_of(kept={"worker-0": first, "worker-1": second})
    found = records.wrong_sums(home, experiment, 300)
    assert [what in line for line in found] == ([True] if what else [])


def test_the_summary_may_tell_of_losses() -> None:
    assert records.missing(home_of(records_lost=3)) == ["the summary has 3 records lost"]
    assert records.wrong_sums(home_of(), "async", 301) == ["global step 300 instead of 301"]
    (found,) = records.wrong_sums(home_of(updates_conserved=False), "async", 300)
    assert "updates_conserved" in found


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


SHORT = home_of(
    tasks={"worker-1": {"state": "failed", "cause": "signal", "exit_code": None}},
    kept={"worker-1": [record(0)]},
    degraded=True,
)
SILENT = dataclasses.replace(SHORT, summary={**SHORT.summary, "degraded": False})
FREE = dataclasses.replace(KILLED, policy=Policy.CONTINUE)
GOING = home_of(tasks={"ps-0": {"state": "training"}})
WRONG = dataclasses.replace(home_of(), info={"state": "training"})
GAP = home_of(kept={"worker-1": [record(0), record(2, "final", local_step=100)]})
BY_TENSORFLOW = failed("signal", task="ps-0", reason="worker-0 lost /job:ps/replica:0/task:0")
# A program that imports writes nothing, and does not notice a full volume.
IMPORTING = failed("volume")
TRAINED = dataclasses.replace(IMPORTING, summary={**IMPORTING.summary, "global_step": 7})
FORGED = dataclasses.replace(CALM, experiment="hostile", harm="forge")
STOPPED = home_of("cancelled", {task: {"state": "cancelled", "cause": ""} for task in CALM.tasks})


@pytest.mark.parametrize(
    ("case", "told", "verdict", "what"),
    [
        (CALM, seen(home_of()), Verdict.OK, ""),
        (KILLED, hit(failed("signal")), Verdict.OK, ""),
        (KILLED, hit(failed("signal"), exit_code=None, left=("process 4",)), Verdict.HANG, "ss 4"),
        # What it says is not true.
        (KILLED, hit(failed("exit code")), Verdict.LIE, "not what kill under fail may come to"),
        (KILLED, hit(home_of()), Verdict.LIE, "not what kill under fail may come to"),
        (KILLED, hit(failed("signal"), exit_code=0), Verdict.LIE, "failed with exit code 0"),
        (KILLED, hit(failed("signal", reason="worker-0")), Verdict.LIE, "worker-1 was hit"),
        (of(Fault.KILL, "ps-0"), hit(BY_TENSORFLOW), Verdict.OK, ""),
        (CALM, seen(WRONG), Verdict.LIE, "run.json still says training"),
        (CALM, seen(WRONG), Verdict.LIE, "run.json says training, the summary succeeded"),
        (CALM, Seen(0, {"state": "succeeded"}, home_of()), Verdict.LIE, "the summary that was"),
        (CALM, seen(GOING), Verdict.LIE, "the run has ended, and ps-0 not"),
        (FREE, hit(SHORT, exit_code=0), Verdict.OK, ""),
        (FREE, hit(SILENT, exit_code=0), Verdict.LIE, "succeeded without worker-1"),
        (KILLED, hit(SHORT, exit_code=0), Verdict.LIE, "succeeded without worker-1"),
        (FORGED, seen(home_of()), Verdict.LIE, "not what none under fail may come to"),
        (FORGED, seen(home_of(left=[{"kept": True}]), 1), Verdict.OK, ""),
        # Records, leftovers and time.
        (CALM, seen(GAP), Verdict.LOST_RECORDS, "2 where 1 belongs"),
        (CALM, seen(home_of(kept={"worker-1": worker(99)})), Verdict.SUMS, "299 local"),
        (CALM, seen(home_of(), left=("volume v",)), Verdict.ORPHAN, "left: volume v"),
        (KILLED, hit(failed("signal"), seconds=14.9), Verdict.OK, ""),
        (KILLED, hit(failed("signal"), seconds=15.1), Verdict.LATE, "15 s are allowed"),
        # Before its first step a training may take longer than between two.
        (of(Fault.FREEZE), hit(failed("stalled"), seconds=24), Verdict.LATE, "23 s"),
        (of(Fault.FREEZE), hit(failed("time-out"), seconds=24), Verdict.OK, ""),
        (of(Fault.FREEZE, "ps-0"), hit(failed("stalled")), Verdict.OK, ""),
        (of(Fault.DISK), hit(IMPORTING, seconds=24), Verdict.OK, ""),
        (of(Fault.DISK), hit(TRAINED, seconds=24), Verdict.LATE, "23 s"),
        # It hit a program that had printed its last line and was about to end.
        (KILLED, seen(home_of(), missed=True), Verdict.MISSED, ""),
        (KILLED, hit(home_of(), exit_code=0, hit_unix=99.5), Verdict.MISSED, ""),
        (KILLED, hit(home_of(), exit_code=0, hit_unix=98.0), Verdict.LIE, "succeeded"),
        (KILLED, seen(failed("signal"), 1, missed=True), Verdict.LIE, "signal"),
        (of(Fault.ENGINE, ""), hit(STOPPED, hit_unix=99.5), Verdict.OK, ""),
    ],
)
def test_verdicts(case: Case, told: Seen, verdict: Verdict, what: str) -> None:
    found = judge(case, told)
    assert found.verdict is verdict, found
    assert what in " ".join(found.details)
    assert bool(found.details) is bool(what)


def test_the_cause_is_that_of_the_target() -> None:
    home = failed("signal")
    other = {"state": "failed", "cause": "peer lost", "ended_unix": 1.0}
    both = dataclasses.replace(home, statuses={**home.statuses, "worker-0": other})
    assert judge(KILLED, hit(both)).outcome == Outcome("failed", 1, "signal")
    # A target that did not fail has no cause: that of the first failed task counts.
    assert judge(of(Fault.FREEZE, "ps-0"), hit(both)).outcome.cause == "peer lost"


# Files.


def row(seed: int, verdict: Verdict = Verdict.OK) -> results.Row:
    details = () if verdict is Verdict.OK else ("it did not end",)
    judgement = Judgement(Outcome("failed", 1, "signal"), verdict, details)
    case = dataclasses.replace(KILLED, seed=seed)
    return results.row_of(case, judgement, campaign="faults", seconds=4.0 + seed)


def test_rows_are_kept_and_summed_up(tmp_path: Path) -> None:
    file = tmp_path / "build/rows"
    assert results.read(file) == []
    for each in (row(1), row(2, Verdict.HANG), row(3)):
        results.keep(file, each)
    good, bad, finding, total = results.summary(results.read(file))
    assert "2 faults kill fail → failed (signal), 6.0 s, at most 7.0 s: seeds 1, 3" in good
    assert bad.endswith("(signal) hang, 6.0 s, at most 6.0 s: seeds 2")
    assert finding == "hang: seed 2: it did not end"
    assert total.startswith("3 runs: 1 hang, 0 lie")


def test_a_stopped_harness_resumes() -> None:
    rows = [row(0), row(2, Verdict.LIE), row(3, Verdict.HANG), row(3)]
    assert list(results.seeds_to_run(rows, "faults", range(6), again=False)) == [1, 4, 5]
    assert list(results.seeds_to_run(rows, "clean-end", range(2), again=False)) == [0, 1]
    assert list(results.seeds_to_run(rows, "faults", range(6), again=True)) == [2]


def test_a_request_runs_its_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = iter([Verdict.OK, Verdict.LIE, *[Verdict.OK] * 9])

    @contextmanager
    def ran(case: Case, _: Tools) -> Iterator[tuple[Place, Seen, Judgement]]:
        found = Judgement(Outcome("failed", 1), next(verdicts), ("a detail",))
        yield Place(tmp_path, case, {}), seen(Home()), found

    monkeypatch.setattr("tests.torture.__main__.ran", ran)

    def run(argv: str) -> tuple[int, list[results.Row]]:
        before = len(results.read(tmp_path / "rows"))
        code = main(argv.split(), tmp_path / "rows")
        return code, results.read(tmp_path / "rows")[before:]

    code, rows = run("--backend local --faults kill pause --policies restart --runs 2")
    assert code == 1
    for each in rows:
        assert (each["backend"], each["policy"]) == ("local", "restart")
        assert each["fault"] in {"kill", "pause"}
    code, later = run("--backend local --faults kill pause --policies restart --runs 1")
    assert (code, later[0]["seed"] > rows[1]["seed"]) == (0, True)
    assert [each["seed"] for each in run("--again")[1]] == [rows[1]["seed"]]
    assert run("--again") == (0, [])
    ends = run("--campaign clean-end --seed 3 2")[1]
    assert [(each["seed"], each["campaign"]) for each in ends] == [
        (3, "clean-end"),
        (2, "clean-end"),
    ]


@pytest.mark.parametrize(
    "argv",
    [
        "--faults kil",
        "--policies x",
        "--backend x",
        "--backend local --faults anchor",  # nothing can run: it would search for ever
    ],
)
def test_bad_arguments_are_refused(argv: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv.split(), tmp_path / "rows")
    assert left.value.code == 2


# Actions from outside.

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
ME = f"r{os.getpid()}"
FORKED = "import time; from lab.task.agent import process; process.set_process_name('ps-3')"


@linux
@pytest.mark.parametrize(
    ("command", "variables"),
    [
        (["sleep", "60"], {"LAB_RUN_ID": ME, "LAB_TASK": "ps-3"}),
        # A forked program has its name, and the variables of the environment.
        ([sys.executable, "-c", f"{FORKED}; time.sleep(60)"], {"LAB_PROJECT": ME}),
    ],
)
def test_a_program_is_found(command: list[str], variables: dict[str, str]) -> None:
    with subprocess.Popen(command, env={**os.environ, **variables}) as process:
        try:
            wait_for(lambda: processes.program(ME, ME, "ps-3") is not None, "the program is there")
            found = processes.program(ME, ME, "ps-3")
            assert found is not None
            assert found.pid == process.pid
            assert processes.program(ME, ME, "ps-4") is None
            assert processes.agent(ME, "ps-3") is None
            assert command[0] in processes.describe(found)
            assert processes.signalled(found, signal.SIGKILL)
            wait_for(lambda: not processes.runs(found), "it has ended")
            # It was not reaped, and a signal to it would be none.
            assert not processes.signalled(found, signal.SIGKILL)
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


def test_waiting_for_a_moment_of_a_run(place: Place) -> None:
    (place.folder / "runs/r1/tasks").mkdir(parents=True)
    (place.folder / "runs/r1/run.json").write_text("{}")
    assert (place.environ["SOME"], place.home().global_step()) == ("thing", 0)
    (place.folder / "runs/r1/tasks/worker-0.jsonl").write_text('{"global_step": 40}\n')
    with subprocess.Popen(["sleep", "60"]) as helper:
        scene = Scene(place, helper, time.monotonic() + 60)
        assert scene.wait_until(lambda: place.home().global_step() >= 40)
        late = dataclasses.replace(scene, deadline=0.0)
        assert not late.wait_until(lambda: True)
        helper.kill()
        helper.wait()
        assert not scene.wait_until(lambda: True)


TIMES = """\
import ctypes, sys, time
print(time.time(), flush=True)
sys.stdin.readline()
began = time.monotonic()
until = time.time() + 0.1
moment = (ctypes.c_long * 2)(int(until), int(until % 1 * 1e9))
ctypes.CDLL(None).sem_timedwait(ctypes.create_string_buffer(32), moment)
print(time.time(), time.monotonic() - began, flush=True)
"""


@linux
@pytest.mark.parametrize(("task", "moved_s"), [("worker-1", -3600), ("worker-0", 0)])
def test_a_clock_is_set_while_its_program_runs(tmp_path: Path, task: str, moved_s: int) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        lacking("no C compiler")
    made = clock.make(tmp_path, "worker-1")
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
    second, waited_s = map(float, out.split())
    assert abs(first - time.time()) < 600
    assert moved_s <= second - first < moved_s + 600
    assert 0.09 <= waited_s < 600  # the clock was changed by an hour
