"""The life of a run besides its collection: recorded, submitted, described, finished.

All that another client needs to go on with a run is in `runs/<id>/` and on the run volume.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import PurePosixPath

from lab.backends import Environment
from lab.run.run_info import RunInfo
from lab.run.store import OpenRun, read_statuses
from lab.run.summarize import sum_up
from lab.run.summary import Summary, write_summary
from lab.task.agent.appender import AppendedContent
from lab.task.protocol import Request, TaskStatus
from lab.task.protocol.policy import outcome
from lab.task.protocol.states import State, run_state


def record_environment(run: OpenRun, environment: Environment) -> None:
    """Write into `run.json` what the run really runs on."""
    tasks = tuple(asdict(task) for task in environment.tasks())
    for task in tasks:
        del task["alive"], task["detail"]
    run.update(
        backend=environment.backend,
        project=environment.project,
        cluster=environment.cluster_spec(),
        tasks=tasks,
        gpus=tuple(dict.fromkeys(gpu for task in tasks for gpu in task["gpus"])),
    )


def describe(run: OpenRun, environment: Environment) -> None:
    """Write into `run.json`, and beside it, what the environment was made from.

    An engine needs half a second for the answer, in which the programs of a run may start.
    """
    name, text = environment.description()
    (run.directory.path / PurePosixPath(name).name).write_text(text, encoding="utf-8")
    run.update(provenance=environment.provenance())


def submit(run: OpenRun, environment: Environment) -> None:
    """Submit the run to the agents.

    Raises:
        LabError: Another run is under way in this environment.
    """
    info, directory = run.info, run.directory
    now = time.time()
    parts = {"program": directory.program} if info.spec.own else {}
    if directory.files.is_dir():
        parts["files"] = directory.files
    if info.spec.resumed_from:
        parts["checkpoints"] = directory.checkpoints
    environment.submit(Request(info.run_id, info.spec, info.cluster, now), parts)
    run.update(state=State.STARTING, submitted_unix=now)


def finish(run: OpenRun) -> Summary:
    """Summarize the run; if all of its tasks have ended, write `run.json` and the summary.

    The ends of its tasks count more than the reason for which a client stopped following.

    Returns:
        The summary; its state is the run's, ended or not.
    """
    info = run.info
    statuses = read_statuses(run.directory, info)
    if not info.state.ended or all_ended(info, statuses):
        state, reason = verdict(info, statuses)
        altered = _altered(run, statuses) if state is State.SUCCEEDED else None
        if altered is not None:
            state, reason = State.FAILED, f"the records of {altered} were changed after its end"
        ended = [each.ended_unix for each in statuses.values() if each.ended_unix is not None]
        stopped = (max(ended) if ended else time.time()) if state.ended else None
        info = run.update(state=state, reason=reason, stopped_unix=stopped)
    summary = sum_up(run.directory, info, statuses)
    if info.state.ended:
        write_summary(run.directory, summary)
    return summary


def _altered(run: OpenRun, statuses: Mapping[str, TaskStatus]) -> str | None:
    """The first task whose collected records are not those that its agent has written."""
    left = {each.path for each in run.info.left}
    for task, status in statuses.items():
        path = run.directory.records(task)
        if not status.records_sha256 or f"tasks/{path.name}" in left:
            continue
        written = AppendedContent.of(path)
        if written.sha256 != status.records_sha256:
            return task
    return None


def mark_ended(run: OpenRun, state: State, reason: str) -> None:
    """End a run for a reason that its tasks do not know."""
    if not run.info.state.ended:
        run.update(state=state, reason=reason, stopped_unix=time.time())


def abort(run: OpenRun, state: State, reason: str) -> None:
    """End a run that broke off, and summarize it; the ends of its tasks go first."""
    if not State(finish(run).state).ended:
        mark_ended(run, state, reason)
        finish(run)


def verdict(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> tuple[State, str]:
    """The run's state, and why, from the states of its tasks; a pure function.

    The worst end of a task is the run's, and the first task that ended so is the reason.
    """
    names = [name for name in info.task_names() if name in statuses]
    if not all_ended(info, statuses):
        return state_under_way(info, statuses), info.reason
    state, failed = outcome(info, {name: statuses[name] for name in names})
    if state is State.SUCCEEDED:
        return state, ""
    first = statuses[failed[0]]
    return state, first.reason if state is State.CANCELLED else f"{first.task} {explain(first)}"


def has_gone(environment: Environment) -> bool:
    """Whether no agent is left in an environment.

    Raises:
        LabError: The engine does not answer.
    """
    return not any(task.alive for task in environment.tasks())


def explain(status: TaskStatus) -> str:
    """A task's state and reason as text: `failed: exit code 1`."""
    reason = status.reason
    if status.state is State.SUCCEEDED and not reason:
        return status.state.value
    if not reason and status.signal:
        reason = status.signal
    if not reason and status.exit_code is not None:
        reason = f"exit code {status.exit_code}"
    return f"{status.state.value}: {reason}" if reason else status.state.value


def all_ended(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> bool:
    """Whether every task has ended."""
    return all(task in statuses and statuses[task].state.ended for task in info.task_names())


def state_under_way(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> State:
    """The state of a run that has not ended; once it was submitted, it has begun."""
    states = [statuses[task].state for task in info.task_names() if task in statuses]
    missing = len(info.task_names()) - len(states)
    found = run_state([*states, *[State.PENDING] * missing])
    begun = found is State.PENDING and info.submitted_unix is not None
    return State.STARTING if begun else found
