"""`lab check [LESSON]`.

Your answers are compared with the runs in the run store. If a stage asks you to write a program,
its tests run, for at most a minute. Answers are saved in `answers.jsonl` in the run store. The exit
code is 1 if an answer is wrong or a test fails.

Examples:
    # list the lessons and your progress
    lab check
    # the stages of a lesson: what's done and what's next
    lab check async
    # predict a result before the run
    lab check async --predict updates=2750
    # answer one of its questions
    lab check async --answer updates=8250
    # for teachers: the correct answers, computed from your runs, with their tolerance
    lab check async --key
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lab.base.errors import InputError, LabError
from lab.base.options import Argument, RepeatedFlag, Switch, verb
from lab.base.tables import table_of
from lab.base.text import suggestion, visible
from lab.checks.code import run_tests
from lab.cluster.project import default_root
from lab.runner.store.directory import runs_path
from lab.teach.lessons.answers import add_answers, note_passed, predicted, tests_of
from lab.teach.lessons.check import Evidence, Reply, StageResult, check_lesson
from lab.teach.lessons.lesson import Lesson, load_lesson, load_lessons
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Tabular, prints

_DONE = Text("✓", "green")
_WRONG = Text("✗", "bold red")
_OPEN = Text("·", "dim")

ORDER: Final = (
    *("hour", "tour", "hello", "async", "sync", "staleness", "stragglers", "how-many"),
    *("linear", "placement", "model-parallel", "in-graph", "towers", "all-reduce"),
    *("coordinator", "evaluator", "estimator", "horovod", "ddp", "fsdp", "local-sgd"),
    *("torch-async", "jax-dp", "three-frameworks", "speed", "reproduce"),
)
"""The order in which to learn; lessons from outside follow by name."""


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


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


def lesson_page(
    name: str, lesson: Lesson, results: Sequence[StageResult], shown: Collection[str] = ()
) -> Group:
    """Return the stages of a lesson: what is passed, what is wrong, and last what to do next.

    Args:
        name: The name of the lesson.
        lesson: The lesson.
        results: The results of its stages.
        shown: The questions whose stages are shown in full, also if they are passed.
    """
    facts = f"  {name}, {lesson.minutes} minutes{_origin(lesson, ', ')}"
    lines = [Text.assemble((visible(lesson.title), "bold"), facts)]
    left = [each for each in results if not each.passed]
    full = [each for each in results if _wrong(each) or _questions(each) & {*shown}]
    if left and not any(map(_wrong, full)):
        full += [each for each in left[:1] if each not in full]
    for mark, before, stages in (
        (_DONE, " ", [each for each in results if each not in left and each not in full]),
        (_OPEN, " later: ", [each for each in left if each not in full]),
    ):
        if stages:
            lines.append(Text.assemble(mark, before, ", ".join(each.stage for each in stages)))
    blocks = [Group("", *_stage(name, each)) for each in full]
    end = () if left else ("", Text("all stages are passed", "green"))
    return Group(*lines, *blocks, *end)


def _questions(result: StageResult) -> set[str]:
    return {reply.question for reply in result.replies}


def _wrong(result: StageResult) -> list[str]:
    """Return the questions of a stage whose answers are wrong."""
    return [reply.question for reply in result.replies if reply.right is False]


def _origin(lesson: Lesson, begin: str) -> str:
    return f"{begin}from {visible(lesson.origin)}" if lesson.origin else ""


def _indented(columns: int, *parts: str | Text | tuple[str, str]) -> Padding:
    return Padding(Text.assemble(*parts), (0, 0, 0, columns), expand=False)


def _stage(lesson: str, result: StageResult) -> Iterator[Padding]:
    mark = _DONE if result.passed else _WRONG if _wrong(result) else _OPEN
    runs = "  ".join(map(visible, dict.fromkeys(result.runs.values())))
    yield _indented(0, mark, " ", (result.stage, "bold"), "  ", (runs, "dim"))
    yield _indented(2, visible(result.text))
    if result.hint:
        yield _indented(2, "→ ", (visible(result.hint), "yellow"))
        if result.command not in result.hint:
            yield _indented(4, (f"the command of this stage: {visible(result.command)}", "dim"))
    for reply in result.replies:
        yield from _reply(lesson, reply, "predict" if result.hint else "answer")


def _reply(lesson: str, reply: Reply, flag: str) -> Iterator[Padding]:
    """Yield a question, and the answer or the flag of `lab check` that gives one."""
    mark = _OPEN if reply.given is None else _DONE if reply.right else _WRONG
    yield _indented(2, mark, " ", visible(reply.text))
    if reply.predicted is not None:
        yield _indented(4, (f"you predicted {visible(reply.predicted)}", "cyan"))
    if reply.given is None and not (flag == "predict" and reply.predicted):
        yield _indented(4, (f"lab check {lesson} --{flag} {reply.question}=…", "dim"))
    elif reply.given is not None:
        note = visible(reply.note), "green" if reply.right else "yellow"
        yield _indented(4, f"{visible(reply.given)}: ", note)


@dataclass(frozen=True, slots=True, repr=False)
class Checked(Tabular):
    """The stages of a lesson, or of all lessons.

    Attributes:
        name: The lesson; None: all of them.
        lessons: The lessons, by name.
        results: The results of their stages.
        key: Whether they have the right answers, instead of checking yours.
        answered: The questions that were answered now.
    """

    name: str | None
    lessons: Mapping[str, Lesson]
    results: Mapping[str, Sequence[StageResult]]
    key: bool = False
    answered: Collection[str] = ()

    def check(self) -> None:
        """Check that no answer is wrong.

        Raises:
            LabError: An answer to a question of the named lesson is, or a test fails.
        """
        if self.name is None or self.key:
            return
        if wrong := [name for each in self.results[self.name] for name in _wrong(each)]:
            raise LabError(f"{self.name}: not right: {', '.join(wrong)}", "see the hints above")

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
        lesson, results = self.lessons[self.name], self.results[self.name]
        every = {name for each in results for name in _questions(each)}
        return [lesson_page(self.name, lesson, results, every if self.key else self.answered)]


@verb
def check(
    lesson: Annotated[str | None, Argument("the lesson (default: list all lessons)")] = None,
    *,
    answer: Annotated[
        Mapping[str, object] | Sequence[str],
        RepeatedFlag("answer a question of the lesson", shows="QUESTION=VALUE"),
    ] = (),
    predict: Annotated[
        Mapping[str, object] | Sequence[str],
        RepeatedFlag("predict the answer before the run", shows="QUESTION=VALUE"),
    ] = (),
    key: Annotated[bool, Switch("print the correct answers instead of checking yours")] = False,
    runs_dir: RunsDir = None,
) -> Checked:
    """Check your progress in a lesson from your runs and answers.

    Raises:
        InputError: There is no such lesson or question.
    """
    given = locals()
    typed: dict[str, str] = {}
    store = runs_path(runs_dir)
    if lesson is None:
        if answer or predict or key:
            raise InputError("--answer, --predict and --key need a lesson", "see `lab check`")
        found = load_lessons()
        lessons = {name: found[name] for name in sorted(found, key=_place)}
    else:
        lessons = {lesson: load_lesson(lesson)}
        for flag in ("answer", "predict"):
            if given[flag]:
                new = _typed(lessons[lesson], flag, given[flag])
                before = check_lesson(lesson, lessons[lesson], Evidence.read(store))
                _check_order(before, flag, new)
                kept = predicted if flag == "predict" else str
                add_answers(store, lesson, {kept(name): text for name, text in new.items()})
                typed |= new
        stages = [] if key else [each for each in lessons[lesson].stages if each.code]
        said = {tests_of(each.name): run_tests(each.code, default_root()) for each in stages}
        if said:
            add_answers(store, lesson, said)
    evidence = Evidence.read(store)
    results = {name: check_lesson(name, each, evidence, key=key) for name, each in lessons.items()}
    if lesson is not None and not key:
        note_passed(store, lesson, [each.passed for each in results[lesson]])
    return Checked(lesson, lessons, results, key, typed.keys())


def _typed(lesson: Lesson, flag: str, given: tuple[str, ...]) -> dict[str, str]:
    """Return the answers or predictions by question.

    Raises:
        InputError: One of them is no answer to a question of the lesson.
    """
    names = [question.name for stage in lesson.stages for question in stage.questions]
    found = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not text.strip():
            raise InputError(f"--{flag} {each!r}", "write QUESTION=VALUE, as in updates=8250")
        if text.strip() == "…":
            raise InputError(f"--{flag} {each} has no value", "replace the `…` with your answer")
        if name not in names:
            hint = suggestion(name, names)
            raise InputError(
                f"no question {name!r} in this lesson", f"{hint}it has {', '.join(names)}"
            )
        found[name] = text.strip()
    return found


def _check_order(results: Sequence[StageResult], flag: str, typed: Collection[str]) -> None:
    """Check that an answer comes after the runs that it is about, and a prediction before it.

    Raises:
        InputError: It does not.
    """
    for result in results:
        for reply in result.replies:
            if reply.question in typed and flag == "answer" and not result.runs:
                raise InputError(f"{reply.question} cannot be answered yet", result.hint)
            if reply.question in typed and flag == "predict" and reply.given is not None:
                raise InputError(f"{reply.question} has already been answered", "see `lab check`")


def _as_json(result: StageResult) -> dict[str, object]:
    return {**asdict(result), "passed": result.passed}


command = prints(check)
