"""Whether runs and answers pass the stages of a lesson, by the measures and settings of runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice, product
from pathlib import Path
from typing import Final

from lab.base.errors import LabError
from lab.base.formatting import number
from lab.base.text import short
from lab.cluster.config.yaml_reader import parse_scalar
from lab.runner.store.directory import RunDir, altered_task, infos, read_statuses
from lab.runner.store.measures import OF_RUN, OF_TASK, Figure
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import options_of
from lab.runner.store.summarize import sum_up
from lab.runner.store.summary import NO_STEP_MET, Summary
from lab.teach.lessons.answers import (
    FILE,
    Answer,
    newest,
    predicted,
    read_answers,
    tests_of,
)
from lab.teach.lessons.lesson import Condition, Lesson, Operand, Question, Stage, Value

_MOST_RUNS: Final = 30
"""The number of newest runs of an experiment that are judged."""

_YES: Final = {"yes": True, "true": True, "no": False, "false": False}
_ROUNDING: Final = 1e-9

_SLOW: Final = re.compile(r"(slow:[0-9.]+)\S* (\S+)(?: at start)?")
_SLOW_STEPS: Final = 0.9
"""The least share of a task's steps that a `slow` without a start time must have met.

The speed and the staleness of a run are means over all of its steps.
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one question.

    Attributes:
        question: Its name.
        text: The question.
        given: The answer as the student typed it; None before an answer.
        right: Whether it is right; None without an answer, or without the runs.
        note: The hint for a wrong answer, or why a right one is right.
        predicted: What the student said before the run; None: nothing.
    """

    question: str
    text: str
    given: str | None
    right: bool | None
    note: str = ""
    predicted: str | None = None


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of one stage.

    Attributes:
        stage: Its name.
        text: What to do in it.
        runs: The ids of the runs that were judged, by their name in the stage.
        hint: What the runs lack; "" for nothing.
        replies: The questions.
        command: The command that makes its newest run; "" if it has none.
    """

    stage: str
    text: str
    runs: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    replies: Sequence[Reply] = ()
    command: str = ""

    @property
    def passed(self) -> bool:
        """Whether the runs have everything that is needed, and every answer is right."""
        return not self.hint and all(reply.right for reply in self.replies)


@dataclass(frozen=True)
class MeasuredRun:
    """A run, and its summary once a question needs it.

    Attributes:
        info: Its `run.json`.
        read: Computes its summary from its files.
    """

    info: RunInfo
    read: Callable[[], Summary]

    @cached_property
    def summary(self) -> Summary | None:
        """Its summary; None if its files are damaged."""
        try:
            return self.read()
        except (LabError, OSError):
            return None

    def setting(self, name: str) -> Figure | None:
        """Return a flag of its program or an option of `lab run`; None if neither was used."""
        value = self.info.hyperparameters.get(name)
        if isinstance(value, str):  # also a number, if its flag has no default
            return parse_scalar(value)
        return options_of(self.info).get(name) if value is None else value


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a student has done, in a run store.

    Attributes:
        runs: The newest ended runs of each experiment, the newest first.
        answers: The answers, the oldest first.
    """

    runs: Mapping[str, Sequence[MeasuredRun]]
    answers: Sequence[Answer]

    @classmethod
    def read(cls, store: Path) -> Evidence:
        """Read the runs and answers of a run store.

        Raises:
            LabError: The file of the answers is not a regular file.
            OSError: A file cannot be read.
        """
        runs: dict[str, list[MeasuredRun]] = {}
        for run, info in reversed(infos(store).items()):
            if info is None or info.imported or not info.state.ended:
                continue
            measured = runs.setdefault(info.spec.experiment, [])
            # A program of the student's own may have the name of an experiment.
            if len(measured) < _MOST_RUNS and (info.spec.origin or not info.spec.own):
                measured.append(MeasuredRun(info, partial(_summary, run, info)))
        return cls(runs, read_answers(store / FILE))


def check_lesson(
    name: str, lesson: Lesson, evidence: Evidence, *, key: bool = False
) -> list[StageResult]:
    """Check the stages of a lesson.

    Args:
        name: The lesson's name.
        lesson: The lesson.
        evidence: The runs and answers of the student.
        key: Whether the replies are the right answers, instead of those of the student.
    """
    answers = None if key else newest(evidence.answers, name)
    return [check_stage(stage, evidence.runs, answers) for stage in lesson.stages]


def check_stage(
    stage: Stage,
    measured: Mapping[str, Sequence[MeasuredRun]],
    answers: Mapping[str, Answer] | None,
) -> StageResult:
    """Check one stage.

    Args:
        stage: The stage.
        measured: The runs by experiment, the newest first.
        answers: The answers by question; None to reply with the right ones.
    """
    if stage.code:
        return _code_result(stage, answers)
    runs, hint = _best_runs(stage, measured)
    replies = []
    for question in stage.questions:
        answer = (answers or {}).get(question.name)
        if runs and answers is None:
            replies.append(key_of(question, runs))
        elif runs and answer is not None:
            meant = _meant(stage, measured, answer, runs)
            replies.append(reply_to(question, short(answer.text), meant))
        else:
            text = None if answer is None else short(answer.text)
            replies.append(Reply(question.name, question.text, text, None))
        if before := (answers or {}).get(predicted(question.name)):
            replies[-1] = replace(replies[-1], predicted=short(before.text))
    ids = {name: run.info.run_id for name, run in runs.items()}
    return StageResult(stage.name, stage.text, ids, hint, replies, stage.command)


def _code_result(stage: Stage, answers: Mapping[str, Answer] | None) -> StageResult:
    """Return what the tests of a stage's program said last; the key has no answer to them."""
    if answers is None:
        return StageResult(stage.name, stage.text)
    name = tests_of(stage.name)
    if (said := answers.get(name)) is None:
        return StageResult(stage.name, stage.text, hint="its tests have not run yet")
    count, _, hint = said.text.partition(": ")
    if count == "gap":
        return StageResult(stage.name, stage.text, hint=hint)
    reply = Reply(name, "Do all tests pass?", f"{count} pass", not hint, hint or "all of them")
    return StageResult(stage.name, stage.text, replies=[reply])


