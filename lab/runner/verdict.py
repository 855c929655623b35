"""The state of a run, decided from the states of its tasks: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lab.base.formatting import counted
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import NEVER_TALKED, Cause, State, outcome, run_state
from lab.runner.store.run_info import RunInfo

GONE: Final = "its environment no longer runs"
"""The reason of a run that is lost."""


def verdict(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> tuple[State, str]:
    """Return the run's state and its reason, from the states of its tasks; a pure function.

    The worst final state of a task is the run's state. The first task to `blame` gives the reason;
    the tasks that have ended for the same reason are counted.
    """
    names = [name for name in info.task_names() if name in statuses]
    if not all_ended(info, statuses):
        return state_under_way(info, statuses), info.reason
    state, failed = outcome(info, {name: statuses[name] for name in names})
    if not failed:
        return state, NEVER_TALKED if state is State.FAILED else ""
    first = statuses[failed[0]]
    if state is State.CANCELLED:
        return state, first.reason
    same = [task for task in failed if explain(statuses[task]) == explain(first)]
    others = f" and {counted(len(same) - 1, 'other')}" if len(same) > 1 else ""
    return state, f"{first.task}{others} {explain(first)}"


def explain(status: TaskStatus) -> str:
    """Return a task's state and reason as text: `failed: exit code 1`."""
    reason = status.reason
    if status.state is State.CANCELLED and status.cause is Cause.PEER_LOST:
        reason = reason.partition(": ")[0]  # the other task has the whole reason
    state = "restarting" if status.state is State.STARTING and reason else status.state.value
    return f"{state}: {reason}" if reason else state


def all_ended(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> bool:
    """Whether every task has ended; a run without tasks has not."""
    tasks = info.task_names()
    return bool(tasks) and all(task in statuses and statuses[task].state.ended for task in tasks)


def state_under_way(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> State:
    """Return the state of a run that has not ended; a submitted run is at least starting."""
    states = [statuses[task].state for task in info.task_names() if task in statuses]
    missing = len(info.task_names()) - len(states)
    state = run_state([*states, *[State.PENDING] * missing])
    submitted = state is State.PENDING and info.submitted_unix is not None
    return State.STARTING if submitted else state
