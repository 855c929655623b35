"""The stages of a lesson, as `lessons/NAME.yaml` states them: of lab, a project or a package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from lab.base.errors import InputError
from lab.base.plugins import add_of_packages, plugins
from lab.base.text import suggestion
from lab.cluster.config.diagnostics import Problem
from lab.cluster.config.structs import read_struct
from lab.cluster.experiments import outside_experiments, own_folder
from lab.cluster.project import default_root
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.runner.store.measures import OF_RUN, OF_TASK

FOLDER: Final = "lessons"
"""The directory of the files, in a project or a package."""

NAME: Final = "^[a-z][a-z0-9-]*$"

_Name = Annotated[str, msgspec.Meta(pattern=NAME)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]

_MEASURES: Final = (*(each.name for each in OF_RUN), *(each.name for each in OF_TASK))


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
    take: Literal["", "sum", "least", "most", "least-task", "most-task"] = ""
    less: Value | float = 0.0
    over: Value | float = 1.0
    times: float = 1.0
    plus: float = 0.0

    def __post_init__(self) -> None:
        """Check that it names a value.

        Raises:
            ValueError: It does not.
        """
        if not (self.setting or self.result or self.measure in _MEASURES):
            hint = suggestion(self.measure, _MEASURES) or "name a measure, a setting or a result"
            raise ValueError(f"there is no measure {self.measure!r}; {hint.strip()}")
        if self.measure in _MEASURES[len(OF_RUN) :] and not (self.task or (self.job and self.take)):
            raise ValueError(f"{self.measure} belongs to a task: add `task`, or `job` and `take`")


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

    def __post_init__(self) -> None:
        """Check the regular expression, too.

        Raises:
            ValueError: It is invalid.
        """
        super().__post_init__()
        try:
            re.compile(self.matches)
        except re.error as error:
            raise ValueError(f"`matches` is not a regular expression: {error}") from None


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
        code: Instead of both: the experiment whose program the student writes. The unit tests of
            `PROGRAM.py` are beside it, in `PROGRAM_tests.py`.
        holds: What must hold of these runs; the first that does not hold gives the hint.
        questions: The questions.
    """

    name: _Name
    text: _Text
    runs: Annotated[Mapping[str, str], msgspec.Meta(min_length=1)] = {}
    command: Annotated[str, msgspec.Meta(pattern="^lab (run|sweep|reproduce) ")] = ""
    code: str = ""
    holds: tuple[Condition, ...] = ()
    questions: tuple[Question, ...] = ()

    def __post_init__(self) -> None:
        """Check that its values are of its runs, and that its command can be read.

        Raises:
            ValueError: One is not.
        """
        if (self.code != "") == bool(self.runs and self.command):
            raise ValueError("a stage has `runs` and a `command`, or `code`")
        shlex.split(self.command)
        for name in _runs_in((self.holds, self.questions)):
            if name not in self.runs:
                raise ValueError(f"the stage has no run {name!r}; it has {', '.join(self.runs)}")


class Lesson(_Part, frozen=True, kw_only=True):
    """A lesson.

    Attributes:
        title: Its title.
        minutes: How long it takes.
        stages: Its stages, in order.
        origin: Where it is from: its directory, or a package and its version; "": from lab. It is
            not a key of the file.
    """

    title: _Text
    minutes: Annotated[int, msgspec.Meta(gt=0)]
    stages: Annotated[tuple[Stage, ...], msgspec.Meta(min_length=1)]
    origin: Annotated[str, msgspec.Meta(max_length=0)] = ""


def _runs_in(part: object) -> Iterator[str]:
    """Yield the names of the runs that the values inside a part are of."""
    if isinstance(part, Value):
        yield part.of
    inside = msgspec.structs.astuple(part) if isinstance(part, msgspec.Struct) else part
    for each in inside if isinstance(inside, tuple) else ():
        yield from _runs_in(each)


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of the lessons in a directory by name; hidden ones are an editor's."""
    return {path.stem: path for path in sorted((folder / FOLDER).glob("[!.]*.yaml"))}


@cache
def _shipped() -> Mapping[str, Path]:
    """Return the files of lab's own lessons by name."""
    return _files(next(iter(plugins("lessons").values())).folder())


@cache
def _shipped_lesson(name: str) -> Lesson:
    return _read(_shipped()[name], "", EXPERIMENTS)


def _read(path: Path, origin: str, known: Collection[str]) -> Lesson:
    read = read_struct(path, Lesson, partial(_problems, known))
    return msgspec.structs.replace(read, origin=origin)


def _problems(known: Collection[str], read: Lesson) -> Iterator[Problem]:
    """Yield a problem for each unknown experiment, and each name that is given twice."""
    seen = set[tuple[str, str]]()
    for number, stage in enumerate(read.stages):
        stages, questions = ("stages", number), enumerate(stage.questions)
        asked = [((*stages, "questions", at), "question", each.name) for at, each in questions]
        for place, kind, name in ((stages, "stage", stage.name), *asked):
            if (kind, name) in seen:
                yield Problem((*place, "name"), f"there is another {kind} {name}")
            seen.add((kind, name))
        code = [("code", stage.code)] if stage.code else []
        for at, name in (*stage.runs.items(), *code):
            if name not in known:
                key = (*stages, at) if code else (*stages, "runs", at)
                what = f"there is no experiment {name}"
                yield Problem(key, what, misspelt=name, candidates=list(known))


def outside_lessons(root: Path) -> dict[str, Lesson]:
    """Return the lessons of a project, then those of installed packages; by name.

    A package whose lessons cannot be used, and a name that is taken, are left out with a warning.

    Args:
        root: The project's directory.

    Raises:
        InputError: A file of the project cannot be read, or is invalid.
    """
    _, *packages = plugins("lessons").values()
    known = [*EXPERIMENTS, *outside_experiments(root)]
    found = _read_all(known, own_folder(root), f"{FOLDER}/")
    return add_of_packages(found, packages, partial(_read_all, known))


def _read_all(known: Collection[str], folder: Path, origin: str) -> dict[str, Lesson]:
    """Return the lessons in the directory of a project or a package, by name."""
    files = _files(folder)
    for name, path in files.items():
        if name in _shipped():
            raise InputError(f"{path}: lab already has a lesson {name}", "rename the file")
        if not re.fullmatch(NAME, name):
            raise InputError(f"{path}: not a valid lesson name", "name it like three-workers.yaml")
    return {name: _read(path, origin, known) for name, path in files.items()}


def load_lesson(name: str) -> Lesson:
    """Return a lesson of lab, of the project or of a package.

    Raises:
        InputError: There is no such lesson, or a file of the project is invalid.
    """
    root = default_root()
    if name in _shipped() and name not in _files(own_folder(root)):
        return _shipped_lesson(name)
    outside = outside_lessons(root)
    if name not in outside:
        hint = suggestion(name, [*_shipped(), *outside])
        raise InputError(f"no lesson {name!r}", f"{hint}see `lab check`")
    return outside[name]


def load_lessons() -> dict[str, Lesson]:
    """Return all lessons by name: lab's own, those of the project, and those of packages.

    Raises:
        InputError: A file of the project is invalid.
    """
    return {name: _shipped_lesson(name) for name in _shipped()} | outside_lessons(default_root())