def _meant(
    stage: Stage,
    measured: Mapping[str, Sequence[MeasuredRun]],
    answer: Answer,
    newest_runs: Mapping[str, MeasuredRun],
) -> Mapping[str, MeasuredRun]:
    """Return the runs that an answer is about; a later run must not make a right answer wrong."""
    before = {
        name: [run for run in runs if (run.info.stopped_unix or 0) <= answer.time_unix]
        for name, runs in measured.items()
    }
    runs, hint = _best_runs(stage, before)
    return newest_runs if hint else runs


def _best_runs(
    stage: Stage, measured: Mapping[str, Sequence[MeasuredRun]]
) -> tuple[Mapping[str, MeasuredRun], str]:
    """Return the runs that fulfil the most conditions, the newest ones first, and the hint."""
    if lacking := [name for name in stage.runs.values() if not measured.get(name)]:
        return {}, _how_to_run(lacking, stage.command)
    best, most = dict[str, MeasuredRun](), -1
    choices = product(*(measured[name] for name in stage.runs.values()))
    for chosen in islice(choices, _MOST_RUNS**2):
        runs = dict(zip(stage.runs, chosen, strict=True))
        held = [*(holds(each, runs) for each in stage.holds), False].index(False)
        if held > most:
            best, most = runs, held
        if held == len(stage.holds) and not _ineffective_fault(runs):
            return runs, ""
    return best, stage.holds[most].hint if most < len(stage.holds) else _ineffective_fault(best)


def _ineffective_fault(runs: Mapping[str, MeasuredRun]) -> str:
    """Return the hint for a fault that met too few steps to show anything; "" without one."""
    for summary in filter(None, (run.summary for run in runs.values())):
        if summary.ineffective_faults:
            return f"{summary.run_id}: {summary.ineffective_faults[0]}: {NO_STEP_MET}."
        made = {task.task: task.local_step or 0 for task in summary.tasks}
        for fault in summary.faults:
            slow, steps = _SLOW.fullmatch(fault.fault), made.get(fault.task, 0)
            if slow and fault.steps < _SLOW_STEPS * steps:
                met = f"{fault.fault} met {fault.steps:,} of the {steps:,} steps of {fault.task}"
                return f"{summary.run_id}: {met}; repeat it with `{slow[1]} {slow[2]}`."
    return ""


def _how_to_run(lacking: Sequence[str], command: str) -> str:
    """Return the hint for a stage without runs; its command makes those of one experiment."""
    for experiment in lacking:
        if f"lab run {experiment} " in f"{command} ":
            return f"no run of {experiment} has ended yet: `{command}`"
    return f"no run of {lacking[0]} has ended yet: use its command in the lesson"


def holds(condition: Condition, runs: Mapping[str, MeasuredRun]) -> bool:
    """Whether a condition holds; a value that the runs do not have can only be `absent`."""
    value = figure_of(condition, runs)
    if value is None or condition.absent:
        return value is None and condition.absent
    if condition.matches and not re.fullmatch(condition.matches, str(value)):
        return False
    limits = (condition.equals, condition.at_least, condition.at_most)
    wanted, least, most = (None if limit is None else figure_of(limit, runs) for limit in limits)
    if condition.equals is not None and value != wanted:
        return False
    if condition.at_least is not None and not _ordered(least, value):
        return False
    return condition.at_most is None or _ordered(value, most)


