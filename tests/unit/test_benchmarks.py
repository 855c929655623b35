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
from benchmarks.configs import NODES, PER_NODE, SHARING, sharing, text, thousand_tasks
from benchmarks.outcome import Outcome, Target
from benchmarks.pairs import Estimate, estimate, in_turn, interleaved, range_of, ratio
from benchmarks.rendering import FEW, MANY, grown
from benchmarks.slurm import TASKS as SLURM_TASKS
from benchmarks.slurm import pending_s, started
from benchmarks.steps import UnfitError, all_stepped_at, steps_per_second
from benchmarks.trainings import (
    CLUSTER,
    CLUSTER_OF_3,
    CLUSTER_OF_8,
    ROOT,
    TASKS,
    by_hand_records,
    workplace,
)
from lab.config import load_cluster
from lab.config.model import MAX_TASKS
from lab.gpu import take_inventory
from lab.placement.place import place
from lab.records import Record, format_record
from lab.run.progress import read_progress
from lab.run.store import RunDir
from lab.task.protocol.statuses import read_status


def test_the_order_is_a_b_b_a() -> None:
    turns = "".join("A" if turn_of_a else "B" for _, turn_of_a in in_turn(4))
    assert turns == "ABBAABBA"
    assert [pair for pair, _ in in_turn(3)] == [0, 0, 1, 1, 2, 2]


def test_each_pair_holds_what_was_measured_in_its_turn() -> None:
    clock = iter(range(100))
    output: list[str] = []

    def measure(name: str) -> float:
        output.append(name)
        return float(next(clock))

    pairs = interleaved(lambda: measure("A"), lambda: measure("B"), 3)
    assert output == ["A", "B", "B", "A", "A", "B"]
    assert pairs == [(0.0, 1.0), (3.0, 2.0), (4.0, 5.0)]


def test_known_values_have_the_interval_of_the_tables() -> None:
    # For n = 10 the sign test's interval at 95% goes from the 2nd to the 9th value (97.9%), for
    # n = 20 from the 6th to the 15th (95.9%), for n = 6 over all of them (96.9%).
    shuffled = [7.0, 1.0, 9.0, 3.0, 5.0, 10.0, 2.0, 8.0, 4.0, 6.0]
    assert estimate(shuffled) == Estimate(5.5, 2.0, 9.0, tuple(shuffled))
    twenty = [float(value) for value in range(1, 21)]
    assert (estimate(twenty).low, estimate(twenty).high) == (6.0, 15.0)
    six = [3.0, 1.0, 2.0, 6.0, 5.0, 4.0]
    assert (estimate(six).low, estimate(six).high) == (1.0, 6.0)


@pytest.mark.parametrize("count", range(1, 6))
def test_too_few_values_have_no_interval(count: int) -> None:
    found = estimate([1.0] * count)
    assert (found.median, found.low, found.high) == (1.0, -math.inf, math.inf)


def test_no_value_is_an_error() -> None:
    with pytest.raises(statistics.StatisticsError):
        estimate([])


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


def test_a_bias_that_is_put_in_is_found_through_drift_and_noise() -> None:
    found = [one_experiment(seed, bias=0.9) for seed in range(400)]
    assert statistics.median(each.median for each in found) == pytest.approx(0.9, abs=0.003)
    assert sum(each.high < 1 for each in found) > 390
    assert sum(each.low <= 0.9 <= each.high for each in found) > 370


def test_no_bias_is_found_where_there_is_none() -> None:
    found = [one_experiment(seed, bias=1.0) for seed in range(400)]
    assert statistics.median(each.median for each in found) == pytest.approx(1.0, abs=0.003)
    assert sum(each.low <= 1 <= each.high for each in found) > 370


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Estimate(0.98, 0.97, 0.99, ()), "met"),
        (Estimate(0.98, 0.96, 0.99, ()), "met narrowly"),
        (Estimate(0.96, 0.95, 0.98, ()), "missed narrowly"),
        (Estimate(0.90, 0.89, 0.91, ()), "missed"),
        (Estimate(0.98, -math.inf, math.inf, ()), "met narrowly"),
        (Estimate(math.nan, math.nan, math.nan, ()), "missed"),
    ],
)
def test_verdicts(found: Estimate, verdict: str) -> None:
    assert Target("at least", 0.97).verdict(found) == verdict


