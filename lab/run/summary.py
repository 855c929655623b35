"""`summary.json` and `summary.csv`: what a run came to, from its files alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lab.errors import LabError
from lab.run.gpu_metrics import NO_FIGURES, Figures, read_figures
from lab.run.progress import TaskProgress, read_progress
from lab.run.run_info import Left, RunInfo, convert
from lab.run.store import RunDir
from lab.strict_json import dump, parse
from lab.task.experiments import registered
from lab.task.files import read_regular, write_atomically
from lab.task.protocol import TaskStatus
from lab.task.states import State


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One task's row; a field that does not apply is None.

    Attributes:
        task: `worker-0`.
        job_name: `worker`.
        task_index: 0.
        node: The node that it ran on.
        gpus: Device ids of its cards.
        state: Where it ended.
        exit_code: Its program's exit code; None when a signal ended it.
        attempts: How often its program was started.
        epoch: Its last epoch, 0-based.
        local_step: Its own steps.
        global_step: The global step that it saw last.
        loss: Its last loss.
        accuracy: Its test accuracy when it had finished, a share.
        steps_per_s: Its local steps per second while it trained; None without two step records.
        time_s: Seconds from the start of its program to its end.
        cause: Why it ended otherwise than well, in a word: `exit code`, `out of memory`, `stalled`.
        gpu_utilisation: How busy its cards were while it trained, a share; a mean over samples.
            Where it shares a card: the card's, whoever used it; the same holds for what follows.
        gpu_memory_bytes: Memory in use on its cards together, at its peak.
        gpu_power_w: Power that its cards drew together while it trained, in watts; a mean.
        diverged_at: The step from which on its loss is NaN or infinite, or None.
    """

    task: str
    job_name: str
    task_index: int
    node: str
    gpus: list[str]
    state: str
    exit_code: int | None
    attempts: int
    epoch: int | None
    local_step: int | None
    global_step: int | None
    loss: float | None
    accuracy: float | None
    steps_per_s: float | None
    time_s: float | None
    cause: str | None = None
    gpu_utilisation: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None
    diverged_at: int | None = None


@dataclass(frozen=True, slots=True)
class ResultSummary:
    """One thing that the run's experiment has found, or was to find.

    Attributes:
        name: What it is, in the program's words.
        task: Who has found it; "" where nobody has.
        value: What was found, or None.
        low: The least that it may be, or None.
        high: The most that it may be, or None.
        as_expected: Whether it was found, and lies where it has to.
    """

    name: str
    task: str
    value: float | None
    low: float | None
    high: float | None
    as_expected: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to; a field that cannot be known is None.

    Attributes:
        run_id: The run's name.
        experiment: The experiment's name.
        backend: `local` or `compose`.
        state: Where the run ended.
        reason: Why, in words; may be empty.
        degraded: Whether it succeeded without all of its tasks.
        global_step: The highest global step that a record holds.
        updates_conserved: Whether no update was lost: the probe equals the global step, and the
            local steps add up to it where each of them is an update of its own. None for a program
            without a probe.
        updates_lost: Updates that have a number and were never made, because their program was
            ended meanwhile; None where it cannot be known.
        steps_redone: Global steps that were made again, because a program that was started again
            went on from an older checkpoint.
        resumed_from: The run whose checkpoints it went on from, or "".
        accuracy: Test accuracy of the final parameters, a share.
        wall_s: Seconds from the request to the end of the last task.
        first_step_s: Seconds from the request until every worker had made its first step; None
            where a worker's records do not tell, as a listing's.
        steps_per_s: Global steps per second from the first step record to the last; None where
            no task has two, or they hold the same step.
        records_lost: The number of records that are missing by their sequence numbers, or that
            could not be written to the run volume.
        tasks: One row for each task, in the cluster's order.
        results: What its experiment has found, and what it was to find and has not.
        left: The files that were not collected.
    """

    run_id: str
    experiment: str
    backend: str
    state: str
    reason: str
    degraded: bool
    global_step: int | None
    updates_conserved: bool | None
    updates_lost: int | None
    steps_redone: int
    resumed_from: str
    accuracy: float | None
    wall_s: float | None
    first_step_s: float | None
    steps_per_s: float | None
    records_lost: int
    tasks: list[TaskSummary]
    results: list[ResultSummary] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def as_expected(self) -> bool:
        """Whether all that its experiment was to find is there, and lies where it has to."""
        return all(result.as_expected for result in self.results)

    def to_json(self) -> str:
        """One line of JSON."""
        return dump(asdict(self))

    def to_csv(self) -> str:
        """One row for each task, below a row of names; GPUs are separated by blanks."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [each.name for each in fields(TaskSummary)]
        writer.writerow(names)
        for task in self.tasks:
            row = asdict(task) | {"gpus": " ".join(task.gpus)}
            writer.writerow([row[name] for name in names])
        return text.getvalue()

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Read it back.

        Raises:
            ValueError: The text is no summary.
        """
        summary = convert(parse(text), cls)
        for state in (summary.state, *(task.state for task in summary.tasks)):
            State(state)
        return summary


def read_statuses(
    run: RunDir, info: RunInfo, *, skip_damaged: bool = False
) -> dict[str, TaskStatus]:
    """The status of every task that wrote one.

    Args:
        run: The run.
        info: Its `run.json`.
        skip_damaged: Whether one that cannot be read counts as none; a collection replaces it.

    Raises:
        LabError: One cannot be read; the message names the file and the key.
    """
    found = {}
    for task in info.task_names():
        path = run.status(task)
        try:
            found[task] = convert(parse(read_regular(path)), TaskStatus)
        except FileNotFoundError:
            continue
        except ValueError as error:
            if not skip_damaged:
                mend = f"collect it again with `lab collect {run.run_id}`, or move it away"
                raise LabError(f"{path}: {error}", mend) from error
    return found


def summarize(run: RunDir) -> Summary:
    """Read a run's files and say what it came to.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    info = run.read()
    return sum_up(run, info, read_statuses(run, info))


