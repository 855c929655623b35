"""What is judged of a run: its figures, read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lab.run.progress import read_records
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.summarize import summarize
from lab.task.protocol.faults import DONE
from lab.task.protocol.results import is_number, is_whole
from lab.task.protocol.states import State

WORKER: Final = "worker"
_STEPS: Final = ("step", "epoch")


@dataclass(frozen=True, slots=True)
class Step:
    """A step that a worker has recorded.

    Attributes:
        local: Its own steps so far.
        total: The global step right after this step's own increment.
        epoch: Its epoch, 0-based.
        ends_epoch: Whether it is the last of its epoch.
        loss: The loss of its batch.
        time_s: When it was recorded, in seconds since the program began.
    """

    local: int
    total: int
    epoch: int
    ends_epoch: bool
    loss: float
    time_s: float


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """What one worker has recorded.

    Attributes:
        steps: In the order in which they were recorded.
        accuracy: Test accuracy at its own end, a share; None where it did not come so far.
        tested_at: The global step at that test.
        ended_at: The local step of its final record; 0: it has none.
        rate: The learning rate that its program says it trains with, before it decays.
        disturbed: The faults that were done to it, as its agent recorded them.
    """

    steps: tuple[Step, ...]
    accuracy: float | None = None
    tested_at: int | None = None
    ended_at: int = 0
    rate: float | None = None
    disturbed: tuple[str, ...] = ()

    @property
    def local_steps(self) -> int:
        """How many steps it made; the last ones are in its final record alone."""
        return max([self.ended_at, *(step.local for step in self.steps[-1:])])

    def at_end_of(self, epoch: int) -> Step | None:
        """The last step of an epoch, if it was recorded."""
        return next((s for s in self.steps if s.ends_epoch and s.epoch == epoch), None)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What one run comes to, as far as a claim can ask for it.

    Attributes:
        run_id: The run's name.
        experiment: What it was started as.
        seed: Of its initial weights and batches; None where it is not known.
        succeeded: Whether it ended well.
        parameters: Hyperparameters as they were recorded.
        start: Task to the moment at which it was to start.
        faults: What was done to it, a line each.
        workers: In the order of their indices.
        global_steps: The highest global step.
        updates_lost: Updates that were counted and never reached the parameters; None: not known.
        accuracy: Test accuracy of the final parameters, a share, or None.
        results: What its experiment has measured, by name: `test loss`.
    """

    run_id: str
    experiment: str
    seed: int | None
    succeeded: bool
    parameters: Mapping[str, Any]
    start: Mapping[str, str]
    faults: tuple[str, ...]
    workers: tuple[WorkerFigures, ...]
    global_steps: int
    updates_lost: int | None
    accuracy: float | None
    results: Mapping[str, float] = field(default_factory=dict)


def read_figures(run: RunDir) -> RunFigures:
    """Read a run.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    info = run.read()
    summary = summarize(run)
    workers = tuple(_worker(run, task) for task in info.task_names() if _is_worker(task))
    return RunFigures(
        run_id=info.run_id,
        experiment=info.spec.experiment,
        seed=info.seed,
        succeeded=info.state is State.SUCCEEDED,
        parameters=_parameters(info),
        start=info.spec.start,
        faults=info.spec.faults,
        workers=workers,
        global_steps=summary.global_step or 0,
        updates_lost=summary.updates_lost,
        accuracy=summary.accuracy,
        results={each.name: each.value for each in summary.results if each.value is not None},
    )


def _is_worker(task: str) -> bool:
    return task.rpartition("-")[0] == WORKER


def _parameters(info: RunInfo) -> dict[str, Any]:
    """Those that were recorded; a name stands alone where the program's own default counts."""
    return {name: value for name, value in info.hyperparameters.items() if value != 0}


def _worker(run: RunDir, task: str) -> WorkerFigures:
    steps: list[Step] = []
    disturbed: list[str] = []
    accuracy, tested_at, ended_at, rate = None, None, 0, None
    for record in read_records(run.records(task)):
        kind, message = record.get("kind"), record.get("message")
        if is_number(record.get("learning_rate")):
            rate = record["learning_rate"]
        if kind in _STEPS and (step := _step(record)) is not None:
            steps.append(step)
        elif kind == "eval" and "probe" not in record and is_number(record.get("accuracy")):
            accuracy, tested_at = record["accuracy"], record.get("global_step")
        elif kind == "final" and is_whole(record.get("local_step")):
            ended_at = record["local_step"]
        elif kind == "event" and isinstance(message, str) and message.startswith(DONE):
            disturbed.append(message.removeprefix(DONE))
    return WorkerFigures(
        steps=tuple(steps),
        accuracy=accuracy,
        tested_at=tested_at if is_whole(tested_at) else None,
        ended_at=ended_at,
        rate=rate,
        disturbed=tuple(disturbed),
    )


def _step(record: Mapping[str, Any]) -> Step | None:
    whole = [record.get(name) for name in ("local_step", "global_step", "epoch")]
    numbers = [record.get(name) for name in ("loss", "elapsed_s")]
    if not all(map(is_whole, whole)) or not all(map(is_number, numbers)):
        return None
    local, total, epoch = (int(value or 0) for value in whole)
    loss, time_s = (float(value or 0) for value in numbers)
    return Step(local, total, epoch, record.get("kind") == "epoch", loss, time_s)
