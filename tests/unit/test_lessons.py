"""The lessons: each begins with a command that is right, and says what must hold."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lab.config import load_cluster
from lab.sweep.grid import check_over, grid, parse_over, with_workers
from lab.task.protocol.experiments import EXPERIMENTS, Experiment
from tests.shown import commands, dead_links, examples, wrong_commands

ROOT = Path(__file__).parents[2]
LESSONS = ROOT / "docs" / "lessons"
ABOUT_ALL = {"choosing.md", "complaints.md", "then-and-now.md"}
SWEEP = re.compile(r"(lab sweep [^`\n]+)")
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


def test_the_page_on_complaints_shows_commands_and_links_that_work() -> None:
    text = (LESSONS / "complaints.md").read_text("utf-8")
    assert dead_links(text, LESSONS) == []
    assert len(commands(text)) == 10
    assert wrong_commands(text) == []
    programs = {path.name for path in (LESSONS / "complaints").glob("*.py")}
    assert programs == set(re.findall(r"complaints/(\w+\.py)\)", text))


PAGES = [*sorted(LESSONS.glob("*.md")), ROOT / "README.md"]
SWEEPS = [found for page in PAGES for found in SWEEP.findall(page.read_text())]


@pytest.mark.parametrize("line", [*SWEEPS, *examples("sweep")])
def test_a_sweep_that_is_shown_can_be_made(line: str) -> None:
    _, _, name, *words = shlex.split(line)
    over = parse_over(words[words.index("--over") + 1])
    check_over(over, EXPERIMENTS[name], ())
    given = words[words.index("--cluster") + 1] if "--cluster" in words else "cluster.yaml"
    cluster = load_cluster(ROOT / given)
    assert set(cluster.jobs) == set(EXPERIMENTS[name].jobs)
    for point in grid(over, 1):
        if point.workers is not None:
            assert len(with_workers(cluster, point.workers).jobs["worker"].on) == point.workers


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_what_must_be_found_is_reported_by_the_program(experiment: Experiment) -> None:
    text = (ROOT / "scripts" / experiment.program).read_text()
    for name in experiment.results:
        assert f'name="{name}"' in text
    assert not experiment.results or experiment.expected
