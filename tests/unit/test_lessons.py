"""The lessons: each begins with a valid command, and names its expected results."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lab.config import load_cluster
from lab.sweep.grid import check_over, grid, parse_over, with_workers
from lab.task.protocol.experiments import EXPERIMENTS, Experiment
from tests.support.shown import commands, dead_links, examples, wrong_commands

ROOT = Path(__file__).parents[2]
LESSONS = ROOT / "docs" / "lessons"
ABOUT_ALL = {"choosing.md", "complaints.md", "then-and-now.md"}
SWEEP = re.compile(r"(lab sweep [^`\n]+)")
COMMAND = re.compile(r"^lab run (.+)$", re.MULTILINE)

TAUGHT = [each for each in EXPERIMENTS.values() if each.lesson]


def test_every_page_has_an_experiment() -> None:
    pages = {path.name for path in LESSONS.glob("*.md")}
    assert pages == {each.lesson for each in TAUGHT} | ABOUT_ALL


@pytest.mark.parametrize("experiment", TAUGHT, ids=lambda each: each.name)
def test_a_lesson_begins_with_a_command_that_fits(experiment: Experiment) -> None:
    text = (LESSONS / experiment.lesson).read_text()
    commands = [shlex.split(found) for found in COMMAND.findall(text)]
    (arguments,) = [arguments for arguments in commands if arguments[0] == experiment.name]
    name = arguments[arguments.index("--cluster") + 1]
    assert name == (experiment.cluster or name)
    cluster = load_cluster(ROOT / name)
    assert set(cluster.jobs) == set(experiment.jobs)
    flags = {word.removeprefix("--") for word in arguments if word.startswith("--")}
    assert flags - {"cluster"} <= set(experiment.flags)
    assert "\n**What must hold.**" in text
    assert "\n## What to try\n" in text


def test_commands_and_links_of_the_error_page_work() -> None:
    text = (LESSONS / "complaints.md").read_text("utf-8")
    assert dead_links(text, LESSONS) == []
    assert len(commands(text)) == 10
    assert wrong_commands(text) == []
    programs = {path.name for path in (LESSONS / "complaints").glob("*.py")}
    assert programs == set(re.findall(r"complaints/(\w+\.py)\)", text))


PAGES = [*sorted(LESSONS.glob("*.md")), ROOT / "README.md"]
SWEEPS = [found for page in PAGES for found in SWEEP.findall(page.read_text())]


@pytest.mark.parametrize("line", [*SWEEPS, *examples("sweep")])
def test_shown_sweeps_are_possible(line: str) -> None:
    _, _, name, *arguments = shlex.split(line)
    over = parse_over(arguments[arguments.index("--over") + 1])
    check_over(over, EXPERIMENTS[name], ())
    given = (
        arguments[arguments.index("--cluster") + 1] if "--cluster" in arguments else "cluster.yaml"
    )
    cluster = load_cluster(ROOT / given)
    assert set(cluster.jobs) == set(EXPERIMENTS[name].jobs)
    for point in grid(over, 1):
        if point.workers is not None:
            assert len(with_workers(cluster, point.workers).jobs["worker"].on) == point.workers


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_expected_results_are_reported_by_the_program(experiment: Experiment) -> None:
    text = (ROOT / "scripts" / experiment.program).read_text()
    for name in experiment.results:
        assert f'name="{name}"' in text
    assert not experiment.results or experiment.expected
