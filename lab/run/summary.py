"""The summary of a run: `summary.json` and `summary.csv`, written and read."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from lab.errors import LabError
from lab.run.run_info import Uncollected, convert
from lab.run.store import RunDir
from lab.strict_json import dump, parse
from lab.task.protocol.files import read_regular, write_atomically
from lab.task.protocol.states import State


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
    left: list[Uncollected] = field(default_factory=list)

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


def write_summary(run: RunDir, summary: Summary) -> None:
    """Write `summary.json` and `summary.csv`."""
    write_atomically(run.path / "summary.csv", summary.to_csv())
    write_atomically(run.summary_path, summary.to_json() + "\n")


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
