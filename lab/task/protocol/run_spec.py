"""What a user asks for: one object from the command line to the task agents and to `run.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from lab.task.protocol.names import CLUSTER_FLAGS, STALL_S
from lab.task.protocol.policy import OnFailure

if TYPE_CHECKING:
    from lab.task.protocol.experiments import Experiment


@dataclass(frozen=True, slots=True)
class TaskProgram:
    """What one task starts, where each task has a program of its own.

    Attributes:
        program: The program's path relative to the run's `program/`.
        cluster_flags: Names of those flags of the cluster that it is started with.
    """

    program: str
    cluster_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run trains, how it begins, and when it has failed.

    Attributes:
        experiment: The experiment's name, or the program's stem.
        program: The program's path, absolute or relative to the scripts directory; where it is
            `own`, relative to the run's `program/`; with `programs`, as the user named them all.
        args: The program's arguments behind the standard flags.
        own: Whether it is a program of the user's own, of which the run has a copy.
        listing: Whether it is run as it was printed, with TensorFlow 1's API.
        faithful: Whether a listing's polls of 30 seconds stay as they were.
        mend: Whether the known faults of printed synchronous programs are mended.
        cluster_flags: Names of those flags of the cluster that it is started with.
        programs: Task to its program, where each task has its own; empty: all start `program`.
            A task that is not among them starts none.
        data_dir: Directory with a student's own data as a task sees it, or "" for the shipped data.
        services: Jobs that serve until every other job has ended (`ps`).
        on_failure: What becomes of the run when a task fails.
        restarts: How often each task is started again at most.
        gang: Whether all tasks start again together when one does.
        start: Task to the moment at which it starts, as `parse_when` reads it; a task that is not
            among them starts with the others.
        faults: The faults to inject, a line each, as `lab.task.protocol.faults` reads them.
        stall_s: Seconds without a new global step after which the run has failed; 0: no limit.
        max_time_s: Seconds after which the run is cancelled, with a checkpoint; 0: no limit.
        ready_s: Seconds within which every program must be ready; 0: no limit.
        resumed_from: The run whose checkpoints it resumes from, or "".
    """

    experiment: str
    program: str = ""
    args: tuple[str, ...] = ()
    own: bool = False
    listing: bool = False
    faithful: bool = False
    mend: bool = False
    cluster_flags: tuple[str, ...] = tuple(CLUSTER_FLAGS)
    programs: Mapping[str, TaskProgram] = field(default_factory=dict)
    data_dir: str = ""
    services: tuple[str, ...] = ("ps",)
    on_failure: OnFailure = OnFailure.FAIL
    restarts: int = 0
    gang: bool = False
    start: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    stall_s: float = STALL_S
    max_time_s: float = 0.0
    ready_s: float = 0.0
    resumed_from: str = ""

    def completed(self, experiment: Experiment) -> RunSpec:
        """The same with what the experiment has: its program, arguments, services and policy."""
        return replace(
            self,
            program=experiment.program,
            args=(*experiment.args, *self.args),
            services=experiment.services,
            on_failure=experiment.policy.on_failure,
            restarts=experiment.policy.restarts,
            gang=experiment.gang,
        )

    def is_service(self, task: str) -> bool:
        """Whether this task serves the others and ends when they have ended."""
        return task.rpartition("-")[0] in self.services

    def program_of(self, task: str) -> TaskProgram | None:
        """What a task starts; None: nothing."""
        if self.programs:
            return self.programs.get(task)
        return TaskProgram(self.program, self.cluster_flags)

    @property
    def waits(self) -> bool:
        """Whether its program waits for the signal to train."""
        return not self.own


def nested(raw: Any) -> Any:  # noqa: ANN401  (what JSON can hold)
    """The JSON of a request or of `run.json` with its `spec` as an object of its own.

    Earlier versions wrote the fields of the specification beside the others.
    """
    if not isinstance(raw, dict) or "spec" in raw:
        return raw
    names = {each.name for each in fields(RunSpec)}
    spec = {name: value for name, value in raw.items() if name in names}
    others = {name: value for name, value in raw.items() if name not in names}
    return {**others, "spec": spec} if spec else others