def sum_up(run: RunDir, info: RunInfo, statuses: Mapping[str, TaskStatus]) -> Summary:
    """Read the records and samples of a run, and say what it came to with these states."""
    progress = {task: read_progress(run.records(task), task) for task in info.task_names()}
    trained = {task: value.trained for task, value in progress.items()}
    gpus = read_figures(run.gpu_samples, trained)
    return summary_of(info, statuses, progress, gpus)


def write_summary(run: RunDir, summary: Summary) -> None:
    """Write `summary.json` and `summary.csv`."""
    write_atomically(run.path / "summary.csv", summary.to_csv())
    write_atomically(run.summary_path, summary.to_json() + "\n")


def summary_of(
    info: RunInfo,
    statuses: Mapping[str, TaskStatus],
    progress: Mapping[str, TaskProgress],
    gpus: Mapping[str, Figures] = MappingProxyType({}),
) -> Summary:
    """Put together what a run came to; a pure function."""
    workers = [task for task in info.task_names() if not info.spec.is_service(task)]
    steps = [value.highest for value in progress.values() if value.highest is not None]
    final = next((value for value in progress.values() if value.probe is not None), None)
    ended = [status.ended_unix for status in statuses.values() if status.ended_unix is not None]
    stopped = info.stopped_unix or (max(ended) if ended else None)
    firsts = [progress[task].first_step_unix for task in workers]
    known = [first for first in firsts if first is not None]
    return Summary(
        run_id=info.run_id,
        experiment=info.spec.experiment,
        backend=info.backend,
        state=info.state.value,
        reason=info.reason,
        degraded=info.state is State.SUCCEEDED
        and any(
            statuses[task].state is not State.SUCCEEDED for task in workers if task in statuses
        ),
        global_step=max(steps) if steps else None,
        updates_conserved=_conserved(info, final, [progress[task] for task in workers], statuses),
        updates_lost=_lost(final),
        steps_redone=_redone(list(progress.values())),
        resumed_from=info.spec.resumed_from,
        accuracy=final.final_accuracy if final else None,
        wall_s=_rounded(stopped - info.started_unix) if stopped else None,
        first_step_s=(
            _rounded(max(known) - info.started_unix)
            if known and len(known) == len(workers)
            else None
        ),
        steps_per_s=_global_rate(list(progress.values())),
        records_lost=_records_lost(statuses, progress),
        tasks=[
            _task(info, task, statuses.get(task), progress[task], gpus.get(task, NO_FIGURES))
            for task in progress
        ],
        results=_results(info, progress),
        left=list(info.left),
    )


def _results(info: RunInfo, progress: Mapping[str, TaskProgress]) -> list[ResultSummary]:
    """What was found, task by task, and then what the registry names and nobody has found."""
    found = [
        ResultSummary(each.name, task, each.value, each.low, each.high, each.is_as_expected)
        for task, value in progress.items()
        for each in value.results.values()
    ]
    experiment = registered(info.spec)
    if experiment is None or info.state is not State.SUCCEEDED:
        return found
    names = {each.name for each in found}
    missing = [name for name in experiment.results if name not in names]
    return [*found, *(ResultSummary(name, "", None, None, None, False) for name in missing)]


