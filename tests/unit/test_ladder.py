"""The ladder of the quick listings: its table, and the lesson that shows it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from benchmarks import ladder
from benchmarks.measure import Setting
from benchmarks.trainings import Workplace
from lab.task.protocol.experiments import EXPERIMENTS

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


def test_the_lesson_shows_what_was_measured(tmp_path: Path) -> None:
    copy = tmp_path / "speed.md"
    copy.write_text(LESSON)
    ladder.keep_in_lesson(KEPT, copy)
    assert copy.read_text() == LESSON


def test_the_program_in_the_books_form_accepts_its_arguments() -> None:
    program, *arguments = shlex.split(ladder.LISTING)
    text = (ROOT / program).read_text()
    assert arguments[0].startswith("--")
    assert f'("{arguments[0].removeprefix("--")}", ' in text


def test_every_loop_has_its_ratio() -> None:
    assert ladder.loops_table({}).count("not measured yet") == 3
    lean = {"raw": {"rungs": ["lean", "fast"], "rounds": [[100.0, 350.0], [50.0, 200.0]] * 5}}
    lines = ladder.loops_table({"ladder-async-lean": lean}).splitlines()
    assert lines[2].endswith("under `lab run --listing` | not measured yet |  |")
    assert lines[4] == "| the leanest loop | 75 | 3.75 (3.50 to 4.00) |"


def test_a_ratio_is_the_last_rung_over_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {ladder.LISTED: 100.0, ladder.LEANEST: 200.0, ladder.ASYNC[0]: 150.0}
    monkeypatch.setattr(ladder, "_rate", lambda rung, _: rates.get(rung, 600.0))
    setting = Setting(Workplace(ROOT, {}), 6, True, ())
    found = {each.key: each.found for each in ladder.measure(setting)}
    ratios = {key: each.median for key, each in found.items() if each}
    assert ratios == {
        "ladder-async-listing": 6.0,
        "ladder-async": 4.0,
        "ladder-async-lean": 3.0,
        "ladder-sync": 1.0,
    }
    assert [each.verdict() for each in ladder.unmeasured()] == ["not measured"] * 4


def test_every_rung_of_a_listing_runs() -> None:
    by_program = {each.program: each for each in EXPERIMENTS.values() if each.lesson == "speed.md"}
    stood_on = set()
    for rungs in ladder.LADDERS.values():
        for rung in rungs:
            if experiment := by_program.get(str(rung.program)):
                stood_on.add(experiment.name)
                for flag in rung.flags:
                    name, _, value = flag.removeprefix("--").partition("=")
                    experiment.flags[name].parse(value)
    assert stood_on == {"async-unrolled", "async-fast", "sync-fast"}