def test_verdicts_of_a_limit_from_above() -> None:
    assert Target("at most", 0.2).verdict(Estimate(0.1, 0.09, 0.2, ())) == "met"
    assert Target("at most", 0.2).verdict(Estimate(0.3, 0.25, 0.4, ())) == "missed"


def step(task: int, time: float, global_step: int, kind: str = "step") -> Record:
    return {"kind": kind, "task_index": task, "time_unix": time, "global_step": global_step}


def test_the_rate_counts_only_while_all_workers_train() -> None:
    # Alone, worker 0 makes 1,000 steps in a second; together they make 300 a second.
    records = {
        "ps-0": [step(0, 0.0, 10**6)],
        "worker-0": [
            step(0, 9.0, 0),
            step(0, 10.0, 1000),
            step(0, 20.0, 4010, "epoch"),
            step(0, 30.0, 7000),
        ],
        "worker-1": [
            {"kind": "start", "time_unix": 1.0},
            step(1, 11.0, 1300),
            step(1, 21.0, 4300),
            step(1, 26.0, 5800),
            {"kind": "final", "time_unix": 40.0, "global_step": 9_000},
        ],
    }
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
        pythons = {name for name in own.environ if name.startswith("PYTHON")}
        assert pythons == {"PYTHONPATH"}
        assert "TF_CONFIG" not in own.environ
        assert own.environ["LAB_BASE_IMAGE"] == "mine"
        assert own.environ["LAB_STATE"].startswith(str(own.folder))
        assert own.folder.is_dir()
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


def write(folder: Path, *outcomes: Outcome, **changes: Any) -> str:
    facts = {**MACHINE, **changes}
    results.keep(outcomes, when="2026-11-21", machine=facts, took_s=12.0, folder=folder)
    return page(results.read(folder))


def page(kept: results.Rows, age: int | None = 0) -> str:
    return results.markdown(kept, defaultdict(lambda: age))


def test_missed_target_is_reported(tmp_path: Path) -> None:
    text = write(tmp_path, outcome())
    row = "| `lab --help` | ≤ 0.200 s | 0.245 s | 0.220 to 0.270 | 6 | **missed** |  |"
    assert row in text.splitlines()
    assert "A CPU, 2 cores" in text
    assert "aaaaaaaaaaaa with changes" in text


def test_unmeasured_value_is_reported(tmp_path: Path) -> None:
    text = write(tmp_path, outcome(found=None, why_not="no engine answers"))
    assert "| `lab --help` | ≤ 0.200 s |  |  |  | **not measured** |  |" in text.splitlines()
    assert "Not measured: no engine answers." in text


def test_values_that_repeat_nothing_have_no_interval(tmp_path: Path) -> None:
    text = write(tmp_path, outcome(found=range_of([0.1, 0.15, 0.9]), repeated=False))
    row = "| `lab --help` | ≤ 0.200 s | 0.150 s | none; all lie from 0.100 to 0.900 | 3 | met |  |"
    assert row in text.splitlines()  # by the median alone, though the largest value exceeds it


def test_one_measurement_replaces_its_own_figures_alone(tmp_path: Path) -> None:
    write(tmp_path, outcome(key="throughput-local", what="throughput"), outcome())
    text = write(tmp_path, outcome(found=estimate([0.1] * 6)), load_before=0.9)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert list(kept) == ["throughput-local", "help"]
    assert [each["verdict"] for each in kept.values()] == ["missed", "met"]
    assert kept["help"]["values"] == [0.1] * 6
    assert text.count("| CPU |") == 1
    assert "0.10 to 0.90" in text


def test_one_lost_record_is_reported() -> None:
    good = [Collected(8, 1.0, 1, 0, None)] * 9
    assert lost(good).verdict() == "met"
    assert lost([*good, Collected(8, 1.0, 1, 1, None)]).verdict() == "missed"


def test_a_file_that_differs_locally_is_found(tmp_path: Path) -> None:
    made = volume.make(tmp_path / "volume", 5)
    run = RunDir(tmp_path / volume.RUN_ID)
    shutil.copytree(made.run(volume.RUN_ID), run.path)
    assert missing_lines(made, run) == 0
    text = run.records("worker-3").read_text()
    run.records("worker-3").write_text(text.replace('"seq": 4', '"seq": 5'))
    assert missing_lines(made, run) == 1
    run.records("worker-3").write_text("".join(text.splitlines(keepends=True)[:2]))
    assert missing_lines(made, run) == 3


