"""Compute the summary of a run from its files, also from the samples of its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from lab.base.text import short
from lab.protocol.experiments.faults import Fault
from lab.protocol.records.reader import STEPS, is_whole, read_records
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.run_spec import registered
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir, read_statuses
from lab.runner.store.gpu_samples import NO_FIGURES, GpuFigures, figures
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import FaultSummary, ResultSummary, Summary, TaskSummary
from lab.runner.store.task_progress import TaskProgress, read_progress


def summarize(run: RunDir) -> Summary:
    """Read a run's files and return its summary.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    info = run.read()
    return sum_up(run, info, read_statuses(run, info))


def sum_up(
    run: RunDir,
    info: RunInfo,
    statuses: Mapping[str, TaskStatus],
    read: Mapping[str, TaskProgress] | None = None,
) -> Summary:
    """Return the summary of a run with these task statuses, also from the samples of its GPUs.

    Args:
        run: The run.
        info: Its `run.json`.
        statuses: The status of each task.
        read: The progress of each task; None: its records are read.
    """
    times, names = info.times, info.task_names()
    if read is None:
        read = {task: read_progress(run.records(task), task, times) for task in names}
    progress = {task: read[task] for task in names}
    trained = {task: value.trained for task, value in progress.items()}
    gpus = figures(read_records(run.gpu_samples, times), trained)
    met = faults_met(info, progress, lambda task: read_records(run.records(task), times))
    return summary_of(info, statuses, progress, gpus, met)


def summary_of(
    info: RunInfo,
    statuses: Mapping[str, TaskStatus],
    progress: Mapping[str, TaskProgress],
    gpus: Mapping[str, GpuFigures] = MappingProxyType({}),
    faults: Sequence[FaultSummary] = (),
) -> Summary:
    """Compute the summary of a run; a pure function."""
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
        accuracy=_accuracy(info, final, [progress[task] for task in workers]),
        wall_s=_rounded(stopped - info.started_unix) if stopped else None,
        first_step_s=(
            _rounded(max(known) - info.zero_unix) if known and len(known) == len(workers) else None
        ),
        steps_per_s=_global_rate(list(progress.values())),
        records_lost=_records_lost(statuses, progress),
        tasks=[
            _task(info, task, statuses.get(task), progress[task], gpus.get(task, NO_FIGURES))
            for task in progress
        ],
        images_per_s=_image_rate(info, progress),
        results=_results(info, progress),
        left=list(info.left),
        faults=list(faults),
    )


def _results(info: RunInfo, progress: Mapping[str, TaskProgress]) -> list[ResultSummary]:
    """Return the results by task, then the results of the registry that no task has reported."""
    results = [
        ResultSummary(
            result.name, task, result.value, result.low, result.high, result.is_as_expected
        )
        for task, value in progress.items()
        for result in value.results.values()
    ]
    if info.state is not State.SUCCEEDED:
        return results
    names = {result.name for result in results}
    missing = [name for name in info.spec.results if name not in names]
    return [*results, *(ResultSummary(name, "", None, None, None, False) for name in missing)]


def _conserved(
    info: RunInfo,
    final: TaskProgress | None,
    workers: Sequence[TaskProgress],
    statuses: Mapping[str, TaskStatus],
) -> bool | None:
    """Whether no update was lost; None if the records do not show it."""
    if final is None or final.probe_global_step is None:
        return None
    if final.probe != final.probe_global_step:
        return False
    experiment = registered(info.spec)
    if experiment is None or not experiment.steps_add_up or info.spec.resumed_from:
        return True
    ends = [statuses[worker.task] for worker in workers if worker.task in statuses]
    if any(end.attempt or end.state is not State.SUCCEEDED for end in ends):
        return True  # a failed worker may have made steps after its last record
    return sum(worker.local_step or 0 for worker in workers) == final.probe_global_step


def _accuracy(
    info: RunInfo, final: TaskProgress | None, workers: Sequence[TaskProgress]
) -> float | None:
    """Return the accuracy of the final parameters; None if it is unknown.

    Without a parameter server, each worker of an experiment tests its own copy of the parameters.
    If all have the same accuracy, it is that of the run.
    """
    if final is not None:
        return final.final_accuracy
    if "ps" in info.cluster or info.state is not State.SUCCEEDED or registered(info.spec) is None:
        return None
    accuracies = {worker.accuracy for worker in workers}
    return accuracies.pop() if len(accuracies) == 1 else None


