"""The metrics of a run that claims are about, read from its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.experiments.faults import DONE, OVER, Kind
from lab.records.reader import STEPS, is_number, is_whole, read_records
from lab.store.directory import RunDir
from lab.store.summarize import summarize
from lab.store.summary import TaskSummary
from lab.volume.states import State


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step of a worker.

    Attributes:
        local: The worker's own steps so far.
        total: The global step right after this step's own increment.
        loss: The loss of its batch.
        time_s: The time of the record, in seconds since the epoch.
    """

    local: int
    total: int
    loss: float
    time_s: float


@dataclass(frozen=True, slots=True)
class WorkerMetrics:
    """The recorded metrics of one worker.

    Attributes:
        steps: Its steps, in the order of their records.
        test_accuracy: The measure of `lab.store.measures`; None if it ended before the test.
        local_step: The measure: the number of its steps; 0 if it recorded none.
        rate: The recorded learning rate, before it decays.
        slowed: The times between which a fault slowed it, in seconds since the epoch, or None.
    """

    steps: tuple[Step, ...]
    test_accuracy: float | None = None
    local_step: int = 0
    rate: float | None = None
    slowed: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The metrics of one run that claims use.

    Attributes:
        run_id: The run's name.
        experiment: Its experiment, or the user's own program.
        seed: The seed of its initial weights and batches; None if it is not known.
        succeeded: Whether the run succeeded.
        parameters: The recorded hyperparameters.
        start: The requested start of each late task.
        faults: The faults that were requested, or injected by `lab fault`, a line each.
        workers: Its workers, in the order of their indices.
        global_step: The measure of `lab.store.measures`, like the next three; 0 without a step.
        updates_lost: Updates that were counted and never reached the parameters.
        accuracy: The test accuracy of the final parameters, from 0 to 1.
        mean_staleness: The mean staleness over all steps of all workers.
        results: The measurements of its experiment, by name: `test loss`.
    """

    run_id: str
    experiment: str
    seed: int | None
    succeeded: bool
    parameters: Mapping[str, Any]
    start: Mapping[str, str]
    faults: tuple[str, ...]
    workers: tuple[WorkerMetrics, ...]
    global_step: int
    updates_lost: int | None
    accuracy: float | None
    mean_staleness: float | None = None
    results: Mapping[str, float] = field(default_factory=dict)


def read_metrics(run: RunDir) -> RunMetrics:
    """Read the metrics of a run.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    info, summary = run.read(), summarize(run)
    workers = [task for task in summary.tasks if task.job_name == "worker"]
    records = [list(read_records(run.records(task.task))) for task in workers]
    injected = [fault for each in records for fault in _moments(each, DONE)]
    return RunMetrics(
        run_id=info.run_id,
        experiment=info.spec.program if info.spec.own else info.spec.experiment,
        seed=info.seed,
        succeeded=info.state is State.SUCCEEDED,
        parameters=without_zeros(info.hyperparameters),
        start=info.spec.start,
        faults=tuple(dict.fromkeys([*info.spec.faults, *injected])),
        workers=tuple(map(_worker, workers, records)),
        global_step=summary.global_step or 0,
        updates_lost=summary.updates_lost,
        accuracy=summary.accuracy,
        mean_staleness=summary.mean_staleness,
        results={each.name: each.value for each in summary.results if each.value is not None},
    )


def without_zeros(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags without those that are 0: the program's own default. False is a value."""
    return {name: value for name, value in flags.items() if value is False or value != 0}


def _worker(task: TaskSummary, records: Sequence[Mapping[str, Any]]) -> WorkerMetrics:
    rates = [r["learning_rate"] for r in records if is_number(r.get("learning_rate"))]
    slowed = [_moments(records, moment, Kind.SLOW) for moment in (DONE, OVER)]
    times = [time for moments in slowed for time in list(moments.values())[-1:] if is_number(time)]
    steps = (_step(record) for record in records if record.get("kind") in STEPS)
    return WorkerMetrics(
        steps=tuple(step for step in steps if step is not None),
        test_accuracy=task.accuracy,
        local_step=task.local_step or 0,
        rate=rates[-1] if rates else None,
        slowed=(times[0], times[1]) if len(times) == len(slowed) else None,
    )


def _moments(records: Iterable[Mapping[str, Any]], moment: str, kind: str = "") -> dict[str, Any]:
    """Each fault of which a worker reported this moment, with the time of the record."""
    return {
        message.removeprefix(moment): record.get("time_unix")
        for record in records
        if record.get("kind") == "event"
        and isinstance(message := record.get("message"), str)
        and message.startswith(f"{moment}{kind}")
    }


def _step(record: Mapping[str, Any]) -> Step | None:
    local, total = record.get("local_step"), record.get("global_step")
    loss, time_s = record.get("loss"), record.get("time_unix")
    if is_whole(local) and is_whole(total) and is_number(loss) and is_number(time_s):
        return Step(local, total, loss, time_s)
    return None
