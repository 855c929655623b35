"""The sheets of exercises: stages, questions and commands that exist, in the time of a class."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.teach.lessons.lesson import load_lesson
from tests.support.commands import ROOT

SHEETS = ROOT / "docs/tutorials/exercises"
_ROW = re.compile(r"^\| (\d+) \| (.*?) \|(?: `([\w-]+)`, `([\w-]+)`)?", re.MULTILINE)
_HEAD = re.compile(r"^## (\d+\. .*)\n\n(\d+) minutes\. (.*)\n", re.MULTILINE)


@pytest.mark.parametrize(("name", "most"), [("three-hours", 180), ("ninety-minutes", 90)])
def test_exercises_are_stages_of_lessons_and_fit_the_time(name: str, most: int) -> None:
    page = Path(SHEETS / f"{name}.md").read_text("utf-8")
    timetable, *texts = re.split(r"^(?=## \d)", page, flags=re.MULTILINE)
    rows = _ROW.findall(timetable)
    assert sum(int(minutes) for minutes, *_ in rows) <= most
    exercises = [row for row in rows if row[2]]
    assert len(exercises) == len(texts) >= 5
    for (minutes, link, lesson, stage_name), text in zip(exercises, texts, strict=True):
        head = _HEAD.match(text)
        assert head
        assert (f"[{head[1]}]" in link, head[2]) == (True, minutes)
        (stage,) = (each for each in load_lesson(lesson).stages if each.name == stage_name)
        assert head[3] == stage.text
        names = [question.name for question in stage.questions]
        typed = " ".join(f"--answer {each}=…" for each in names)
        block = re.search(r"```sh\n(.*?)\nlab check (.*?)\n```", text, re.DOTALL)
        assert block
        assert " ".join(block[1].replace("\\\n", " ").split()) == " ".join(stage.command.split())
        assert block[2] == f"{lesson} {typed}"
        asked = re.findall(r"^\| `([\w-]+)`: (.*?) \| _+ \| _+ \|$", text, re.MULTILINE)
        assert asked == [(each.name, each.text) for each in stage.questions]
