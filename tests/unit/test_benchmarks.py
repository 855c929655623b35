"""The statistics behind RESULTS.md, its measure and its texts; nothing is timed here."""

from __future__ import annotations

import math
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmarks import class_load, ladder, results
from benchmarks.__main__ import PREDICTIONS
from benchmarks.marks import printed, put
from benchmarks.pairs import Estimate, estimate, interleaved, range_of
from benchmarks.results import Outcome, Target
from benchmarks.trainings import (
    ROOT,
    common_time,
    steps_per_second,
)
from lab.records import Record
from lab.task.protocol.experiments import EXPERIMENTS


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
    assert common_time(records) == (11.0, 26.0)


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
    results.keep(outcomes, when="2026-11-21 10:00 UTC", machine=facts, took_s=12.0, folder=folder)
    return results.markdown(results.read(folder))


@pytest.mark.parametrize(
    ("changes", "load", "row"),
    [
        ({}, 1.1, "0.245 s | 0.220 to 0.270 | 6 | **missed** | 2026-11-21 | 1.1 |"),
        ({"found": estimate([0.1])}, 0.1, "0.100 s | too few | 1 | met narrowly | 2026-11-21 |  |"),
        # By the median alone, though the largest value exceeds it.
        (
            {"found": range_of([0.1, 0.15, 0.9]), "repeated": False},
            0.1,
            "0.150 s | none; all are 0.100 to 0.900 | 3 | met | 2026-11-21 |  |",
        ),
    ],
    ids=["busy", "too few", "not repeated"],
)
def test_a_row_of_the_page(changes: dict[str, Any], load: float, row: str, tmp_path: Path) -> None:
    page = write(tmp_path, outcome(**changes), load_before=load)
    assert f"| `lab --help` | ≤ 0.200 s | {row}" in page.splitlines()
    assert "A CPU, 2 cores" in page
    assert "aaaaaaaaaaaa with changes" in page


def test_one_measurement_replaces_its_own_figures_alone(tmp_path: Path) -> None:
    write(tmp_path, outcome(key="throughput-local", what="throughput"), outcome())
    write(tmp_path, outcome(found=estimate([0.1] * 6)), cpu="Another CPU")
    page = write(tmp_path, outcome(found=None, why_not="no engine answers"))
    kept = results.read(tmp_path)
    assert [each["verdict"] for each in kept.values()] == ["missed", "met"]
    assert kept["help"]["values"] == [0.1] * 6
    assert re.search(r"^\| A CPU, .* \| throughput \|$", page, re.MULTILINE)
    assert re.search(r"^\| Another CPU, .* \| `lab --help` \|$", page, re.MULTILINE)


def test_the_pages_show_the_figures_that_are_kept() -> None:
    kept = results.read()
    assert (results.FOLDER / "RESULTS.md").read_text() == results.markdown(kept)
    for page, marks in (
        ("docs/lessons/speed.md", ladder.tables(kept)),
        ("docs/evidence/seats.md", class_load.tables(kept)),
    ):
        text = (ROOT / page).read_text()
        for mark, table in marks.items():
            assert put(text, mark, table) == text


def test_the_pages_predictions_are_those_of_the_shipped_machine() -> None:
    text = (ROOT / "docs/outgrow.md").read_text()
    first = dict([next(iter(PREDICTIONS.items()))])
    (shown,) = re.findall(r"\$ lab simulate .*?\n\n", printed(first) + "\n\n", re.DOTALL)
    assert shown.removesuffix("```\n\n") in text
    assert all(command in text for command in PREDICTIONS.values())


# The ladder of the fast programs.


def test_gains_are_medians_of_the_rounds_own_ratios() -> None:
    # In the second round everything is half as fast: because of the machine, not of a rung.
    rounds = [[100.0, 200.0, 600.0], [50.0, 100.0, 300.0]] * 5
    lines = ladder.ladder_table({"rungs": ["a", "b", "c"], "rounds": rounds}).splitlines()
    assert lines[2:] == [
        "| a | 75 |  |  |",
        "| b | 150 | 2.00 (2.00 to 2.00) | 2.00 (2.00 to 2.00) |",
        "| c | 450 | 3.00 (3.00 to 3.00) | 6.00 (6.00 to 6.00) |",
    ]


@pytest.mark.parametrize(
    ("key", "ratio_of_rates"), [("ladder-async-listing", 6.0), ("ladder-async", 4.0)]
)
def test_a_ratio_is_the_last_rung_over_the_first(key: str, ratio_of_rates: float) -> None:
    rates = {ladder.LISTED: [100.0] * 6, ladder.ASYNC[0]: [150.0] * 6}
    found = ladder.outcome(key, {rung: rates.get(rung, [600.0] * 6) for rung in ladder.RATIOS[key]})
    assert found.found is not None
    assert found.found.median == ratio_of_rates


def test_the_rungs_run_with_their_flags() -> None:
    by_program = {each.program: each for each in EXPERIMENTS.values() if each.lesson == "speed.md"}
    found = set()
    for rung in (each for rungs in ladder.LADDERS.values() for each in rungs):
        if experiment := by_program.get(str(rung.program)):
            found.add(experiment.name)
            for flag in rung.flags:
                name, _, value = flag.removeprefix("--").partition("=")
                experiment.flags[name].parse(value)
    assert found == {"async-unrolled", "async-fast", "sync-fast"}
    program, flag, _ = shlex.split(ladder.LISTING)
    assert f'("{flag.removeprefix("--")}", ' in (ROOT / program).read_text()
