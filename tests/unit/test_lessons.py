"""The lessons: each begins with a command that is right, and says what must hold."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lab.cluster import load_cluster
from lab.task.experiments import EXPERIMENTS, Experiment

ROOT = Path(__file__).parents[2]
LESSONS = ROOT / "docs" / "lessons"
ABOUT_ALL = {"choosing.md"}
COMMAND = re.compile(r"^lab run (.+)$", re.MULTILINE)

TAUGHT = [each for each in EXPERIMENTS.values() if each.lesson]


def test_every_page_is_an_experiments() -> None:
    pages = {path.name for path in LESSONS.glob("*.md")}
    assert pages == {each.lesson for each in TAUGHT} | ABOUT_ALL


@pytest.mark.parametrize("experiment", TAUGHT, ids=lambda each: each.name)
def test_a_lesson_begins_with_a_command_that_fits(experiment: Experiment) -> None:
    text = (LESSONS / experiment.lesson).read_text()
    commands = [shlex.split(found) for found in COMMAND.findall(text)]
    (words,) = [words for words in commands if words[0] == experiment.name]
    name = words[words.index("--cluster") + 1]
    assert name == (experiment.cluster or name)
    cluster = load_cluster(ROOT / name)
    assert set(cluster.jobs) == set(experiment.jobs)
    flags = {word.removeprefix("--") for word in words if word.startswith("--")}
    assert flags - {"cluster"} <= set(experiment.flags)
    assert "\n**What must hold.**" in text
    assert "\n## What to try\n" in text


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_what_must_be_found_is_reported_by_the_program(experiment: Experiment) -> None:
    text = (ROOT / "scripts" / experiment.program).read_text()
    for name in experiment.results:
        assert f'name="{name}"' in text
    assert not experiment.results or experiment.expected
