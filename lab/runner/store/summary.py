"""The summary of a run: `summary.json` and `summary.csv`, written and read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final

from lab.base.errors import LabError
from lab.base.strict_json import dump, parse
from lab.protocol.volume.files import read_regular, write_atomically
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import Uncollected, convert

NO_STEP_MET: Final = "no step ran during it; start it later, such as `after 500 steps`"
"""What is wrong with an ineffective fault, and what to do."""


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """The summary of one task; a field that does not apply is None.

    The GPU metrics of a shared GPU include the use by other tasks.

    Attributes:
        task: `worker-0`.
        job_name: `worker`.
        task_index: 0.
        node: The task's node.
        gpus: Device ids of its GPUs.
        state: The final state, or the newest one.
        exit_code: Its program's exit code; None if a signal ended the program.
        attempts: The number of starts of its program.
        epoch: Its last epoch, 0-based.
        local_step: The number of its own steps.
        global_step: The newest global step in its records.
        loss: Its final loss: the mean of its last step records; see `loss_records`. NaN or infinite
            if its last loss is.
        accuracy: Its last test accuracy, from 0 to 1.
        steps_per_s: Its local steps per second while it trained; None without two step records.
        time_s: Seconds from the start of its program to its end.
        cause: The cause of its failure: `exit code`, `out of memory`, `stalled`.
        gpu_utilisation: The utilisation of its GPUs while it trained, from 0 to 1; a mean over
            samples.
        gpu_memory_bytes: The peak of the memory in use, summed over its GPUs.
        gpu_power_w: The power of its GPUs together while it trained, in watts; a mean.
        diverged_at: The step from which on its loss is NaN or infinite, or None.
        loss_records: The number of step records whose mean `loss` is, at most 10; None without a
            step record.
        staleness_sum: The sum of the staleness of its steps, in updates by other workers; None if
            its records have no sum.
        staleness_steps: The number of these steps, in all attempts.
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
    loss_records: int | None = None
    staleness_sum: int | None = None
    staleness_steps: int | None = None

    @property
    def mean_staleness(self) -> float | None:
        """The mean staleness of its steps; None if it is not known."""
        return mean_staleness([self])


def first_divergence(tasks: Iterable[TaskSummary]) -> int | None:
    """Return the first step from which on a loss of a task is not finite; None without one."""
    steps = [task.diverged_at for task in tasks if task.diverged_at is not None]
    return min(steps, default=None)


def mean_staleness(tasks: Iterable[TaskSummary]) -> float | None:
    """Return the mean staleness over all steps of these tasks.

    Over all n workers of a run the mean is at most n - 1: between one read of a worker and the
    next, each update by another worker makes one step of it stale by one.

    Returns:
        The mean, in updates by other workers; None if no task reports a sum.
    """
    known = [
        (task.staleness_sum, task.staleness_steps)
        for task in tasks
        if task.staleness_sum is not None and task.staleness_steps
    ]
    return sum(mean for mean, _ in known) / sum(steps for _, steps in known) if known else None


@dataclass(frozen=True, slots=True)
class ResultSummary:
    """One result of the run's experiment, reported or missing.

    Attributes:
        name: The program's name for the result.
        task: The task that reported it; "" if no task did.
        value: The reported value, or None.
        low: The minimum of the expected range, or None.
        high: The maximum of the expected range, or None.
        as_expected: Whether the result was reported and is in the expected range.
    """

    name: str
    task: str
    value: float | None
    low: float | None
    high: float | None
    as_expected: bool


@dataclass(frozen=True, slots=True)
class FaultSummary:
    """What one fault of the run met.

    Attributes:
        fault: The fault, as the user wrote it.
        task: The task whose steps are counted; "" if the fault never began.
        steps: The number of its steps during the fault, by its records; for a fault that ends a
            program, those that it interrupted.
    """

    fault: str
    task: str
    steps: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a run; a field whose value is unknown is None.

    Attributes:
        run_id: The run's id.
        experiment: The experiment's name.
        backend: The name of its backend.
        state: The final state, or the newest one.
        reason: The reason for this state; may be empty.
        degraded: Whether it succeeded without all of its tasks.
        global_step: The highest global step in the records.
        updates_conserved: Whether no update was lost: the probe equals the global step. If each
            local step is one update, the local steps must also add up to it. None for a program
            without a probe.
        updates_lost: The number of updates that were counted but not made, because their program
            ended between the two; None if it is unknown.
        steps_redone: The number of global steps that were repeated, because a restarted program
            resumed from an older checkpoint.
        resumed_from: The run whose checkpoints it started from, or "".
        accuracy: Test accuracy of the final parameters, from 0 to 1.
        wall_s: Seconds from the request to the end of the last task.
        first_step_s: Seconds from the submission to the end of the slowest worker's first step, on
            the clock of the figures; None if a worker's records do not show it, as for a listing.
        steps_per_s: Global steps per second from the first step record to the last; None if no
            task has two step records, or all are of the same step.
        records_lost: The number of records that are missing by their sequence numbers, or that
            could not be written to the run volume.
        tasks: The summary of each task, in the cluster's order.
        images_per_s: Images of all workers per second, from the first step record to the last; None
            if the size of a batch is not known. It compares runs whose updates use different
            numbers of images.
        results: The results of the experiment, including the missing ones.
        left: The files that were not collected.
        faults: For each fault the tasks that it concerned.
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
    images_per_s: float | None = None
    results: list[ResultSummary] = field(default_factory=list)
    left: list[Uncollected] = field(default_factory=list)
    faults: list[FaultSummary] = field(default_factory=list)

    @property
    def ineffective_faults(self) -> list[str]:
        """The faults that met no step of any task."""
        met = {each.fault for each in self.faults if each.steps}
        return list(dict.fromkeys(each.fault for each in self.faults if each.fault not in met))

    @property
    def missing(self) -> list[str]:
        """The tasks that a degraded run succeeded without."""
        unfinished = (task.task for task in self.tasks if task.state != State.SUCCEEDED)
        return list(unfinished) if self.degraded else []

    @property
    def as_expected(self) -> bool:
        """Whether all results of the experiment are reported and in their expected ranges."""
        return all(result.as_expected for result in self.results)

    @property
    def mean_staleness(self) -> float | None:
        """The mean staleness over all steps of all workers; None if it is not known."""
        return mean_staleness(self.tasks)

    def to_json(self) -> str:
        """Return one line of JSON."""
        return dump(asdict(self))

    def to_csv(self) -> str:
        """Return CSV: a header and one row for each task; GPUs are separated by spaces."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [field.name for field in fields(TaskSummary)]
        writer.writerow(names)
        for task in self.tasks:
            row = asdict(task) | {"gpus": " ".join(task.gpus)}
            writer.writerow([row[name] for name in names])
        return text.getvalue()

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Parse a summary.

        Raises:
            ValueError: The text is not a summary.
        """
        summary = convert(parse(text), cls)
        for state in (summary.state, *(task.state for task in summary.tasks)):
            State(state)
        return summary


def write_summary(run: RunDir, summary: Summary) -> None:
    """Write `summary.json` and `summary.csv`."""
    write_atomically(run.path / "summary.csv", summary.to_csv())
    write_atomically(run.summary_path, summary.to_json() + "\n")


def read_summary(path: Path) -> Summary | None:
    """Read the summary in a file; return None if the file is missing.

    Raises:
        LabError: The file cannot be read; the message names the file and the key.
    """
    try:
        return Summary.from_json(read_regular(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LabError(f"{path}: {error}", "remove the file, or move it away") from error
