"""The allowed results of a run, by its fault: the contract, not what lab does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.torture.case import Fault, Policy

REFUSED_S: Final = 8.0
"""Time that an agent waits for an unwritable volume."""

READ_ONLY_S: Final = 20.0
"""Time that the client waits for a read-only volume."""

STALL_S: Final = 8.0
"""`--stall` of the runs whose fault may stall a training."""

READY_S: Final = 120.0
"""`--ready-within` of the same runs."""

PATIENT_S: Final = 240.0
"""`--ready-within` of all others: eight workers on two busy cores need their time."""

END_S: Final = 15.0
"""Time from the detection of a fault to the client's exit."""

LOST_S: Final = 15.0
"""How long a silent agent is waited for, at most."""

ENGINE_S: Final = 60.0
"""Time of a restart of the engine, and of commands that wait for it."""

_CHIEF: Final = "worker-0"


@dataclass(frozen=True, slots=True, order=True)
class Outcome:
    """The allowed end of a run.

    Attributes:
        state: The run's.
        exit_code: The command's.
        cause: The cause of the target task, or of any task without a target; "" for no cause.
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
ALTERED: Final = outcomes("failed", 1, "") | outcomes("succeeded", 1, "")
"""Records that the agent did not write, or that are no file and cannot be collected."""

# A program that saves a checkpoint while the volume is full fails by itself.
_SAVED_IN_VAIN: Final = outcomes("failed", 1, "exit code")
_SURVIVED: Final = frozenset(
    {
        *(Fault.NONE, Fault.PAUSE, Fault.HELPER, Fault.LATE, Fault.ROOM),
        *(Fault.CLOCK, Fault.NODE_CLOCK),
    }
)
# Without its network a task ends by an error, by a stall, or is declared lost.
_CUT_OFF: Final = outcomes("failed", 1, "peer lost", "exit code", "stalled", "time-out") | outcomes(
    "lost", 1, "node lost"
)
# The engine stops its containers first, which their agents may still record.
_NO_ENGINE: Final = (
    outcomes("lost", 1, "", "node lost", "interrupted", "peer lost")
    | outcomes("cancelled", 1, "", "interrupted", "peer lost")
    | outcomes("failed", 1, "", "peer lost", "signal", "interrupted", "node lost")
)


def expected(fault: Fault, policy: Policy, experiment: str, target: str) -> frozenset[Outcome]:
    """The allowed end of a run with this fault; the contract in one function.

    Args:
        fault: The fault.
        policy: The policy for a run that loses a task.
        experiment: `async` or `sync`.
        target: The task of the fault, a node, or "".
    """
    if fault in _SURVIVED:
        return WELL | (_SAVED_IN_VAIN if fault is Fault.ROOM else frozenset())
    if fault in {Fault.DISK, Fault.READ_ONLY}:  # a restart does not help
        return _NO_VOLUME
    if fault is Fault.ENGINE:
        return _NO_ENGINE
    bad = _ends_badly(fault, target)
    if policy is Policy.RESTART:
        # A program restarts; an agent or a node may not.
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
    # The workers of a parameter server fail before its loss can be detected.
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
        cause: lab's name of it; a stalled training is detected after `STALL_S`.
        trained: Whether a step was made. A full volume is detected by the next line that cannot be
            written, and a program prints nothing while it imports TensorFlow.
            Agents and client wait for some time whether it becomes writable again.
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
