"""The allowed results of a run, by its fault: the contract, not what lab does."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.torture.case import RESTART, Case, Fault

STALL_S: Final = 8.0
"""`--stall` of the runs whose fault may stall a training."""

READY_S: Final = 120.0
"""The time of the same runs to get ready."""

END_S: Final = 15.0
"""Time from the detection of a fault to the client's exit."""


class Outcome(NamedTuple):
    """The end of a run."""

    state: str
    exit_code: int
    cause: str = ""


WELL: Final = frozenset({Outcome("succeeded", 0)})

_ENDS: Final = {
    Fault.KILL: {Outcome("failed", 1, "signal")},
    Fault.FREEZE: {Outcome("failed", 1, "stalled"), Outcome("failed", 1, "time-out")},
    Fault.AGENT: {Outcome("lost", 1, "node lost")},
    # A program that saves a checkpoint while the volume is full fails by itself.
    Fault.ROOM: WELL | {Outcome("failed", 1, "exit code")},
    Fault.READ_ONLY: {Outcome("failed", 1, "volume")},
}
"""Faults that a run may not survive."""

_WAITS_S: Final = {Fault.AGENT: 15.0, Fault.READ_ONLY: 20.0}
"""So long the client waits for a silent agent, and for a read-only volume, at most."""


def expected(case: Case) -> frozenset[Outcome]:
    """The allowed ends of a run; the contract in one function."""
    fault, of_ps = case.fault, case.target.startswith("ps")
    ends = frozenset(_ENDS.get(fault, WELL))
    if fault is Fault.AGENT and of_ps:
        # The workers of a parameter server fail before its loss can be detected.
        ends |= {Outcome("failed", 1, "node lost")}
    if case.policy == RESTART and fault is not Fault.READ_ONLY:
        # A program restarts; an agent or a parameter server's state may not.
        return WELL if fault is Fault.KILL and not of_ps else WELL | ends
    return ends


def patience_s(fault: Fault, cause: str = "") -> float:
    """Seconds from a fault to the exit of the command, where the run does not end well."""
    if fault is Fault.FREEZE:
        return END_S + (STALL_S if cause == "stalled" else READY_S)
    return END_S + _WAITS_S.get(fault, 0.0)
