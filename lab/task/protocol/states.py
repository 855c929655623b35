"""The states of a task and of a run, what may follow what, and why one ended.

This table is the whole state machine; whoever writes a state asks it::

    pending   → starting                    its program was spawned
    starting  → ready                       its first record, or TensorFlow's server has started
    starting  → training                    its first step
    ready     → training                    its first step
    any of these → starting                 the program is started again (a further attempt)
    any of these → succeeded, failed, lost, cancelled
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final


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
        """Whether nothing follows this state."""
        return self in ENDED


ENDED: Final = frozenset({State.SUCCEEDED, State.FAILED, State.LOST, State.CANCELLED})


class Cause(StrEnum):
    """Why a task ended otherwise than well, in a word for programs; the reason has the details."""

    EXIT_CODE = "exit code"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out of memory"
    TIME_OUT = "time-out"
    STALLED = "stalled"
    PEER_LOST = "peer lost"
    NODE_LOST = "node lost"
    INTERRUPTED = "interrupted"
    VOLUME = "volume"
    ALTERED = "records altered"


FOLLOWS: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.STARTING}) | ENDED,
    State.STARTING: frozenset({State.STARTING, State.READY, State.TRAINING}) | ENDED,
    State.READY: frozenset({State.STARTING, State.TRAINING}) | ENDED,
    State.TRAINING: frozenset({State.STARTING}) | ENDED,
    **dict.fromkeys(ENDED, frozenset[State]()),
}
"""Which states may follow a state; a task that stays where it is has no new state."""

_WORST_FIRST: Final = (State.FAILED, State.LOST, State.CANCELLED)


class WrongTransitionError(ValueError):
    """A state was to follow one that it cannot follow: a defect."""


def check(before: State, after: State) -> None:
    """See that a state may follow another.

    Raises:
        WrongTransitionError: It may not.
    """
    if before is not after and after not in FOLLOWS[before]:
        raise WrongTransitionError(f"{after.value} cannot follow {before.value}")


def run_state(states: Iterable[State]) -> State:
    """The state of a run, from those of its tasks.

    While one has not ended, the run trains as soon as one of them does, is ready when all are, and
    starts with the first of them; at the end, the worst of them says how it ended.
    """
    found = set(states)
    if found <= ENDED:
        return next((state for state in _WORST_FIRST if state in found), State.SUCCEEDED)
    # Where one has ended, the run has begun, whatever the others do.
    if State.TRAINING in found or found & ENDED:
        return State.TRAINING
    return found.pop() if len(found) == 1 else State.STARTING
