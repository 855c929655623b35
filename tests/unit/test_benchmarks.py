"""The statistics behind RESULTS.md, its measure and its texts; nothing is timed here."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import machine, results, slurm_records, volume
from benchmarks.__main__ import unmeasured
from benchmarks.collector import Collected, lost, missing_lines
from benchmarks.configs import NODES, PER_NODE, sharing, text, thousand_tasks
from benchmarks.outcome import Outcome, Target
from benchmarks.pairs import Estimate, estimate, interleaved, range_of, ratio
from benchmarks.rendering import FEW, MANY, grown
from benchmarks.slurm import pending_s, started
from benchmarks.steps import UnfitError, all_stepped_at, steps_per_second
from benchmarks.trainings import ROOT, by_hand_records, workplace
from lab.config import load_cluster
from lab.config.model import MAX_TASKS
from lab.gpu import take_inventory
from lab.placement.place import place
from lab.records import Record, format_record
from lab.run.store import RunDir


def test_each_pair_holds_what_was_measured_in_its_turn() -> None:
    clock = iter(range(100))
    output: list[str] = []

    def measure(name: str) -> float:
        output.append(name)
        return float(next(clock))

    pairs = interleaved(lambda: measure("A"), lambda: measure("B"), 3)
    assert output == ["A", "B", "B", "A", "A", "B"]
    assert pairs == [(0.0, 1.0), (3.0, 2.0), (4.0, 5.0)]


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        # The sign test's interval at 95%, as in the tables.
        (1, -math.inf, math.inf),
        (5, -math.inf, math.inf),
        (6, 1, 6),  # 96.9%
        (10, 2, 9),  # 97.9%
        (20, 6, 15),  # 95.9%
    ],
)
def test_known_values_have_the_interval_of_the_tables(count: int, low: float, high: float) -> None:
    values = random.Random(count).sample(range(1, count + 1), count)  # noqa: S311
    assert estimate(values) == Estimate((count + 1) / 2, low, high, tuple(values))


@pytest.mark.parametrize("count", [6, 7, 10, 11, 20, 50])
def test_the_interval_has_its_nominal_coverage(count: int) -> None:
    # Skewed on purpose: the median of a lognormal is 1, its mean is not.
    chance = random.Random(count)  # noqa: S311
    samples = (estimate([chance.lognormvariate(0, 1) for _ in range(count)]) for _ in range(4000))
    covered = sum(found.low <= 1 <= found.high for found in samples) / 4000
    assert 0.94 < covered < 0.995


def one_experiment(seed: int, bias: float) -> Estimate:
    """Ten pairs on a machine that gets slower by a half meanwhile, with 2% of noise."""
    chance = random.Random(seed)  # noqa: S311
    slowness = iter(1 + 0.5 * turn / 20 for turn in range(20))

    def measure(rate: float) -> float:
        return rate * chance.gauss(1, 0.02) / next(slowness)

    return ratio(interleaved(lambda: measure(400 * bias), lambda: measure(400), 10))


@pytest.mark.parametrize("bias", [0.9, 1.0])
def test_a_bias_is_found_through_drift_and_noise(bias: float) -> None:
    found = [one_experiment(seed, bias) for seed in range(400)]
    assert statistics.median(each.median for each in found) == pytest.approx(bias, abs=0.003)
    assert sum(each.low <= bias <= each.high for each in found) > 370
    assert (sum(each.high < 1 for each in found) > 390) is (bias < 1)


@pytest.mark.parametrize(
    ("found", "target", "verdict"),
    [
        ((0.98, 0.97, 0.99), Target("at least", 0.97), "met"),
        ((0.98, 0.96, 0.99), Target("at least", 0.97), "met narrowly"),
        ((0.96, 0.95, 0.98), Target("at least", 0.97), "missed narrowly"),
        ((0.90, 0.89, 0.91), Target("at least", 0.97), "missed"),
        ((0.98, -math.inf, math.inf), Target("at least", 0.97), "met narrowly"),
        ((math.nan, math.nan, math.nan), Target("at least", 0.97), "missed"),
        ((0.1, 0.09, 0.2), Target("at most", 0.2), "met"),
        ((0.3, 0.25, 0.4), Target("at most", 0.2), "missed"),
    ],
)
def test_verdicts(found: tuple[float, float, float], target: Target, verdict: str) -> None:
    assert target.verdict(Estimate(*found, ())) == verdict


def step(task: int, time: float, global_step: int, kind: str = "step") -> Record:
    return {"kind": kind, "task_index": task, "time_unix": time, "global_step": global_step}


def test_the_rate_counts_only_while_all_workers_train() -> None:
    # Alone, worker 0 makes 1,000 steps in a second; together they make 300 a second.
    first = [
        step(0, 9.0, 0),
        step(0, 10.0, 1000),
        step(0, 20.0, 4010, "epoch"),
        step(0, 30.0, 7000),
    ]
    steps = [step(1, 11.0, 1300), step(1, 21.0, 4300), step(1, 26.0, 5800)]
    final = {"kind": "final", "time_unix": 40.0, "global_step": 9_000}
    second = [{"kind": "start", "time_unix": 1.0}, *steps, final]
    records = {"ps-0": [step(0, 0.0, 10**6)], "worker-0": first, "worker-1": second}
    assert steps_per_second(records) == (5800 - 1300) / 15
    assert all_stepped_at(records) == 11.0


def test_workers_that_never_trained_together_are_not_measured() -> None:
    early, late = [step(0, 1.0, 1), step(0, 2.0, 2)], [step(1, 3.0, 3), step(1, 4.0, 4)]
    with pytest.raises(UnfitError, match="at the same time"):
        steps_per_second({"worker-0": early, "worker-1": late})
    for measure in (steps_per_second, all_stepped_at):
        with pytest.raises(UnfitError, match="no step record"):
            measure({"worker-0": early, "worker-1": []})


def test_output_of_a_program_by_hand_is_read(tmp_path: Path) -> None:
    record: Record = {"kind": "step", "job_name": "worker", "task_index": 0, "global_step": 7}
    path = tmp_path / "worker-0"
    path.write_bytes(b"a warning \xff of a library\n" + format_record(record).encode() + b"\n")
    assert by_hand_records(path) == [record]


def test_lab_does_not_change_python_start_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "TF_CONFIG", "LAB_STATE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LAB_BASE_IMAGE", "mine")
    with workplace() as own:
        assert {name for name in own.environ if name.startswith("PYTHON")} == {"PYTHONPATH"}
        assert "TF_CONFIG" not in own.environ
        assert own.environ["LAB_BASE_IMAGE"] == "mine"
        assert own.environ["LAB_STATE"].startswith(str(own.folder))
    assert not own.folder.exists()


def outcome(**changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "key": "help",
        "what": "`lab --help`",
        "unit": "s",
        "target": Target("at most", 0.2),
        "found": estimate([0.25, 0.26, 0.27, 0.24, 0.23, 0.22]),
        "how": "The whole process.",
    }
    return Outcome(**given | changes)


THROUGHPUT = outcome(key="throughput-local", what="throughput")
MACHINE = {
    "cpu": "A CPU",
    "cores": 2,
    "memory_gib": 16.0,
    "system": "A system",
    "kernel": "Linux 6",
    "python": "3.11.2",
    "tensorflow": "2.21.0",
    "load_before": 0.1,
    "git": {"commit": "a" * 40, "dirty": True},
}


def write(folder: Path, *outcomes: Outcome, age: int | None = 0, **changes: Any) -> str:
    facts = {**MACHINE, **changes}
    results.keep(outcomes, when="2026-11-21", machine=facts, took_s=12.0, folder=folder)
    return results.markdown(results.read(folder), defaultdict(lambda: age))


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, "0.245 s | 0.220 to 0.270 | 6 | **missed**"),
        ({"found": None, "why_not": "no engine answers"}, " |  |  | **not measured**"),
        ({"found": estimate([0.1])}, "0.100 s | too few | 1 | met narrowly"),
        # By the median alone, though the largest value exceeds it.
        (
            {"found": range_of([0.1, 0.15, 0.9]), "repeated": False},
            "0.150 s | none; all lie from 0.100 to 0.900 | 3 | met",
        ),
    ],
)
def test_a_row_of_the_page(changes: dict[str, Any], row: str, tmp_path: Path) -> None:
    page = write(tmp_path, outcome(**changes))
    assert f"| `lab --help` | ≤ 0.200 s | {row} |  |" in page.splitlines()
    assert f"Not measured: {changes.get('why_not')}." in page or "why_not" not in changes
    assert "A CPU, 2 cores" in page
    assert "aaaaaaaaaaaa with changes" in page


def test_one_measurement_replaces_its_own_figures_alone(tmp_path: Path) -> None:
    write(tmp_path, THROUGHPUT, outcome())
    page = write(tmp_path, outcome(found=estimate([0.1] * 6)), load_before=0.9)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert list(kept) == ["throughput-local", "help"]
    assert [each["verdict"] for each in kept.values()] == ["missed", "met"]
    assert kept["help"]["values"] == [0.1] * 6
    assert page.count("| CPU |") == 1
    assert "0.10 to 0.90" in page
    page = write(tmp_path, outcome(), cpu="Another CPU")
    assert "A CPU, 2 cores" in page
    assert "Another CPU, 2 cores" in page
    assert "| measured here | throughput |" in page


@pytest.mark.parametrize(
    ("load", "age", "mark"),
    [
        (1.0, 100, ""),
        (1.1, 100, "load 1.1"),
        (1.0, 101, "101 commits ago"),
        (5.0, 250, "load 5.0, 250 commits ago"),
        (0.0, None, "age unknown"),
    ],
)
def test_a_row_from_a_busy_machine_or_old_sources_is_marked(
    tmp_path: Path, load: float, age: int | None, mark: str
) -> None:
    page = write(tmp_path, outcome(), age=age, load_before=load)
    assert f"| 6 | **missed** | {mark} |\n" in page


def git(folder: Path, *arguments: str, when: str = "2026-11-21 12:00 UTC") -> str:
    dated = {"GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when, "PATH": os.environ["PATH"]}
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, env=dated, check=True, capture_output=True, text=True).stdout


def test_the_age_of_a_row_is_counted_in_commits(tmp_path: Path) -> None:
    assert machine.commits_since(tmp_path, "none", "2026-11-21") is None  # no repository
    git(tmp_path, "init", "--quiet")
    for day in (20, 21, 22):
        when = f"2026-11-{day} 12:00:00 +0000"
        git(tmp_path, "commit", "--allow-empty", "--message=x", when=when)
    first = git(tmp_path, "rev-list", "HEAD").split()[-1]
    assert machine.commits_since(tmp_path, first, "2026-11-20 12:00 UTC") == 2
    # Unknown commits are dated by the time of the measurement.
    assert machine.commits_since(tmp_path, "f" * 40, "2026-11-21 13:00 UTC") == 1


def test_the_page_is_made_of_the_figures_that_are_kept() -> None:
    page = (results.FOLDER / "RESULTS.md").read_text()
    # The marks are as of the commit at which the page was written: it names the ages itself.
    tables = re.findall(r"\| sources \| (\w+).*\n\| age \| (?:(\d+)|of)", page)
    ages = {commit: int(age) if age else None for commit, age in tables}
    kept = results.read()
    of_each = {commit: ages[commit[:12]] for commit in results.ages(kept)}
    assert page == results.markdown(results.with_unmeasured(kept, unmeasured()), of_each)


def test_the_machine_is_read_from_kernel_files() -> None:
    assert machine.cpu_model("processor\t: 0\nmodel name\t: A  CPU\nmodel name: B\n") == "A CPU"
    assert machine.memory_gib("MemFree: 1 kB\nMemTotal:   25165824 kB\n") == 24.0
    assert (machine.cpu_model(""), machine.memory_gib("")) == ("", None)


def test_a_record_that_the_collector_lost_is_found(tmp_path: Path) -> None:
    good = [Collected(8, 1.0, 1, 0, None)] * 9
    assert lost(good).verdict() == "met"
    assert lost([*good, Collected(8, 1.0, 1, 1, None)]).verdict() == "missed"
    made = volume.make(tmp_path / "volume", 5)
    run = RunDir(tmp_path / volume.RUN_ID)
    shutil.copytree(made.run(volume.RUN_ID), run.path)
    assert missing_lines(made, run) == 0
    lines = run.records("worker-3").read_text()
    run.records("worker-3").write_text(lines.replace('"seq": 4', '"seq": 5'))
    assert missing_lines(made, run) == 1
    run.records("worker-3").write_text("".join(lines.splitlines(keepends=True)[:2]))
    assert missing_lines(made, run) == 3


@pytest.mark.parametrize(
    ("config", "tasks", "gpus"),
    [
        (thousand_tasks(), NODES * PER_NODE, 875),
        (sharing(MANY), MAX_TASKS, MANY),
        (sharing(FEW), MAX_TASKS // 10, FEW),
    ],
    ids=["1000", "many", "few"],
)
def test_large_configs_have_their_tasks_and_gpus(
    config: dict[str, Any], tasks: int, gpus: int, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text(config))
    cluster = load_cluster(file)
    plan = place(cluster, take_inventory("index", cluster))
    assert len(plan.tasks) == tasks
    assert len({gpu for task in plan.tasks for gpu in task.gpus}) == gpus


def test_growth_is_measured_from_the_start() -> None:
    assert grown(start_s=2.0, few_s=3.0, large_s=12.0) == 10.0
    with pytest.raises(RuntimeError, match="stop other programs"):
        grown(start_s=3.0, few_s=3.0, large_s=12.0)


# Slurm.

JOB = """\
[2026-11-25T23:59:59.900] _slurm_rpc_submit_batch_job: JobId=3 InitPrio=4294901757 usec=473
[2026-11-26T00:00:00.125] sched: Allocate JobId=3 NodeList=n[1-3] #CPUs=12 Partition=lab
[2026-11-26T00:00:07.957] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=3 uid 0
"""
HET_JOB = """\
[2026-11-25T18:31:44.584] _slurm_rpc_submit_batch_het_job: JobId=3 usec=473
[2026-11-25T18:31:45.227] sched/backfill: _start_job: Started JobId=3+0(3) in lab on n1
[2026-11-25T18:31:46.584] sched/backfill: _start_job: Started JobId=3+1(4) in lab on n[2-3]
"""


def test_the_start_of_a_job_is_compared_without_its_queue() -> None:
    assert pending_s(JOB) == pytest.approx(0.225)
    assert pending_s(HET_JOB) == pytest.approx(2.0)
    for log in ("", JOB + HET_JOB, HET_JOB.splitlines()[0]):
        with pytest.raises(ValueError, match="the controller's log has"):
            pending_s(log)
    found = started([(7.0, 1.0, 3.0), (5.0, 0.5, 3.0), (9.0, 3.0, 4.0)], "")
    assert found.found is not None
    assert found.found.values == (2.0, 1.5, 1.5)
    assert found.details["of which pending"] == "1.00 s"
    assert started([], "no Slurm").verdict() == "not measured"


@pytest.mark.parametrize(
    ("commits", "now", "continued"),
    [("", "a", 0), ("aa", "a", 2), ("aa", "b", 0), ("a" * 50, "a", 0)],
)
def test_runs_of_the_same_commit_are_continued(commits: str, now: str, continued: int) -> None:
    runs = [{"run": run, "commit": commit} for run, commit in enumerate(commits)]
    kept = {slurm_records.KEY: {"raw": {"runs": runs}}} if runs else {}
    assert len(slurm_records.to_continue(kept, now)) == continued


@pytest.mark.parametrize(
    ("written", "received", "collected", "ends_agent", "counts"),
    [
        # Records that were collected, lost, collected twice, and not read by the agent.
        ("012", "0123", "0123", False, (4, 0, 0, 0)),
        ("012", "0123", "012", False, (3, 1, 0, 0)),
        ("0123", "012", "012", False, (3, 1, 0, 1)),
        ("0123", "012", "01", True, (2, 1, 0, 1)),
        ("012", "012", "0122", False, (4, 0, 1, 0)),
    ],
)
def test_a_record_that_only_its_program_or_the_volume_has_is_lost(
    *,
    tmp_path: Path,
    written: str,
    received: str,
    collected: str,
    ends_agent: bool,
    counts: tuple[int, ...],
) -> None:
    records = [step(0, 1.5, number) for number in range(5)]
    ledger, kept, tasks = (tmp_path / name for name in ("ledger", "volume", "runs/a/tasks"))
    for folder in (ledger, kept, tasks):
        folder.mkdir(parents=True)
    printed = "".join(format_record(records[int(each)]) + "\n" for each in written)
    (ledger / "worker-0").write_text(printed + "lab kind=st")  # the program was killed
    for file, numbers in ((kept / "1", received), (tasks / "worker-0.jsonl", collected)):
        file.write_text("".join(json.dumps(records[int(each)]) + "\n" for each in numbers))
    names = ("written", "collected", "lost", "twice", "unread")
    found = slurm_records.counted(ledger, kept, tmp_path / "runs", ends_agent=ends_agent)
    assert found == dict(zip(names, (len(written), *counts), strict=True))


def test_the_program_of_slurm_records_notes_what_it_has_written(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from lab.task.sdk.recorder import Recorder\n"
        "recorder = Recorder('worker', 0)\n"
        "recorder.write('start')\n"
        "recorder.write('step', loss=0.1)\n"
    )
    (tmp_path / "ledger").mkdir()
    own = tmp_path / "own.py"
    own.write_text(slurm_records.PROGRAM.format(ledger=tmp_path / "ledger", program=program))
    task = {"LAB_RUN_ID": "a", "LAB_TASK": "worker-0", "LAB_ATTEMPT": "0"}
    variables = {**os.environ, **task, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(own)]
    printed = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    (file,) = (tmp_path / "ledger").iterdir()
    assert file.read_text() == printed.stdout
    assert printed.stdout.count("\n") == 2


def test_one_record_that_is_lost_on_slurm_is_reported() -> None:
    faults = [slurm_records.fault_of(number) for number in range(slurm_records.RUNS)]
    assert [fault for fault in faults if fault] == list(slurm_records.FAULTS)
    row = {"collected": 7, "lost": 0, "twice": 0, "unread": 0, "left": [], "problem": ""}
    good = [{**row, "fault": name, "end": "failed"} for name in ("a", "a", "no fault")]
    found = slurm_records.lost(good, "")
    assert found.verdict() == "met"
    assert found.details["runs"] == "3 of 50, 2 of them with a fault"
    bad = {**row, "fault": "a", "end": "hangs", "lost": 1, "left": ["job 1"]}
    found = slurm_records.lost([*good, bad], "")
    assert found.verdict() == "missed"
    assert found.details["a"] == "2 failed, hangs"
    assert found.details["runs that left a job, a process or a directory"] == "1"
    assert slurm_records.lost([], "no Slurm").verdict() == "not measured"
