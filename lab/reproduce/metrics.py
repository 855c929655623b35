"""The metrics of a run that claims are about, read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.experiments.faults import DONE, OVER, Kind
from lab.records.reader import STEPS, is_number, is_whole, read_records
from lab.store.directory import RunDir
from lab.store.progress import is_test_during_training
from lab.store.summarize import summarize
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
        accuracy: The test accuracy at the worker's end (0 to 1); None if it ended before the test.
        ended_at: The local step of its final record; 0: it has none.
        rate: The recorded learning rate, before it decays.
        slowed: The times between which a fault slowed it, in seconds since the epoch, or None.
        faults: The faults that it had, a line each.
    """

    steps: tuple[Step, ...]
    accuracy: float | None = None
    ended_at: int = 0
    rate: float | None = None
    slowed: tuple[float, float] | None = None
    faults: tuple[str, ...] = ()

    @property
    def local_steps(self) -> int:
        """The number of its steps; only its final record counts the last ones."""
        return max([self.ended_at, *(step.local for step in self.steps[-1:])])


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
        faults: The requested faults, a line each.
        workers: Its workers, in the order of their indices.
        global_steps: The highest global step.
        updates_lost: Updates that were counted and never reached the parameters; None: not known.
        accuracy: The test accuracy of the final parameters (0 to 1), or None.
        mean_staleness: The mean staleness over all steps of all workers; None: not known.
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
    global_steps: int
    updates_lost: int | None
    accuracy: float | None
    mean_staleness: float | None = None
    results: Mapping[str, float] = field(default_factory=dict)


def read_metrics(run: RunDir) -> RunMetrics:
    """Read the metrics of a run.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    info = run.read()
    summary = summarize(run)
    workers = [task for task in info.task_names() if task.rpartition("-")[0] == "worker"]
    return RunMetrics(
        run_id=info.run_id,
        experiment=info.spec.program if info.spec.own else info.spec.experiment,
        seed=info.seed,
        succeeded=info.state is State.SUCCEEDED,
        parameters=without_zeros(info.hyperparameters),
        start=info.spec.start,
        faults=info.spec.faults,
        workers=tuple(_worker(run, task) for task in workers),
        global_steps=summary.global_step or 0,
        updates_lost=summary.updates_lost,
        accuracy=summary.accuracy,
        mean_staleness=summary.mean_staleness,
        results={each.name: each.value for each in summary.results if each.value is not None},
    )


def without_zeros(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags without those that are 0: the program's own default. False is a value."""
    return {name: value for name, value in flags.items() if value is False or value != 0}


def _worker(run: RunDir, task: str) -> WorkerMetrics:
    steps: list[Step] = []
    fault: dict[str, float] = {}
    faults: list[str] = []
    accuracy, ended_at, rate = None, 0, None
    for record in read_records(run.records(task)):
        kind, message = record.get("kind"), record.get("message")
        if is_number(record.get("learning_rate")):
            rate = record["learning_rate"]
        if kind in STEPS and (step := _step(record)) is not None:
            steps.append(step)
        elif is_test_during_training(record):
            continue
        elif kind == "eval" and "probe" not in record and is_number(record.get("accuracy")):
            accuracy = record["accuracy"]
        elif kind == "final" and is_whole(record.get("local_step")):
            ended_at = record["local_step"]
        elif kind == "event" and isinstance(message, str):
            if message.startswith(DONE):
                faults.append(message.removeprefix(DONE))
            for moment in (DONE, OVER):
                time_s = record.get("time_unix")
                if message.startswith(f"{moment}{Kind.SLOW}") and is_number(time_s):
                    fault[moment] = time_s
    return WorkerMetrics(
        steps=tuple(steps),
        accuracy=accuracy,
        ended_at=ended_at,
        rate=rate,
        slowed=(fault[DONE], fault[OVER]) if len(fault) == 2 else None,  # noqa: PLR2004
        faults=tuple(faults),
    )


def _step(record: Mapping[str, Any]) -> Step | None:
    local, total = record.get("local_step"), record.get("global_step")
    loss, time_s = record.get("loss"), record.get("time_unix")
    if is_whole(local) and is_whole(total) and is_number(loss) and is_number(time_s):
        return Step(local, total, loss, time_s)
    return None
