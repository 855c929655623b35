"""The ladder of the quick listings: its table, and the lesson that shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import ladder
from lab.task.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[2]
LESSON = (ROOT / "docs/lessons/speed.md").read_text()
KEPT = json.loads((ROOT / "benchmarks/results.json").read_text())


def test_gains_are_medians_of_the_rounds_own_ratios() -> None:
    # In the second round everything is half as quick: that is the machine's, no rung's.
    rounds = [[100.0, 200.0, 600.0], [50.0, 100.0, 300.0]] * 5
    lines = ladder.table({"raw": {"rungs": ["a", "b", "c"], "rounds": rounds}}).splitlines()
    assert lines[2:] == [
        "| a | 75 |  |  |",
        "| b | 150 | 2.00 (2.00 to 2.00) | 2.00 (2.00 to 2.00) |",
        "| c | 450 | 3.00 (3.00 to 3.00) | 6.00 (6.00 to 6.00) |",
    ]


@pytest.mark.parametrize("way", ladder.LADDERS)
def test_the_lesson_shows_what_was_measured(way: str) -> None:
    (shown,) = re.findall(rf"<!-- ladder-{way} -->\n\n(.*?)\n<!-- end -->", LESSON, re.DOTALL)
    assert shown == ladder.table(KEPT.get(f"ladder-{way}"))


def test_every_rung_of_a_listing_can_be_stood_on() -> None:
    by_program = {each.program: each for each in EXPERIMENTS.values() if each.lesson == "speed.md"}
    stood_on = set()
    for rungs, _ in ladder.LADDERS.values():
        for rung in rungs:
            if experiment := by_program.get(str(rung.program)):
                stood_on.add(experiment.name)
                for flag in rung.flags:
                    name, _, value = flag.removeprefix("--").partition("=")
                    experiment.flags[name].parse(value)
    assert stood_on == {"async-unrolled", "async-fast", "sync-fast"}