def _lost(final: TaskProgress | None) -> int | None:
    if final is None or final.probe is None or final.probe_global_step is None:
        return None
    return final.probe_global_step - final.probe


def _records_lost(statuses: Mapping[str, TaskStatus], progress: Mapping[str, TaskProgress]) -> int:
    """Return the number of lost records: for each task, the larger of two counts.

    One is the agent's count, the other is the number of gaps in the sequence numbers. Gaps do not
    show losses at the end, or lost records without a number.
    """
    counted = {task: status.records_lost for task, status in statuses.items()}
    return sum(max(value.lost, counted.get(task, 0)) for task, value in progress.items())


def _redone(tasks: Sequence[TaskProgress]) -> int:
    """Return the number of steps that were repeated after the training resumed from checkpoints."""
    redone, since = 0, 0.0
    for resumed, step in sorted(mark for task in tasks for mark in task.resumed):
        marks = [mark for task in tasks for mark in task.peaks.values()]
        peaks = [peak for when, peak in marks if since < when <= resumed]
        redone += max([step, *peaks]) - step
        since = resumed
    return redone


def _global_rate(tasks: Sequence[TaskProgress]) -> float | None:
    """Return global steps per second; None if no task recorded two steps.

    Records of different tasks alone do not show the rate.
    """
    if all(len(task.global_marks) < 2 for task in tasks):  # noqa: PLR2004
        return None
    marks = [mark for task in tasks for mark in task.global_marks]
    (start, low), (stop, high) = min(marks), max(marks)
    return _rounded((high - low) / (stop - start)) if stop > start and high > low else None


def _image_rate(info: RunInfo, progress: Mapping[str, TaskProgress]) -> float | None:
    """Return images of all workers per second; None if they are not known.

    As in the figures, a worker's `examples` count its own images. If they are more than its own
    steps take, as in all-reduce programs, they count the images of all workers.
    """
    trained = [task for task in progress.values() if task.image_marks]
    seen = [_images(info, task) for task in trained]
    known = [rate for rate in seen if rate is not None]
    marks = [mark for task in trained for pair in task.image_marks.values() for mark in pair]
    if not marks or len(known) < len(seen):
        return None
    if all(a.local_step == b.local_step for task in trained for a, b in task.image_marks.values()):
        return None  # records of different tasks alone do not show the rate
    passed = max(mark.time_unix for mark in marks) - min(mark.time_unix for mark in marks)
    images = sum(count for count, is_of_all in known if not is_of_all)
    images += max((count for count, is_of_all in known if is_of_all), default=0)
    return _rounded(images / passed) if passed > 0 and images > 0 else None


def _images(info: RunInfo, progress: TaskProgress) -> tuple[int, bool] | None:
    """Return the images from a task's first step record on, and whether they are of all workers."""
    batch = progress.batch_size or info.hyperparameters.get("batch_size")
    size = batch if isinstance(batch, int) else 0
    gpus = {row.get("task"): len(row.get("gpus", ())) for row in info.tasks}
    of_a_step = size * max(1, gpus.get(progress.task, 0))
    seen, is_of_all, before = 0, False, None
    for first, newest in progress.image_marks.values():
        if not size and None in {first.examples, newest.examples}:
            return None
        if before is None:  # a restarted program counts from 0
            before = first.local_step * size if first.examples is None else first.examples
        images = newest.local_step * size if newest.examples is None else newest.examples
        seen += images
        is_of_all = is_of_all or 0 < newest.local_step * of_a_step < images
    return seen - (before or 0), is_of_all