def test_two_machines_differ(tmp_path: Path) -> None:
    write(tmp_path, outcome(key="throughput-local", what="throughput"))
    text = write(tmp_path, outcome(), cpu="Another CPU")
    assert "A CPU, 2 cores" in text
    assert "Another CPU, 2 cores" in text
    assert "| measured here | throughput |" in text


def test_too_few_values_are_written_without_an_interval(tmp_path: Path) -> None:
    assert "| too few | 1 | met narrowly |" in write(tmp_path, outcome(found=estimate([0.1])))


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
    write(tmp_path, outcome(), load_before=load)
    (row,) = [
        line
        for line in page(results.read(tmp_path), age).splitlines()
        if "`lab --help` | ≤" in line
    ]
    assert row.endswith(f"| **missed** | {mark} |")


def test_a_row_without_a_figure_has_a_hint() -> None:
    rows = results.with_unmeasured({}, [outcome(found=None, why_not="run `x`")])
    text = page(rows)
    assert "| **not measured** |  |" in text
    assert "Not measured: run `x`." in text
    assert "load average" not in text.partition("## The machine")[2]
    assert results.with_unmeasured({}, unmeasured()).keys() >= {"ladder-sync"}


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
    assert machine.commits_since(tmp_path, "none", "2026-11-20 13:00 UTC") == 2


def test_the_page_is_made_of_the_figures_that_are_kept() -> None:
    text = (results.FOLDER / "RESULTS.md").read_text()
    # The marks are as of the commit at which the page was written: it names the ages itself.
    tables = re.findall(r"\| sources \| (\w+).*\n\| age \| (?:(\d+)|of)", text)
    ages = {commit: int(age) if age else None for commit, age in tables}
    kept = results.read()
    of_each = {commit: ages[commit[:12]] for commit in results.ages(kept)}
    assert text == results.markdown(results.with_unmeasured(kept, unmeasured()), of_each)


def test_every_measurement_is_in_the_table() -> None:
    assert len(set(results.ORDER)) == len(results.ORDER)


def test_the_machine_is_read_from_kernel_files() -> None:
    assert machine.cpu_model("processor\t: 0\nmodel name\t: A  CPU @ 2\nmodel name: B\n") == (
        "A CPU @ 2"
    )
    assert machine.cpu_model("") == ""
    assert machine.memory_gib("MemFree: 1 kB\nMemTotal:   25165824 kB\n") == 24.0
    assert machine.memory_gib("") is None


def test_benchmark_config_has_its_tasks() -> None:
    cluster = load_cluster(CLUSTER)
    plan = place(cluster, take_inventory("none", cluster))
    assert [task.name for task in plan.tasks] == list(TASKS)


def test_config_of_slurm_has_a_node_for_each_task() -> None:
    cluster = load_cluster(CLUSTER_OF_3)
    plan = place(cluster, take_inventory("none", cluster))
    assert [task.name for task in plan.tasks] == list(SLURM_TASKS)
    assert len({task.node for task in plan.tasks}) == len(SLURM_TASKS)


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


def test_the_time_in_the_queue_is_that_of_the_controllers_log() -> None:
    assert pending_s(JOB) == pytest.approx(0.225)
    assert pending_s(HET_JOB) == pytest.approx(2.0)
    for log in ("", JOB + HET_JOB, HET_JOB.splitlines()[0]):
        with pytest.raises(ValueError, match="the controller's log has"):
            pending_s(log)


def test_the_start_of_a_job_is_compared_without_its_queue() -> None:
    found = started([(7.0, 1.0, 3.0), (5.0, 0.5, 3.0), (9.0, 3.0, 4.0)], "")
    assert found.found is not None
    assert found.found.values == (2.0, 1.5, 1.5)
    assert found.details["of which pending"] == "1.00 s"
    assert found.verdict() == "met narrowly"
    assert started([], "no Slurm").verdict() == "not measured"


def test_two_of_five_runs_on_slurm_have_a_fault() -> None:
    faults = [slurm_records.fault_of(number) for number in range(slurm_records.RUNS)]
    assert [fault for fault in faults if fault] == list(slurm_records.FAULTS)
    assert len({fault.name for fault in slurm_records.FAULTS}) == 20


