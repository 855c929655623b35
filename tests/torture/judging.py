"""The verdict on an observed run; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tests.torture import records
from tests.torture.case import Case, Fault
from tests.torture.expected import WELL, Outcome, expected, patience_s
from tests.torture.records import Home

JUST_BEFORE_S: Final = 1.0
"""A task that ended so shortly after its fault may have been ending already, in seconds."""

_BAD: Final = ("failed", "lost")
_WORST: Final = (*_BAD, "cancelled")
_ENDED: Final = {"succeeded", *_WORST}
_NAMED: Final = frozenset({Fault.KILL, Fault.AGENT})


class Verdict(StrEnum):
    """The verdicts; the worst finding counts, in this order."""

    HANG = "hang"
    LIE = "lie"
    LOST_RECORDS = "lost records"
    SUMS = "sums"
    ORPHAN = "orphan"
    LATE = "late"
    MISSED = "missed"
    OK = "ok"


GOOD: Final = frozenset({Verdict.MISSED, Verdict.OK})


@dataclass(frozen=True, slots=True)
class Seen:
    """What the harness observed of one run.

    Attributes:
        exit_code: The exit code of the last command that followed the run; None: it was killed.
        said: The summary that the command printed, or None.
        home: The collected files.
        hit_unix: The time of the fault; None: there was none, or it was too late.
        missed: Whether the target had ended before the fault.
        seconds: From the fault to the command's exit; None without a fault.
        left: The leftovers of the run.
    """

    exit_code: int | None
    said: Mapping[str, Any] | None
    home: Home
    hit_unix: float | None = None
    missed: bool = False
    seconds: float | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a run ended, the verdict, and each of its faults as text."""

    outcome: Outcome
    verdict: Verdict
    details: tuple[str, ...] = ()


def judge(case: Case, seen: Seen) -> Judgement:
    """Compare the observed run with the allowed results."""
    outcome = _outcome(case, seen)
    left = [f"left: {each}" for each in seen.left]
    if seen.exit_code is None:
        return Judgement(outcome, Verdict.HANG, ("it did not end", *left))
    missed = seen.missed or _came_too_late(case, seen)
    found = {
        Verdict.LIE: _lies(case, seen, outcome, missed=missed),
        Verdict.LOST_RECORDS: [],
        Verdict.SUMS: [],
        Verdict.ORPHAN: left,
        Verdict.LATE: _late(case, seen, outcome),
    }
    # Records that a volume refused are counted, and may be missing.
    if outcome.cause != "volume":
        found[Verdict.LOST_RECORDS] = records.missing(seen.home)
    if outcome.state == "succeeded":
        found[Verdict.SUMS] = records.wrong_sums(seen.home, case.experiment, case.steps)
    details = tuple(each for several in found.values() for each in several)
    at_best = Verdict.MISSED if missed else Verdict.OK
    worst = next((verdict for verdict, several in found.items() if several), at_best)
    return Judgement(outcome, worst, details)


def _outcome(case: Case, seen: Seen) -> Outcome:
    """The run's state, the exit code, and the cause of the target task.

    If that task did not fail, the cause of the first failed task counts.
    """
    statuses = seen.home.statuses
    hit = statuses.get(case.target, {})
    state = str(seen.home.info.get("state", ""))
    # A cancelled service harms no task.
    guilty = _BAD if state == "succeeded" else _WORST
    bad = sorted(
        (status for status in statuses.values() if status.get("state") in guilty),
        key=lambda each: (_WORST.index(each["state"]), each.get("ended_unix") or float("inf")),
    )
    first = hit if hit.get("state") in _BAD or not bad else bad[0]
    code = -1 if seen.exit_code is None else seen.exit_code
    return Outcome(state, code, str(first.get("cause") or ""))


def _came_too_late(case: Case, seen: Seen) -> bool:
    """Whether the target had completed its part already."""
    if seen.hit_unix is None or expected(case) == WELL:
        return False
    hit = [t for t in case.tasks_on(case.target) if t.startswith("worker")] or case.worker_tasks
    done = [seen.home.statuses.get(task, {}) for task in hit]
    until = seen.hit_unix + JUST_BEFORE_S
    return all(each.get("state") == "succeeded" and each["ended_unix"] <= until for each in done)


def _lies(case: Case, seen: Seen, outcome: Outcome, *, missed: bool) -> list[str]:
    summary, state, found = seen.home.summary, outcome.state, []
    allowed = WELL if missed else expected(case)
    if outcome not in allowed:
        found.append(f"{outcome}: not what {case.fault} under {case.policy} may come to")
    if (state == "succeeded") != (outcome.exit_code == 0):
        found.append(f"{state} with exit code {outcome.exit_code}")
    if state not in _ENDED:
        found.append(f"run.json still says {state or 'nothing'}")
    if summary.get("state") != state:
        found.append(f"run.json says {state}, the summary {summary.get('state')}")
    if seen.said is not None and dict(seen.said) != dict(summary):
        found.append("the summary that was printed is not the one that was written")
    rows = {row["task"]: row["state"] for row in summary.get("tasks", ())}
    going = sorted(task for task, state in rows.items() if state not in _ENDED)
    if going:
        found.append(f"the run has ended, and {', '.join(going)} not")
    if state == "succeeded":
        short = [task for task in case.worker_tasks if rows.get(task) != "succeeded"]
        if short:
            found.append(f"succeeded without {', '.join(short)}")
    elif not missed and case.fault in _NAMED:
        # The target task must be named, by lab's name or by TensorFlow's.
        job, _, index = case.target.rpartition("-")
        names = (case.target, f"/job:{job}/replica:0/task:{index}", f"/job:{job}/task:{index}")
        reason = str(summary.get("reason", ""))
        if not any(name in reason for name in names):
            found.append(f"{case.target} was hit, and the reason is {reason!r}")
    return found


def _late(case: Case, seen: Seen, outcome: Outcome) -> list[str]:
    if seen.seconds is None or outcome.state == "succeeded":
        return []
    allowed = patience_s(case.fault, outcome.cause)
    if seen.seconds <= allowed:
        return []
    return [f"{seen.seconds:.1f} s from the fault to the end, {allowed:g} s are allowed"]