def _task(
    info: RunInfo,
    task: str,
    status: TaskStatus | None,
    progress: TaskProgress,
    gpus: GpuFigures,
) -> TaskSummary:
    job, _, index = task.rpartition("-")
    row: Mapping[str, Any] = next((entry for entry in info.tasks if entry.get("task") == task), {})
    host = info.cluster[job][int(index)].rpartition(":")[0]
    seconds = None
    if status and status.started_unix is not None and status.ended_unix is not None:
        seconds = _rounded(status.ended_unix - status.started_unix)
    sums = progress.staleness_sums.values()
    # An agent that was removed with its environment has not written its task's final state.
    is_known = status is not None and (status.state.ended or not info.state.ended)
    return TaskSummary(
        task=task,
        job_name=job,
        task_index=int(index),
        node=row.get("node", host),
        gpus=list(row.get("gpus", ())),
        state=status.state.value if status and is_known else State.LOST.value,
        exit_code=status.exit_code if status else None,
        attempts=status.attempt + (status.started_unix is not None) if status else 0,
        epoch=progress.epoch,
        local_step=progress.local_step,
        global_step=progress.global_step,
        loss=progress.final_loss,
        accuracy=progress.accuracy,
        steps_per_s=_rounded(progress.steps_per_s),
        time_s=seconds,
        cause=status.cause.value if status and status.cause else None,
        gpu_utilisation=_rounded(gpus.utilisation),
        gpu_memory_bytes=gpus.memory_bytes,
        gpu_power_w=_rounded(gpus.power_w),
        diverged_at=progress.diverged_at,
        loss_records=progress.final_records or None,
        staleness_sum=sum(entry for entry, _ in sums) if sums else None,
        staleness_steps=sum(steps for _, steps in sums) if sums else None,
    )


def _rounded(value: float | None) -> float | None:
    """Round to a thousandth, the precision of clocks and records."""
    return None if value is None else round(value, 3)


class _Mark(NamedTuple):
    """The end of a step: its time, the task's step count, and the attempt of its program."""

    time: float
    step: int
    attempt: object


_START: Final = _Mark(inf, 0, -1)
"""Comes before the first step record: a fault that is over by then meets no step."""


def faults_met(
    info: RunInfo,
    progress: Mapping[str, TaskProgress],
    records: Callable[[str], Iterable[Mapping[str, Any]]],
) -> list[FaultSummary]:
    """Count the steps that each task made during each fault.

    A fault in a task of a job that records no steps, such as ps, counts for every task that does.

    Args:
        info: The run.
        progress: The progress of each task.
        records: Returns the records of a task.
    """
    trained = [task for task, value in progress.items() if value.has_trained]
    jobs = {task.rpartition("-")[0] for task in trained}
    concerned: dict[str, list[tuple[Fault, float]]] = {}
    for task, value in progress.items():
        affected = [task] if task.rpartition("-")[0] in jobs else trained or [task]
        for name in affected:
            concerned.setdefault(name, []).extend(value.faults)
    met = {
        (fault.text, task): steps
        for task, begun in concerned.items()
        for fault, steps in (_steps_met(begun, records(task)) if begun else {}).items()
    }
    missing = set(info.spec.faults if info.state.ended else ()).difference(text for text, _ in met)
    return [
        *(FaultSummary(text, task, steps) for (text, task), steps in sorted(met.items())),
        *(FaultSummary(short(text), "", 0) for text in sorted(missing)),
    ]


def _steps_met(
    begun: Sequence[tuple[Fault, float]], records: Iterable[Mapping[str, Any]]
) -> dict[Fault, int]:
    """Count the steps of one task during each fault, from each step record to the next."""
    met = {fault: 0 for fault, _ in begun}
    for last, mark in pairwise(chain([_START], _marks(records))):
        steps = max(mark.step - last.step, 1) if mark.attempt == last.attempt else 1
        for fault in {fault for fault, begin in begun if _meets(fault, begin, last, mark)}:
            met[fault] += steps
    return met


def _marks(records: Iterable[Mapping[str, Any]]) -> Iterator[_Mark]:
    """Yield a mark for each step record, then one for a step that was under way at the end."""
    step = 0
    for record in records:
        time, local_step, attempt = map(record.get, ("time_unix", "local_step", "attempt"))
        if record.get("kind") in STEPS and time is not None:
            step = local_step if is_whole(local_step) else step
            yield _Mark(time, step, attempt)
    yield _Mark(inf, step, -1)


def _meets(fault: Fault, begin: float, last: _Mark, mark: _Mark) -> bool:
    """Whether a fault meets the steps between two marks.

    A task makes no steps between two attempts, so a fault that is over by the first step of the new
    attempt meets none. But a kill or a stop meets the step that it interrupts.
    """
    interrupts = not fault.seconds
    since = last.time if interrupts or mark.attempt == last.attempt else mark.time
    return begin <= mark.time and since <= begin + fault.seconds
