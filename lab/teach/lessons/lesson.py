"""The stages of a lesson, as `docs/tutorials/lessons/NAME.yaml` states them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Final

import msgspec

from lab.base.errors import InputError
from lab.base.shipped import SHIPPED
from lab.base.text import suggestion

FOLDER: Final = SHIPPED / "docs/tutorials/lessons"

_Name = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]*$")]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the file; an unknown key is an error."""


class Value(_Part, frozen=True, kw_only=True):
    """A value of a run.

    Attributes:
        measure: The name of a measure of `lab.runner.store.measures`. For a measure of tasks, also
            set the task, or the job and how the values of its tasks become one.
        setting: A setting of the run instead: a flag of its program, or an option of `lab run`.
        result: A result that its program reported instead, by name.
        of: The run, by its name in the stage.
        task: The task: `worker-0`.
        job: The job whose tasks are taken: `worker`.
        take: How their values become one: `sum`, `least`, `most`, or the name of the task
            with the least or the most: `least-task`, `most-task`.
        less: What is subtracted from the value.
        over: What it is divided by, after that.
        times: What it is multiplied by, after that.
        plus: What is added at the end.
    """

    measure: str = ""
    setting: str = ""
    result: str = ""
    of: str = "run"
    task: str = ""
    job: str = ""
    take: str = ""
    less: Value | float = 0.0
    over: Value | float = 1.0
    times: float = 1.0
    plus: float = 0.0


Operand = bool | float | str | Value
"""A fixed value, or one of a run."""


class Condition(Value, frozen=True, kw_only=True):
    """What must hold of the runs of a stage.

    Attributes:
        equals: What the value is; the key of the file is `is`.
        at_least: The minimum of the value.
        at_most: The maximum of the value.
        matches: The regular expression of the value as text.
        absent: Whether the run must not have it, for a setting.
        hint: What to do if it does not hold.
    """

    equals: Operand | None = msgspec.field(name="is", default=None)
    at_least: Operand | None = None
    at_most: Operand | None = None
    matches: str = ""
    absent: bool = False
    hint: _Text


class Mistake(_Part, frozen=True, kw_only=True):
    """A wrong answer that has a hint of its own.

    Attributes:
        answer: The wrong answer.
        hint: What it shows, and what to try next.
    """

    answer: Operand
    hint: _Text


class Question(_Part, frozen=True, kw_only=True):
    """A question about the runs of a stage.

    Attributes:
        name: Its name, for `--answer NAME=VALUE`.
        text: The question.
        answer: The right answer.
        within: The largest difference of a number from the right one.
        share: The same as a share of the right number: 0.1 is 10%.
        mistakes: Wrong answers with a hint, the most telling first.
        hint: The hint for any other wrong answer.
        because: Why the answer is right; shown with a right answer.
    """

    name: _Name
    text: _Text
    answer: Operand
    within: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    share: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    mistakes: tuple[Mistake, ...] = ()
    hint: _Text
    because: _Text


class Stage(_Part, frozen=True, kw_only=True):
    """One stage of a lesson.

    Attributes:
        name: Its name.
        text: What to do.
        runs: The runs that it needs: a name to the experiment.
        command: A command that makes its newest run, shown if there is none.
        holds: What must hold of these runs; the first that does not hold gives the hint.
        questions: The questions.
    """

    name: _Name
    text: _Text
    runs: Mapping[str, str]
    command: _Text
    holds: tuple[Condition, ...] = ()
    questions: tuple[Question, ...] = ()


class Lesson(_Part, frozen=True, kw_only=True):
    """A lesson.

    Attributes:
        title: Its title.
        minutes: How long it takes.
        stages: Its stages, in order.
    """

    title: _Text
    minutes: Annotated[int, msgspec.Meta(gt=0)]
    stages: Annotated[tuple[Stage, ...], msgspec.Meta(min_length=1)]


def lesson_names() -> list[str]:
    """Return the names of all lessons with stages."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def load_lesson(name: str) -> Lesson:
    """Return a lesson.

    Raises:
        InputError: There is no such lesson.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415  (its import is slow)

    names = lesson_names()
    if name not in names:
        hint = suggestion(name, names)
        raise InputError(f"no lesson {name!r}", f"{hint}see `lab check`")
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return msgspec.convert(YAML(typ="safe").load(text), Lesson)
