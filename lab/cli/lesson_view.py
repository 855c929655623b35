"""What `lab check` shows on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lab.lessons.check import Reply, StageResult
from lab.lessons.lesson import Lesson
from lab.tables import table_of
from lab.text import visible

_DONE = Text("✓", "green")
_WRONG = Text("✗", "bold red")
_OPEN = Text("·", "dim")


def lessons_table(
    lessons: Mapping[str, Lesson], results: Mapping[str, Sequence[StageResult]]
) -> Table:
    """Return a table with a row for each lesson: how many of its stages are passed."""
    found = table_of(("lesson", "title", ">minutes", ">stages passed"))
    for name, lesson in lessons.items():
        passed = sum(each.passed for each in results[name])
        done = Text(f"{passed} of {len(lesson.stages)}", "green" if passed else "")
        found.add_row(name, visible(lesson.title), str(lesson.minutes), done)
    return found


def lesson_page(name: str, lesson: Lesson, results: Sequence[StageResult]) -> Group:
    """Return the stages of a lesson: what is done, and what to do next."""
    title = Text.assemble((visible(lesson.title), "bold"), f"  {name}, {lesson.minutes} minutes")
    return Group(title, *(Group("", *_stage(name, each)) for each in results))


def _stage(lesson: str, result: StageResult) -> Iterator[Padding | Text]:
    wrong = any(reply.right is False for reply in result.replies)
    mark = _DONE if result.passed else _WRONG if wrong else _OPEN
    runs = "  ".join(map(visible, dict.fromkeys(result.runs.values())))
    yield Text.assemble(mark, " ", (result.stage, "bold"), "  ", (runs, "dim"))
    yield Padding(Text(visible(result.text)), (0, 0, 0, 2), expand=False)
    if result.hint:
        yield Padding(
            Text.assemble("→ ", (visible(result.hint), "yellow")), (0, 0, 0, 2), expand=False
        )
        return
    for reply in result.replies:
        yield Padding(_reply(lesson, reply), (0, 0, 0, 2), expand=False)


def _reply(lesson: str, reply: Reply) -> Text:
    mark = _OPEN if reply.given is None else _DONE if reply.right else _WRONG
    line = Text.assemble(mark, " ", visible(reply.text), "\n  ")
    if reply.given is None:
        return line.append(f"lab check {lesson} --answer {reply.question}=…", "dim")
    return line.append(f"{visible(reply.given)}: ").append(
        visible(reply.note), "green" if reply.right else "yellow"
    )
