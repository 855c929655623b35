"""`lab check [LESSON]`.

The runs in the run store are checked, not what you say about them. Answers are kept in
`answers.jsonl` in the run store. The exit code is 1 while a stage is not passed.

Examples:
    # the lessons, and how far you are
    lab check
    # the stages of a lesson: what is done, and what is next
    lab check async
    # answer a question of it
    lab check async --answer updates=8250
    # for a teacher: the right answers, computed from your runs, with their tolerance
    lab check async --key
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lab.base.options import Argument, RepeatedFlag, Switch
from lab.console import print_json
from lab.errors import InputError, LabError
from lab.lessons.answers import add_answers, note_passed
from lab.lessons.check import Evidence, Reply, StageResult, check_lesson
from lab.lessons.lesson import Lesson, lesson_names, load_lesson
from lab.store.directory import runs_path
from lab.tables import show, table_of
from lab.text import short, suggestion, visible
from lab.verbs.common_options import AsJson, RunsDir

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


def command(
    *,
    lesson: Annotated[str | None, Argument("the lesson; without it, all are listed")] = None,
    answer: Annotated[
        tuple[str, ...], RepeatedFlag("answer a question of the lesson", shows="QUESTION=VALUE")
    ] = (),
    key: Annotated[bool, Switch("print the right answers instead of checking yours")] = False,
    json: AsJson = False,
    runs_dir: RunsDir = None,
) -> None:
    """Check the stages of a lesson by your runs and answers.

    Raises:
        InputError: There is no such lesson or question.
        LabError: A stage is not passed.
    """
    store = runs_path(runs_dir)
    if lesson is None:
        if answer or key:
            raise InputError("--answer and --key need a lesson", "see `lab check`")
        _list(store, json=json)
        return
    wanted = load_lesson(lesson)
    if answer:
        add_answers(store, lesson, _answers(wanted, answer))
    results = check_lesson(lesson, wanted, Evidence.read(store), key=key)
    if not key:
        note_passed(store, lesson, [each.passed for each in results])
    if json:
        print_json({"lesson": lesson, "stages": [_as_json(each) for each in results]})
    else:
        show(lesson_page(lesson, wanted, results))
    left = [each.stage for each in results if not each.passed]
    if left and not key:
        raise LabError(
            f"{lesson}: {len(left)} of {len(results)} stages are not passed", f"next: {left[0]}"
        )


def _list(store: Path, *, json: bool) -> None:
    lessons = {name: load_lesson(name) for name in lesson_names()}
    evidence = Evidence.read(store)
    results = {name: check_lesson(name, each, evidence) for name, each in lessons.items()}
    if json:
        print_json({name: [_as_json(each) for each in found] for name, found in results.items()})
    else:
        show(lessons_table(lessons, results))


def _answers(lesson: Lesson, given: tuple[str, ...]) -> dict[str, str]:
    """Return the answers by question.

    Raises:
        InputError: One of them is no answer to a question of the lesson.
    """
    names = [question.name for stage in lesson.stages for question in stage.questions]
    found = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not text.strip():
            raise InputError(
                f"--answer {short(each)!r}", "write QUESTION=VALUE, as in updates=8250"
            )
        if text.strip() == "…":
            raise InputError(f"--answer {short(each)} has no answer", "write it in place of `…`")
        if name not in names:
            hint = suggestion(name, names)
            raise InputError(
                f"no question {short(name)!r} in this lesson", f"{hint}it has {', '.join(names)}"
            )
        found[name] = text.strip()
    return found


def _as_json(result: StageResult) -> dict[str, object]:
    return {**asdict(result), "passed": result.passed}