def test_runs_of_the_same_commit_are_continued() -> None:
    def kept(*commits: str) -> results.Rows:
        runs = [{"run": run, "commit": commit} for run, commit in enumerate(commits)]
        return {slurm_records.KEY: {"raw": {"runs": runs}}}

    assert slurm_records.to_continue({}, "a") == []
    assert [row["run"] for row in slurm_records.to_continue(kept("a", "a"), "a")] == [0, 1]
    assert slurm_records.to_continue(kept("a", "a"), "b") == []
    assert slurm_records.to_continue(kept(*["a"] * 50), "a") == []


def test_a_record_that_only_its_program_or_the_volume_has_is_lost(tmp_path: Path) -> None:
    records = [step(0, 1.5, number) for number in range(5)]
    ledger, kept, tasks = (tmp_path / name for name in ("ledger", "volume", "runs/a/tasks"))
    for folder in (ledger, kept, tasks):
        folder.mkdir(parents=True)

    def count(
        written: str, received: str, collected: str, *, ends_agent: bool = False
    ) -> dict[str, int]:
        text = "".join(format_record(records[int(each)]) + "\n" for each in written)
        (ledger / "worker-0").write_text(text + "lab kind=st")  # the program was killed
        for file, numbers in ((kept / "1", received), (tasks / "worker-0.jsonl", collected)):
            file.write_text("".join(json.dumps(records[int(each)]) + "\n" for each in numbers))
        return slurm_records.counted(ledger, kept, tmp_path / "runs", ends_agent=ends_agent)

    names = ("written", "collected", "lost", "twice", "unread")

    def counts(*numbers: int) -> dict[str, int]:
        return dict(zip(names, numbers, strict=True))

    assert count("012", "0123", "0123") == counts(3, 4, 0, 0, 0)
    assert count("012", "0123", "012") == counts(3, 3, 1, 0, 0)
    assert count("0123", "012", "012") == counts(4, 3, 1, 0, 1)
    assert count("0123", "012", "01", ends_agent=True) == counts(4, 2, 1, 0, 1)
    assert count("012", "012", "0122") == counts(3, 4, 0, 1, 0)


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
    row = {"collected": 7, "lost": 0, "twice": 0, "unread": 0, "left": [], "problem": ""}
    good = [{**row, "fault": name, "end": "failed"} for name in ("a", "a", "no fault")]
    found = slurm_records.lost(good, "")
    assert found.verdict() == "met"
    assert found.details["runs"] == "3 of 50, 2 of them with a fault"
    assert found.details["a"] == "2 failed"
    bad = {**row, "fault": "a", "end": "hangs", "lost": 1, "left": ["job 1"]}
    found = slurm_records.lost([*good, bad], "")
    assert found.verdict() == "missed"
    assert found.details["a"] == "2 failed, hangs"
    assert found.details["runs that left a job, a process or a directory"] == "1"
    assert slurm_records.lost([], "no Slurm").verdict() == "not measured"


def test_config_of_eight_tasks() -> None:
    cluster = load_cluster(CLUSTER_OF_8)
    plan = place(cluster, take_inventory("none", cluster))
    assert [task.name for task in plan.tasks] == ["ps-0", *(f"worker-{i}" for i in range(7))]


def test_large_config_has_1000_tasks(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text(thousand_tasks()))
    cluster = load_cluster(file)
    plan = place(cluster, take_inventory("index", cluster))
    assert len(plan.tasks) == NODES * PER_NODE == 1000
    gpus = [gpu for task in plan.tasks for gpu in task.gpus]
    assert len(gpus) == len(set(gpus)) == 875


def test_largest_config_has_the_maximum_of_tasks(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text(sharing(MANY)))
    cluster = load_cluster(file)
    plan = place(cluster, take_inventory("index", cluster))
    assert len(plan.tasks) == MANY * SHARING == MAX_TASKS == 10 * FEW * SHARING
    assert len({gpu for task in plan.tasks for gpu in task.gpus}) == MANY


def test_growth_is_measured_from_the_start() -> None:
    assert grown(start_s=2.0, few_s=3.0, large_s=12.0) == 10.0
    with pytest.raises(RuntimeError, match="stop other programs"):
        grown(start_s=3.0, few_s=3.0, large_s=12.0)


def test_the_large_volume_is_a_run_that_has_ended(tmp_path: Path) -> None:
    made = volume.make(tmp_path, 1003)
    for task in volume.request().tasks():
        progress = read_progress(made.records(volume.RUN_ID, task), task)
        assert (progress.records, progress.lost, progress.local_step) == (1003, 0, 1003)
        assert read_status(made.status(volume.RUN_ID, task), task).state.ended