def _conserved(
    info: RunInfo,
    final: TaskProgress | None,
    workers: Sequence[TaskProgress],
    statuses: Mapping[str, TaskStatus],
) -> bool | None:
    """None when the run left nothing to judge by."""
    if final is None or final.probe_global_step is None:
        return None
    if final.probe != final.probe_global_step:
        return False
    experiment = registered(info.spec)
    if experiment is None or not experiment.steps_add_up or info.spec.resumed_from:
        return True
    ends = [statuses[worker.task] for worker in workers if worker.task in statuses]
    if any(end.attempt or end.state is not State.SUCCEEDED for end in ends):
        return True  # what such a one did after its last record, nobody knows
    return sum(worker.local_step or 0 for worker in workers) == final.probe_global_step


def _lost(final: TaskProgress | None) -> int | None:
    if final is None or final.probe is None or final.probe_global_step is None:
        return None
    return final.probe_global_step - final.probe


def _records_lost(statuses: Mapping[str, TaskStatus], progress: Mapping[str, TaskProgress]) -> int:
    """For each task the larger of two counts: the agent's own, and the gaps in the numbers.

    Gaps do not show lost derived records, which have no numbers, and no loss at the end.
    """
    counted = {task: status.records_lost for task, status in statuses.items()}
    return sum(max(value.lost, counted.get(task, 0)) for task, value in progress.items())


def _redone(tasks: Sequence[TaskProgress]) -> int:
    """How far the training had been before each time that it was set back, in all."""
    redone, since = 0, 0.0
    for resumed, step in sorted(mark for task in tasks for mark in task.resumed):
        marks = [mark for task in tasks for mark in task.peaks.values()]
        peaks = [peak for when, peak in marks if since < when <= resumed]
        redone += max([step, *peaks]) - step
        since = resumed
    return redone


def _global_rate(tasks: Sequence[TaskProgress]) -> float | None:
    """None where no task recorded two steps: the times between tasks' only records say nothing."""
    if all(len(task.global_marks) < 2 for task in tasks):  # noqa: PLR2004
        return None
    marks = [mark for task in tasks for mark in task.global_marks]
    (start, low), (stop, high) = min(marks), max(marks)
    return _rounded((high - low) / (stop - start)) if stop > start and high > low else None


def _task(
    info: RunInfo,
    task: str,
    status: TaskStatus | None,
    progress: TaskProgress,
    gpus: Figures,
) -> TaskSummary:
    job, _, index = task.rpartition("-")
    place: Mapping[str, Any] = next((row for row in info.tasks if row.get("task") == task), {})
    host = info.cluster[job][int(index)].rpartition(":")[0]
    seconds = None
    if status and status.started_unix is not None and status.ended_unix is not None:
        seconds = _rounded(status.ended_unix - status.started_unix)
    # An agent that is gone with its environment has not written its task's end.
    is_known = status is not None and (status.state.ended or not info.state.ended)
    return TaskSummary(
        task=task,
        job_name=job,
        task_index=int(index),
        node=place.get("node", host),
        gpus=list(place.get("gpus", ())),
        state=status.state.value if status and is_known else State.LOST.value,
        exit_code=status.exit_code if status else None,
        attempts=status.attempt + 1 if status and status.started_unix is not None else 0,
        epoch=progress.epoch,
        local_step=progress.local_step,
        global_step=progress.global_step,
        loss=progress.loss,
        accuracy=progress.accuracy,
        steps_per_s=_rounded(progress.steps_per_s),
        time_s=seconds,
        cause=status.cause.value if status and status.cause else None,
        gpu_utilisation=_rounded(gpus.utilisation),
        gpu_memory_bytes=gpus.memory_bytes,
        gpu_power_w=_rounded(gpus.power_w),
        diverged_at=progress.diverged_at,
    )


def _rounded(value: float | None) -> float | None:
    """To a thousandth: clocks and records say no more."""
    return None if value is None else round(value, 3)


def read_summary(path: Path) -> Summary | None:
    """The summary in a file; None when it is missing.

    Raises:
        LabError: It cannot be read; the message names the file and the key.
    """
    try:
        return Summary.from_json(read_regular(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LabError(f"{path}: {error}", "move that file away") from error
