"""The steps of a run except its collection: record, submit, describe, finish; with patience.

Everything that another client needs to continue a run is in `runs/<id>/` and on the run volume.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final, TypeVar

from lab.backends.environment import Environment
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.protocol.volume import Request, TaskStatus
from lab.protocol.volume.files import Patience
from lab.protocol.volume.layout import PACKAGES, TASK, ClusterSpec
from lab.protocol.volume.states import State
from lab.runner.store.directory import OpenRun, altered_task, read_statuses
from lab.runner.store.run_info import TaskRow
from lab.runner.store.summarize import sum_up
from lab.runner.store.summary import Summary, write_summary
from lab.runner.verdict import all_ended, verdict

T = TypeVar("T")

DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
"""The errors of a disk that is full or fails, and not of one file."""

REFUSED_S: Final = 30.0
"""Seconds for which a client waits for a run store that refuses writes; the run continues."""

PATIENCE_S: Final = 5.0
"""Seconds that an engine has to answer a question about a run."""

_RETRY_S: Final = 1.0


def record_environment(run: OpenRun, environment: Environment, cluster: ClusterSpec) -> None:
    """Write the environment into `run.json`: backend, cluster, tasks and GPUs.

    If only the run volume is left of the environment, the recorded tasks stay.
    """
    rows = (
        TaskRow(task=each.task, node=each.node, address=each.address, gpus=each.gpus)
        for each in environment.tasks()
    )
    tasks = tuple(rows) or run.info.tasks
    run.update(
        backend=environment.backend,
        project=environment.project,
        cluster=cluster,
        tasks=tasks,
        gpus=tuple(dict.fromkeys(gpu for task in tasks for gpu in task["gpus"])),
    )


def describe(run: OpenRun, environment: Environment) -> None:
    """Write the environment's provenance into `run.json`, and its description beside it.

    This comes after the submission: an engine needs half a second for the answer, and the programs
    can start meanwhile. An error only causes a warning.
    """
    try:
        name, text = environment.boot_file()
        (run.directory.path / PurePosixPath(name).name).write_text(text, encoding="utf-8")
        run.update(provenance=environment.provenance())
    except (LabError, OSError) as error:
        problem = error.what if isinstance(error, LabError) else str(error)
        LOG.warning(f"{problem}; run.json does not describe the environment")


def submit(run: OpenRun, environment: Environment) -> None:
    """Submit the run to the agents; `run.info` then has its times, `run.json` not yet.

    Raises:
        LabError: Another run is under way in this environment.
    """
    info, directory = run.info, run.directory
    offset_s = environment.clock_offset_s()
    now = time.time() + offset_s
    parts = {"program": directory.program} if info.spec.own else {}
    if directory.files.is_dir():
        parts["files"] = directory.files
    if info.spec.resumed_from:
        parts["checkpoints"] = directory.checkpoints
    if info.spec.packages:
        from lab.programs.packages import folder_of  # noqa: PLC0415  (few runs have any)

        parts[PACKAGES] = folder_of(info.spec.packages)
    # The run begins for its agents when its parts are on the run volume.
    environment.submit(Request(info.run_id, info.spec, info.cluster), parts)
    started = info.started_unix + offset_s
    with suppress(LabError):  # the run has begun: an approximate time is enough
        times = {request.run_id: request.submitted_unix for request in environment.runs()}
        now = times.get(info.run_id, now)  # every client of the run records this time
    run.info = replace(info, state=State.STARTING, started_unix=started, submitted_unix=now)


def finish(run: OpenRun) -> Summary:
    """Summarize the run; if all of its tasks have ended, write `run.json` and the summary.

    The final states of its tasks override the reason for which a client stopped following.

    Returns:
        The summary, with the run's state, ended or not.
    """
    info = run.info
    statuses = read_statuses(run.directory, info)
    if not info.state.ended or all_ended(info, statuses):
        state, reason = verdict(info, statuses)
        if state is State.SUCCEEDED and (task := altered_task(run.directory, info, statuses)):
            reason = f"the collected records of {task} are not those that its agent wrote"
            state = State.FAILED
        ended = [status.ended_unix for status in statuses.values() if status.ended_unix is not None]
        stopped = (max(ended) if ended else time.time()) if state.ended else None
        info = run.update(state=state, reason=reason, stopped_unix=stopped)
    summary = sum_up(run.directory, info, statuses, run.progress)
    if info.state.ended:
        write_summary(run.directory, summary)
    return summary


def abort(run: OpenRun, state: State, reason: str) -> Summary:
    """Mark a run as ended and summarize it; the final states of its tasks take precedence."""
    if not run.info.state.ended and not has_ended(run):
        run.update(state=state, reason=reason, stopped_unix=time.time())
    return finish(run)


def task_of(path: str, directory: str, suffix: str) -> str | None:
    """Return the task that a path belongs to: for `tasks/ps-0.jsonl`, `tasks`, `.jsonl`: `ps-0`.

    None if the path has another directory or suffix.
    """
    parts = PurePosixPath(path).parts
    if len(parts) == 2 and parts[0] == directory and parts[1].endswith(suffix):  # noqa: PLR2004
        name = parts[1].removesuffix(suffix)
        return name if TASK.fullmatch(name) else None
    return None


def status_in(path: str, data: bytes) -> TaskStatus | None:
    """Return the task status in a collected file; None if it is not a status file."""
    if not task_of(path, "status", ".json"):
        return None
    return TaskStatus.from_json(data.decode("utf-8", errors="replace"))


def statuses_of(environment: Environment, run_id: str) -> dict[str, TaskStatus]:
    """Return the status of every task of a run, by task name.

    Raises:
        LabError: The run does not exist, or its run volume cannot be read.
    """
    statuses: dict[str, TaskStatus] = {}
    for chunk in environment.stream(run_id, {}, follow=False):
        if chunk is not None and not chunk.fault and (status := status_in(chunk.path, chunk.data)):
            statuses[status.task] = status
    return statuses


def under_way(
    environment: Environment, requests: Sequence[Request], *, besides: str = ""
) -> str | None:
    """Return the run of an environment that has not ended, if there is one.

    Args:
        environment: The environment.
        requests: All of its runs, the oldest first.
        besides: A run to ignore.

    Raises:
        LabError: The run volume cannot be read.
    """
    others = [request for request in requests if request.run_id != besides]
    for request in others[-1:]:  # earlier runs had ended before this one was submitted
        statuses = statuses_of(environment, request.run_id)
        if not all(status.state.ended for status in statuses.values()):
            return request.run_id
    return None


def has_stopped(environment: Environment) -> bool:
    """Whether no agent of an environment runs any more.

    Raises:
        LabError: The engine does not answer.
    """
    return not any(task.alive for task in environment.tasks())


def has_ended(run: OpenRun) -> bool:
    """Whether every task of a run has ended, as far as its collected statuses show.

    Raises:
        LabError: A status cannot be read.
    """
    return all_ended(run.info, read_statuses(run.directory, run.info))


def patiently(
    action: Callable[[], T],
    wait: Callable[[], None] = lambda: None,
    size: Callable[[], int] = lambda: 0,
) -> T:
    """Repeat an action while the run store refuses writes.

    Args:
        action: The action. If it fails only after `REFUSED_S`, the disk has accepted writes since.
        wait: Called before each repetition.
        size: Returns the bytes that are written. If they have changed since the last refusal, the
            disk has accepted writes since.

    Raises:
        OSError: The run store refuses writes for `REFUSED_S`.
    """

    def refused(error: OSError) -> None:
        cause = (error.strerror or str(error)).lower()
        LOG.warning(f"the run store cannot be written: {cause}; the run continues")

    patience = Patience(REFUSED_S, refused)
    while True:
        began = time.monotonic()
        try:
            return action()
        except OSError as error:
            if time.monotonic() - began > REFUSED_S:
                patience.succeed()
            if error.errno not in DISK_ERRORS or patience.fail(error, progress=size()):
                raise
        time.sleep(_RETRY_S)
        wait()
