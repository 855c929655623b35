"""The states and the status of a task, the allowed transitions, and how a run has ended.

This table is the whole state machine; each writer of a state checks it::

    pending   → starting                    the agent has started its program
    starting  → ready                       its first record, or TensorFlow's server has started
    starting  → training                    its first step
    ready     → training                    its first step
    any of these → starting                 the agent restarts the program (a new attempt)
    any of these → succeeded, failed, lost, cancelled
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume.files import from_json
from lab.protocol.volume.layout import chief_of
from lab.protocol.volume.run_spec import RunSpec


class State(StrEnum):
    """The states of a task and of a run."""

    PENDING = "pending"
    STARTING = "starting"
    READY = "ready"
    TRAINING = "training"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether this is a final state."""
        return self in ENDED


ENDED: Final = frozenset({State.SUCCEEDED, State.FAILED, State.LOST, State.CANCELLED})


class Cause(StrEnum):
    """Why a task did not succeed, as a fixed term; the reason has the details."""

    EXIT_CODE = "exit code"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out of memory"
    TIME_OUT = "time-out"
    STALLED = "stalled"
    PEER_LOST = "peer lost"
    NODE_LOST = "node lost"
    INTERRUPTED = "interrupted"
    VOLUME = "volume"
    UNREADABLE = "status unreadable"


FOLLOWS: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.STARTING}) | ENDED,
    State.STARTING: frozenset({State.STARTING, State.READY, State.TRAINING}) | ENDED,
    State.READY: frozenset({State.STARTING, State.TRAINING}) | ENDED,
    State.TRAINING: frozenset({State.STARTING}) | ENDED,
    **dict.fromkeys(ENDED, frozenset[State]()),
}
"""The states that may follow each state."""

NEVER_TALKED: Final = "the tasks never exchanged data: each trained alone"
"""The reason of a run that has failed although its tasks have succeeded."""

_WORST_FIRST: Final = (State.FAILED, State.LOST, State.CANCELLED)


class WrongTransitionError(ValueError):
    """A transition between states is not allowed: a defect of `lab`."""


def check(before: State, after: State) -> None:
    """Check that a state may follow another.

    Raises:
        WrongTransitionError: The transition is not allowed.
    """
    if before is not after and after not in FOLLOWS[before]:
        raise WrongTransitionError(f"{after.value} cannot follow {before.value}")


def run_state(states: Iterable[State]) -> State:
    """Return the state of a run from the states of its tasks.

    A run is training if one task trains or has ended. It is ready or pending if all tasks are, and
    otherwise starting. When all tasks have ended, the worst state is the run's. A run without tasks
    is pending: it never succeeds.
    """
    present = set(states)
    if not present:
        return State.PENDING
    if present <= ENDED:
        return next((state for state in _WORST_FIRST if state in present), State.SUCCEEDED)
    # If one task has ended, the run has begun.
    if State.TRAINING in present or present & ENDED:
        return State.TRAINING
    return present.pop() if len(present) == 1 else State.STARTING


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier attempt of a task's program, and how it ended.

    Attributes:
        reason: Why it ended, as a text.
        cause: Why it ended, as a fixed term.
        started_unix: When it started, in seconds since the epoch, or None.
        ended_unix: When it ended, in seconds since the epoch.
        global_step: The highest global step in its records, or None.
    """

    reason: str
    cause: Cause | None
    started_unix: float | None
    ended_unix: float
    global_step: int | None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of one task of one run, as its agent last wrote it.

    Attributes:
        task: `worker-0`.
        state: The state.
        attempt: 0 for the first start of the program; each restart adds 1.
        reason: Why it is in this state, as a text; may be empty.
        cause: Why it did not succeed, as a fixed term; None while it runs or if it succeeded.
        exit_code: The program's exit code; None while it runs or if a signal ended it.
        signal: The name of the signal that ended the program (`SIGKILL`), or None.
        pid: The program's process id in its environment, or None.
        started_unix: When the program started, in seconds since the epoch, or None.
        ended_unix: When it ended, in seconds since the epoch, or None.
        global_step: The highest global step in its records, or None.
        stepped_unix: When the agent read that step, in seconds since the epoch, or None.
        signs_of_life: The number of its program's signs of life, counted until its first step.
        message: The text of its newest event, often what it waits for; may be empty.
        talked: Whether its program has ever had a connection to that of another task; None: not
            known, or not looked for.
        earlier: The attempts before this one, in order.
        records_sha256: SHA-256 of its records after its end; "" before it, and for a task
            that another agent declared lost.
        records_lost: The number of records that could not be written to the run volume.
        fix: The end of the reason if it says how to fix it; may be empty.
    """

    task: str
    state: State
    attempt: int = 0
    reason: str = ""
    cause: Cause | None = None
    exit_code: int | None = None
    signal: str | None = None
    pid: int | None = None
    started_unix: float | None = None
    ended_unix: float | None = None
    global_step: int | None = None
    stepped_unix: float | None = None
    signs_of_life: int = 0
    message: str = ""
    talked: bool | None = None
    earlier: tuple[Attempt, ...] = ()
    records_sha256: str = ""
    records_lost: int = 0
    fix: str = ""

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskStatus:
        """Decode a status.

        Raises:
            ValueError: The text is not a status.
        """
        return from_json(text, cls, "task status")


def is_optional(spec: RunSpec, task: str, tasks: Collection[str]) -> bool:
    """Whether a run with these tasks continues after this task has failed."""
    free = not spec.is_service(task) and task != chief_of(tasks)
    return free and spec.on_failure is OnFailure.CONTINUE


def outcome(spec: RunSpec, statuses: Mapping[str, TaskStatus]) -> tuple[State, list[str]]:
    """Return the final state of a run whose tasks have all ended, and the tasks that caused it.

    The worst final state of a task is that of the run. A cancelled service does not count, nor does
    an optional task, unless there is no other task. A run that made steps has failed although its
    tasks have succeeded, if they should have talked to each other and did not.

    Returns:
        The state, and the tasks that caused it, see `blame`; no tasks for success, and if the tasks
        did not talk.
    """

    def counts(status: TaskStatus) -> bool:
        if status.state is State.CANCELLED and spec.is_service(status.task):
            return False
        return status.state is State.SUCCEEDED or not is_optional(spec, status.task, statuses)

    counted = [*filter(counts, statuses.values())] or list(statuses.values())
    state = run_state(status.state for status in counted)
    if state is State.SUCCEEDED:
        made_steps = any(status.global_step is not None for status in statuses.values())
        return State.FAILED if made_steps and never_talked(spec, statuses) else state, []
    failed = [status for status in counted if status.state in {state, State.LOST}]
    return state, [status.task for status in sorted(failed, key=blame)]


def never_talked(spec: RunSpec, statuses: Mapping[str, TaskStatus]) -> bool:
    """Whether the tasks should have talked to each other, and certainly none of them has."""
    trained = [status for status in statuses.values() if not spec.is_service(status.task)]
    return spec.must_talk and len(statuses) > 1 and all(each.talked is False for each in trained)


def blame(status: TaskStatus) -> tuple[bool, int, float]:
    """Return the order of tasks that did not succeed: the one that the run's reason names is first.

    A task that only lost another one comes last. Lost and cancelled tasks come after failed ones,
    because their end is often a consequence, too.
    """
    severity = _WORST_FIRST.index(status.state)
    return status.cause is Cause.PEER_LOST, severity, status.ended_unix or math.inf
