"""The allowed results of a run, by its fault: the contract, not what lab does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.torture.case import Case, Fault, Policy

STALL_S: Final = 8.0
"""`--stall` of the runs whose fault may stall a training."""

READY_S: Final = 120.0
"""`--ready-within` of the same runs."""

PATIENT_S: Final = 240.0
"""`--ready-within` of all others: eight workers on two busy cores need their time."""

END_S: Final = 15.0
"""Time from the detection of a fault to the client's exit."""

_LOST_S: Final = 15.0  # so long a silent agent is waited for, at most
_REFUSED_S: Final = 8.0  # so long an agent waits for an unwritable volume
_READ_ONLY_S: Final = 20.0  # so long the client waits for a read-only volume


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
_STRICT: Final[dict[Fault, frozenset[Outcome]]] = {
    Fault.KILL: outcomes("failed", 1, "signal"),
    Fault.FREEZE: outcomes("failed", 1, "stalled", "time-out"),
    Fault.AGENT: outcomes("lost", 1, "node lost"),
    # Without its network a task ends by an error, by a stall, or is declared lost.
    Fault.ANCHOR: outcomes("failed", 1, "peer lost", "exit code", "stalled", "time-out")
    | outcomes("lost", 1, "node lost"),
}
"""Faults for which the policy counts, and the ends of a run that fails."""

_VOLUME: Final = outcomes("failed", 1, "volume")
_ANY_POLICY: Final[dict[Fault, frozenset[Outcome]]] = {
    # A program that saves a checkpoint while the volume is full fails by itself.
    Fault.ROOM: WELL | outcomes("failed", 1, "exit code"),
    Fault.DISK: _VOLUME,  # a restart does not help
    Fault.READ_ONLY: _VOLUME,
}
"""Other faults that a run may not survive."""


def expected(case: Case) -> frozenset[Outcome]:
    """The allowed ends of a run; the contract in one function."""
    fault, of_ps = case.fault, case.target.startswith("ps")
    if fault not in _STRICT:
        return _ANY_POLICY.get(fault, WELL)
    bad = _STRICT[fault]
    if fault is Fault.AGENT and of_ps:
        # The workers of a parameter server fail before its loss can be detected.
        bad |= outcomes("failed", 1, "node lost")
    if case.policy is Policy.RESTART:
        # A program restarts; an agent or a node may not.
        return WELL if fault is Fault.KILL and not of_ps else WELL | bad
    if case.policy is Policy.FAIL or case.experiment == "sync" or of_ps:
        return bad
    # It goes on without a worker; the chief, which saves the parameters, is needed.
    degraded = outcomes("succeeded", 0, "", *(each.cause for each in bad))
    if case.target == "worker-0" or may_stand_still(fault):
        return bad | degraded
    return degraded - WELL


def may_succeed(case: Case) -> bool:
    """Whether a run may go on after its fault, and so take its time."""
    return any(outcome.state == "succeeded" for outcome in expected(case))


def may_stand_still(fault: Fault) -> bool:
    """Whether a run with this fault is given little time without a step."""
    return fault in {Fault.FREEZE, Fault.ANCHOR}


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
        Fault.AGENT: _LOST_S,
        Fault.ANCHOR: max(still_s, _LOST_S),
        Fault.DISK: _REFUSED_S if trained else READY_S,
        Fault.READ_ONLY: _READ_ONLY_S,
    }
    return END_S + wait_s.get(fault, 0.0)
