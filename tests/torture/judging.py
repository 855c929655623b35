"""The judgement of an observed run; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.torture import records
from tests.torture.case import UNTIMED, Case, Fault
from tests.torture.expected import WELL, Outcome, expected, patience_s
from tests.torture.records import Home

JUST_BEFORE_S: Final = 1.0
"""A task that ended so shortly after its fault may have been ending already, in seconds."""

_BAD: Final = ("failed", "lost")
_WORST: Final = (*_BAD, "cancelled")
_ENDED: Final = {"succeeded", *_WORST}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the harness observed of one run."""

    exit_code: int | None
    said: Mapping[str, Any] | None
    home: Home
    hit_unix: float | None
    ended_unix: float
    left: Sequence[str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a run ended, whether its fault came too late, and what is wrong with it."""

    outcome: Outcome
    missed: bool
    faults: list[str]


def judge(case: Case, seen: Seen) -> Judgement:
    outcome = _outcome(case, seen)
    missed = _missed(case, seen)
    faults = [f"left: {text}" for text in seen.left]
    if seen.exit_code is None:
        return Judgement(outcome, missed, ["it did not end", *faults])
    faults += _lies(case, seen, outcome, missed=missed)
    # Records that a volume refused are counted, and may be missing.
    if outcome.cause != "volume":
        faults += records.missing(seen.home)
    if outcome.state == "succeeded":
        faults += records.wrong_sums(seen.home, case.experiment, case.steps)
    elif seen.hit_unix is not None:
        seconds, allowed = seen.ended_unix - seen.hit_unix, patience_s(case.fault, outcome.cause)
        if seconds > allowed:
            faults.append(f"{seconds:.1f} s from the fault to the end, {allowed:g} s are allowed")
    return Judgement(outcome, missed, faults)


def _outcome(case: Case, seen: Seen) -> Outcome:
    """The run's state, the exit code, and the cause of the target task.

    If that task did not fail, the cause of the first failed task counts.
    """
    statuses = seen.home.statuses
    target = statuses.get(case.target, {})
    state = str(seen.home.info.get("state", ""))
    # A cancelled service harms no task.
    guilty = _BAD if state == "succeeded" else _WORST
    bad = sorted(
        (status for status in statuses.values() if status.get("state") in guilty),
        key=lambda each: (_WORST.index(each["state"]), each.get("ended_unix") or float("inf")),
    )
    first = target if target.get("state") in _BAD or not bad else bad[0]
    code = -1 if seen.exit_code is None else seen.exit_code
    return Outcome(state, code, str(first.get("cause") or ""))


def _missed(case: Case, seen: Seen) -> bool:
    """Whether the target had ended, or completed its part already."""
    if seen.hit_unix is None:
        return case.fault not in UNTIMED
    if expected(case) == WELL:
        return False
    hit = case.workers_on(case.target) or case.worker_tasks
    done = [seen.home.statuses.get(task, {}) for task in hit]
    until = seen.hit_unix + JUST_BEFORE_S
    return all(each.get("state") == "succeeded" and each["ended_unix"] <= until for each in done)


def _lies(case: Case, seen: Seen, outcome: Outcome, *, missed: bool) -> Iterator[str]:
    summary, state = seen.home.summary, outcome.state
    if outcome not in (WELL if missed else expected(case)):
        yield f"{outcome}: not what {case.fault} under {case.policy} may come to"
    if summary.get("state") != state:
        yield f"run.json says {state or 'nothing'}, the summary {summary.get('state')}"
    if seen.said is not None and dict(seen.said) != dict(summary):
        yield "the summary that was printed is not the one that was written"
    rows = {row["task"]: row["state"] for row in summary.get("tasks", ())}
    if going := sorted(task for task, row in rows.items() if row not in _ENDED):
        yield f"the run has ended, and {', '.join(going)} not"
    if state == "succeeded":
        if short := [task for task in case.worker_tasks if rows.get(task) != "succeeded"]:
            yield f"succeeded without {', '.join(short)}"
    elif not missed and case.fault in {Fault.KILL, Fault.AGENT}:
        # The target task must be named, by lab's name or by TensorFlow's.
        job, _, index = case.target.rpartition("-")
        names = (case.target, f"/job:{job}/replica:0/task:{index}", f"/job:{job}/task:{index}")
        reason = str(summary.get("reason", ""))
        if not any(name in reason for name in names):
            yield f"{case.target} was hit, and the reason is {reason!r}"
