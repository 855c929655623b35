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
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lab.base.errors import InputError, LabError
from lab.base.options import Argument, RepeatedFlag, Switch, verb
from lab.base.tables import table_of
from lab.base.text import suggestion, visible
from lab.runner.store.directory import runs_path
from lab.teach.lessons.answers import add_answers, note_passed
from lab.teach.lessons.check import Evidence, Reply, StageResult, check_lesson
from lab.teach.lessons.lesson import Lesson, load_lesson, load_lessons
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Tabular, prints

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
        title = Text.assemble(visible(lesson.title), (_origin(lesson, "\n"), "dim"))
        found.add_row(name, title, str(lesson.minutes), done)
    return found


def lesson_page(name: str, lesson: Lesson, results: Sequence[StageResult]) -> Group:
    """Return the stages of a lesson: what is done, and what to do next."""
    facts = f"  {name}, {lesson.minutes} minutes{_origin(lesson, ', ')}"
    title = Text.assemble((visible(lesson.title), "bold"), facts)
    return Group(title, *(Group("", *_stage(name, each)) for each in results))


def _origin(lesson: Lesson, begin: str) -> str:
    return f"{begin}from {visible(lesson.origin)}" if lesson.origin else ""


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


@dataclass(frozen=True, slots=True, repr=False)
class Checked(Tabular):
    """The stages of a lesson, or of all lessons.

    Attributes:
        name: The lesson; None: all of them.
        lessons: The lessons, by name.
        results: The results of their stages.
        key: Whether they have the right answers, instead of checking yours.
    """

    name: str | None
    lessons: Mapping[str, Lesson]
    results: Mapping[str, Sequence[StageResult]]
    key: bool = False

    @property
    def left(self) -> list[str]:
        """The stages that are not passed, of a lesson that is named."""
        found = self.results[self.name] if self.name is not None else ()
        return [each.stage for each in found if not each.passed]

    def check(self) -> None:
        """Check that no stage is left.

        Raises:
            LabError: A stage of the named lesson is not passed.
        """
        if self.name is not None and self.left and not self.key:
            raise LabError(
                f"{self.name}: {len(self.left)} of {len(self.results[self.name])} stages are not"
                " passed",
                f"next: {self.left[0]}",
            )

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        found = {name: list(map(_as_json, each)) for name, each in self.results.items()}
        if self.name is None:
            return found
        return {"lesson": self.name, "stages": found[self.name]}

    def _entries(self) -> list[dict[str, Any]]:
        """Return the stages, each with its lesson."""
        return [
            {"lesson": name} | _as_json(each)
            for name, stages in self.results.items()
            for each in stages
        ]

    def _shown(self) -> Sequence[RenderableType]:
        if self.name is None:
            return [lessons_table(self.lessons, self.results)]
        return [lesson_page(self.name, self.lessons[self.name], self.results[self.name])]


@verb
def check(
    lesson: Annotated[str | None, Argument("the lesson; without it, all are listed")] = None,
    *,
    answer: Annotated[
        Mapping[str, object] | Sequence[str],
        RepeatedFlag("answer a question of the lesson", shows="QUESTION=VALUE"),
    ] = (),
    key: Annotated[bool, Switch("print the right answers instead of checking yours")] = False,
    runs_dir: RunsDir = None,
) -> Checked:
    """Check the stages of a lesson by your runs and answers.

    Raises:
        InputError: There is no such lesson or question.
    """
    given = locals()
    store = runs_path(runs_dir)
    if lesson is None:
        if answer or key:
            raise InputError("--answer and --key need a lesson", "see `lab check`")
        lessons = load_lessons()
    else:
        lessons = {lesson: load_lesson(lesson)}
        if answer:
            add_answers(store, lesson, _answers(lessons[lesson], given["answer"]))
    evidence = Evidence.read(store)
    results = {name: check_lesson(name, each, evidence, key=key) for name, each in lessons.items()}
    if lesson is not None and not key:
        note_passed(store, lesson, [each.passed for each in results[lesson]])
    return Checked(lesson, lessons, results, key)


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
            raise InputError(f"--answer {each!r}", "write QUESTION=VALUE, as in updates=8250")
        if text.strip() == "…":
            raise InputError(f"--answer {each} has no answer", "write it in place of `…`")
        if name not in names:
            hint = suggestion(name, names)
            raise InputError(
                f"no question {name!r} in this lesson", f"{hint}it has {', '.join(names)}"
            )
        found[name] = text.strip()
    return found


def _as_json(result: StageResult) -> dict[str, object]:
    return {**asdict(result), "passed": result.passed}


command = prints(check)