def _ordered(low: Figure | None, high: Figure | None) -> bool:
    numbers = isinstance(low, int | float) and isinstance(high, int | float)
    return numbers and low <= high  # type: ignore[operator]


def reply_to(question: Question, typed: str, runs: Mapping[str, MeasuredRun]) -> Reply:
    """Judge the answer to a question."""
    if _matches(typed, question.answer, question, runs):
        return Reply(question.name, question.text, typed, True, question.because)
    hints = (
        wrong.hint for wrong in question.mistakes if _matches(typed, wrong.answer, question, runs)
    )
    return Reply(question.name, question.text, typed, False, next(hints, question.hint))


def key_of(question: Question, runs: Mapping[str, MeasuredRun]) -> Reply:
    """Return the right answer to a question, with its tolerance, as a reply."""
    value = figure_of(question.answer, runs)
    if value is None:
        text = "the runs do not have this value"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, str):
        text = value
    else:
        tolerance = _tolerance(question, value)
        shown = f" ± {number(float(f'{tolerance:.2g}'))}"
        text = number(value) + (shown if tolerance > _ROUNDING * abs(value) else "")
    return Reply(question.name, question.text, text, True, question.because)


def _matches(
    typed: str, answer: Operand, question: Question, runs: Mapping[str, MeasuredRun]
) -> bool:
    value = figure_of(answer, runs)
    text = typed.strip().lower()
    if isinstance(value, bool):
        return _YES.get(text) is value
    if isinstance(value, str):
        return text == value.lower()
    number = _number(text)
    if value is None or number is None:
        return False
    return abs(number - value) <= _tolerance(question, value)


def _tolerance(question: Question, value: float) -> float:
    """Return the largest difference from a right number that is accepted."""
    return max(question.within, question.share * abs(value), _ROUNDING * abs(value))


def _number(text: str) -> float | None:
    """Return the number in an answer: `82,500`, `74.5%`; None for other text."""
    share = 0.01 if text.endswith("%") else 1.0
    try:
        return float(text.removesuffix("%").strip().replace(",", "")) * share
    except ValueError:
        return None


def _summary(run: RunDir, info: RunInfo) -> Summary:
    statuses = read_statuses(run, info)
    if task := altered_task(run, info, statuses):
        raise LabError(f"{run.run_id}: the records of {task} are not those of its agent")
    return sum_up(run, info, statuses)


_RUN: Final = {measure.name: measure.of for measure in OF_RUN}
_TASK: Final = {measure.name: measure.of for measure in OF_TASK}

_TAKES: Final[Mapping[str, Callable[[Mapping[str, float]], Figure]]] = {
    "sum": lambda of_tasks: sum(of_tasks.values()),
    "least": lambda of_tasks: min(of_tasks.values()),
    "most": lambda of_tasks: max(of_tasks.values()),
    "least-task": lambda of_tasks: min(of_tasks, key=lambda task: of_tasks[task]),
    "most-task": lambda of_tasks: max(of_tasks, key=lambda task: of_tasks[task]),
}


def figure_of(operand: Operand, runs: Mapping[str, MeasuredRun]) -> Figure | None:
    """Return a fixed value, or that of a run.

    Args:
        operand: The value.
        runs: The runs of the stage, by name.

    Returns:
        The value; None if the runs do not have this value.
    """
    if not isinstance(operand, Value):
        return operand
    figure = _measured(operand, runs)
    if figure is None or isinstance(figure, str):
        return figure
    less, over = figure_of(operand.less, runs), figure_of(operand.over, runs)
    if not isinstance(less, int | float) or not isinstance(over, int | float) or not over:
        return None
    figure = figure - less if less else figure
    figure = figure / over if over != 1 else figure
    is_plain = operand.times == 1 and not operand.plus
    return figure if is_plain else figure * operand.times + operand.plus


def _measured(value: Value, runs: Mapping[str, MeasuredRun]) -> Figure | None:
    run = runs[value.of]
    if value.setting:
        return run.setting(value.setting)
    if run.summary is None:
        return None
    if value.result:
        return _result(value.result, run.summary)
    if value.measure in _RUN:
        return _RUN[value.measure](run.summary)
    measure = _TASK[value.measure]
    tasks = run.summary.tasks
    if value.task:
        return next((measure(task) for task in tasks if task.task == value.task), None)
    known = ((task.task, measure(task)) for task in tasks if task.job_name == value.job)
    figures = {name: figure for name, figure in known if isinstance(figure, int | float)}
    return _TAKES[value.take](figures) if figures else None


def _result(name: str, summary: Summary) -> float | None:
    """Return a result of the run; the first one if several tasks reported it."""
    values = (result.value for result in summary.results if result.name == name)
    return next((value for value in values if value is not None), None)
