"""What may become of a run, by the fault that it met with: the contract, not what the lab does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.torture.case import Fault, Policy

REFUSED_S: Final = 8.0
"""So long an agent waits for a volume that refuses to be written."""

READ_ONLY_S: Final = 20.0
"""So long the helper waits for one that is read-only."""

STALL_S: Final = 8.0
"""`--stall` of the runs whose fault may let a training stand still."""

READY_S: Final = 120.0
"""`--ready-within` of the same runs."""

PATIENT_S: Final = 240.0
"""`--ready-within` of all others: eight workers on two busy cores need their time."""

END_S: Final = 15.0
"""From the moment at which a fault is known to the helper's exit."""

LOST_S: Final = 15.0
"""How long a silent agent is waited for, at most."""

ENGINE_S: Final = 60.0
"""What a new start of the engine takes, and commands that must wait for it."""

_CHIEF: Final = "worker-0"


@dataclass(frozen=True, slots=True, order=True)
class Outcome:
    """How a run may end.

    Attributes:
        state: The run's.
        exit_code: The command's.
        cause: The word of the task that was hit, or of any task where none was; "" for no cause.
    """

    state: str
    exit_code: int
    cause: str = ""


def outcomes(state: str, exit_code: int, *causes: str) -> frozenset[Outcome]:
    """One outcome for each cause."""
    return frozenset(Outcome(state, exit_code, cause) for cause in causes)


WELL: Final = outcomes("succeeded", 0, "")

_STILL: Final = outcomes("failed", 1, "stalled", "time-out")
_KILLED: Final = outcomes("failed", 1, "signal")
_NO_MEMORY: Final = outcomes("failed", 1, "out of memory")
_NO_VOLUME: Final = outcomes("failed", 1, "volume")
ALTERED: Final = outcomes("failed", 1, "records altered")
# A program that saves a checkpoint while the volume is full fails by itself.
_SAVED_IN_VAIN: Final = outcomes("failed", 1, "exit code")
_SURVIVED: Final = frozenset(
    {
        *(Fault.NONE, Fault.PAUSE, Fault.HELPER, Fault.LATE, Fault.ROOM),
        *(Fault.CLOCK, Fault.NODE_CLOCK),
    }
)
# Without its network a task ends by what it misses, by standing still, or is given up.
_CUT_OFF: Final = outcomes("failed", 1, "peer lost", "exit code", "stalled", "time-out") | outcomes(
    "lost", 1, "node lost"
)
# The engine asks its containers to end before it goes, which their agents may still write down.
_NO_ENGINE: Final = (
    outcomes("lost", 1, "", "node lost", "interrupted", "peer lost")
    | outcomes("cancelled", 1, "", "interrupted", "peer lost")
    | outcomes("failed", 1, "", "peer lost", "signal", "interrupted", "node lost")
)


def expected(fault: Fault, policy: Policy, experiment: str, target: str) -> frozenset[Outcome]:
    """How a run may end that met with this fault in time; the contract in one function.

    Args:
        fault: What happened.
        policy: What was to become of a run that loses a task.
        experiment: `async` or `sync`.
        target: The task that was hit; a node or "" where it was none.
    """
    if fault in _SURVIVED:
        return WELL | (_SAVED_IN_VAIN if fault is Fault.ROOM else frozenset())
    if fault in {Fault.DISK, Fault.READ_ONLY}:  # a restart does not help
        return _NO_VOLUME
    if fault is Fault.ENGINE:
        return _NO_ENGINE
    bad = _ends_badly(fault, target)
    if policy is Policy.RESTART:
        # A program starts again; what an agent or a node takes with it may not come back.
        again = outcomes("succeeded", 0, "")
        return again if fault is Fault.KILL and not target.startswith("ps") else again | bad
    if policy is Policy.CONTINUE and experiment == "async":
        return _without(fault, target, bad)
    return bad


def _ends_badly(fault: Fault, target: str) -> frozenset[Outcome]:
    if fault is Fault.KILL:
        return _KILLED
    if fault is Fault.FREEZE:
        return _STILL
    if fault is Fault.MEMORY:
        return _NO_MEMORY
    if fault is Fault.ANCHOR:
        return _CUT_OFF
    lost = outcomes("lost", 1, "node lost")
    # The workers of a parameter server fail before anybody can know that it is lost.
    return lost | outcomes("failed", 1, "node lost") if target.startswith("ps") else lost


def _without(fault: Fault, target: str, bad: frozenset[Outcome]) -> frozenset[Outcome]:
    """Go on without a worker; the parameters, and the chief that saves them, are needed."""
    if target.startswith("ps"):
        return bad
    causes = {each.cause for each in bad} | {""}
    degraded = outcomes("succeeded", 0, *causes)
    if target == _CHIEF or fault in {Fault.FREEZE, Fault.ANCHOR}:
        return bad | degraded
    return degraded - WELL


def may_succeed(fault: Fault, policy: Policy, experiment: str, target: str) -> bool:
    """Whether a run with this fault may go on, and so take its time."""
    allowed = expected(fault, policy, experiment, target)
    return any(outcome.state == "succeeded" for outcome in allowed)


def patience_s(fault: Fault, cause: str = "", *, trained: bool = False) -> float:
    """Seconds from a fault to the exit of the command, where the run does not end well.

    Args:
        fault: What happened.
        cause: How the lab calls it; a training that stood still is known after `STALL_S`.
        trained: Whether a step was made. A full volume is known by the next line that cannot be
            written, and a program that imports TensorFlow says nothing for as long as that takes.
            Agents and helper wait for a while whether it takes something again.
    """
    still_s = STALL_S if cause == "stalled" else READY_S
    wait_s = {
        Fault.FREEZE: still_s,
        Fault.AGENT: LOST_S,
        Fault.ANCHOR: max(still_s, LOST_S),
        Fault.ENGINE: ENGINE_S,
        Fault.DISK: REFUSED_S if trained else READY_S,
        Fault.READ_ONLY: READ_ONLY_S,
    }
    return END_S + wait_s.get(fault, 0.0)


def may_stand_still(fault: Fault) -> bool:
    """Whether a run with this fault is given little time without a step."""
    return fault in {Fault.FREEZE, Fault.ANCHOR}
