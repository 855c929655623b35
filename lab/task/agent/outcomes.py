"""How a task ends: pure functions over the statuses of all tasks, and over the end of its program.

The functions have these arguments in common::

    request     the run
    task        the agent's own task
    statuses    the status of each task
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Final

from lab.base.text import LONGEST_REASON, short
from lab.base.units import memory_for_people
from lab.protocol.records.error_line import CHECKPOINT_PART
from lab.protocol.volume import Request, TaskStatus
from lab.protocol.volume.states import Cause, State, blame, is_optional
from lab.protocol.volume.status import TaskStatuses
from lab.task.agent.process import signal_name
from lab.task.agent.starts import NOT_YET, is_hindered, is_late

_EVALUATOR: Final = "evaluator-"
"""The beginning of the names of tasks that may sleep after the training. Estimator's evaluator
sleeps for ten minutes before its last evaluation by default (`throttle_secs` of EvalSpec)."""

_END_VERBS: Final = {
    State.FAILED: "failed",
    State.LOST: "was lost",
    State.CANCELLED: "was cancelled",
}

LONGER: Final = "if it is only sleeping, use a longer `--stall`"
"""The hint if no task waits for another one."""

LOCALHOST: Final = "each node has its own localhost: use the addresses of the config"
"""The hint if tasks wait for each other at `localhost`."""

_LOCAL_SERVER: Final = re.compile(r"serves at grpc://(?:localhost|127\.0\.0\.1):")


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ends, independent of its program's exit code.

    Attributes:
        state: A state for which `ended` is true.
        reason: Why, as text.
        cause: Why, as a code for programs.
        fix: The end of the reason if it says how to fix it, or "".
    """

    state: State
    reason: str = ""
    cause: Cause | None = None
    fix: str = ""


# ---- while the run is under way


def outcome(  # noqa: PLR0911 (a reason each)
    request: Request,
    task: str,
    statuses: TaskStatuses,
    *,
    elapsed_s: float,
    awaited_s: float,
    unchanged_s: float,
) -> TaskOutcome | None:
    """How the task must end now because of the statuses; None if it continues.

    Args:
        request: The run.
        task: The agent's own task.
        statuses: The status of each task.
        elapsed_s: Seconds since the run was submitted.
        awaited_s: Seconds for which there was an `awaited_task`.
        unchanged_s: Seconds for which the `progress` was the same.
    """
    mine = statuses[task]
    if mine.state.ended:  # it is lost or unreadable, and the other agents see an end
        return TaskOutcome(mine.state, mine.reason, mine.cause)
    if reason := peer_failure(request, task, statuses):
        return TaskOutcome(State.CANCELLED, reason, Cause.PEER_LOST)
    if is_service(request, task) and others_ended(request, statuses):
        return TaskOutcome(State.SUCCEEDED)
    if is_out_of_time(request, elapsed_s):
        return None  # the agents cancel the run
    if is_late(request, task, statuses, awaited_s):
        return TaskOutcome(State.FAILED, _late_reason(request, mine), Cause.TIME_OUT)
    if is_stalled(request, task, statuses, unchanged_s):
        reason = short(_stall_reason(request, statuses), LONGEST_REASON)
        return TaskOutcome(State.FAILED, reason, Cause.STALLED)
    return None


def is_service(request: Request, task: str) -> bool:
    """Whether the task ends when all other tasks have ended.

    In a cluster of services only, there is no other task to wait for.
    """
    return request.spec.is_service(task) and bool(request.others())


def others_ended(request: Request, statuses: TaskStatuses) -> bool:
    """Whether all tasks except the services have ended."""
    return all(statuses[task].state.ended for task in request.others())


def is_out_of_time(request: Request, elapsed_s: float) -> bool:
    """Whether the run has reached its time limit."""
    return 0 < request.spec.max_time_s <= elapsed_s


def peer_failure(request: Request, task: str, statuses: TaskStatuses) -> str | None:
    """The end of another task that must end this one too; None if there is none.

    Failed tasks are reported before lost and cancelled ones, which are often a consequence.
    """
    ended = [
        status
        for other, status in statuses.items()
        if other != task
        and status.state in _END_VERBS
        and not is_optional(request.spec, other, statuses)
    ]
    if not ended:
        return None
    first = min(ended, key=blame)
    if first.state is State.CANCELLED and first.cause is Cause.PEER_LOST:
        return first.reason  # it names the task that ended first
    return short(f"{first.task} {_END_VERBS[first.state]}: {first.reason}", LONGEST_REASON)


def _late_reason(request: Request, mine: TaskStatus) -> str:
    """Why a program that is late is not ready: its message. The client shows its last lines."""
    stall = f"--stall={2 * request.spec.ready_s:g}s"
    if request.autorun:
        stall = f'LAB_RUN="{request.spec.experiment} {stall}"'
    reason = f"not ready within {request.spec.ready_s:g} s ({stall} allows more)"
    return short(f"{reason}: {mine.message}" if mine.message else reason, LONGEST_REASON)


# ---- a stalled run


def progress(request: Request, statuses: TaskStatuses) -> object:
    """What changes while a run makes progress: its global step, or else its signs of life.

    After a restart from a checkpoint, tasks that have ended may have a higher step, so they do not
    count.
    """
    active = _active(request, statuses)
    steps = _steps(active)
    if _counts_steps(request, active):
        return max(steps, default=None)
    return [(status.task, status.attempt, status.state, status.signs_of_life) for status in active]


def must_progress(request: Request, statuses: TaskStatuses) -> bool:
    """Whether a run that makes no progress now is stalling.

    A program that counts its steps may wait until all tasks are ready. An evaluator may sleep after
    the training.
    """
    active = _active(request, statuses)
    if active and all(status.task.startswith(_EVALUATOR) for status in active):
        return False
    is_starting = any(status.state in NOT_YET for status in active)
    return not (request.spec.waits and is_starting and not _steps(active))


def is_stalled(request: Request, task: str, statuses: TaskStatuses, unchanged_s: float) -> bool:
    """Whether the run has stalled, and this task reports it: the first one that has not ended.

    Args:
        request: The run.
        task: The agent's own task.
        statuses: The status of each task.
        unchanged_s: Seconds for which the `progress` was the same.
    """
    active = _active(request, statuses)
    is_reporter = bool(active) and active[0].task == task
    return is_reporter and 0 < request.spec.stall_s <= unchanged_s


def _active(request: Request, statuses: TaskStatuses) -> list[TaskStatus]:
    return [statuses[task] for task in request.others() if not statuses[task].state.ended]


def _steps(active: Iterable[TaskStatus]) -> list[int]:
    return [status.global_step for status in active if status.global_step is not None]


def _counts_steps(request: Request, active: Iterable[TaskStatus]) -> bool:
    """Whether the run's programs count their steps. Programs of `lab` do."""
    return request.spec.waits or bool(_steps(active))


def _stall_reason(request: Request, statuses: TaskStatuses) -> str:
    active, limit = _active(request, statuses), f"{request.spec.stall_s:g} s"
    steps, counts = _steps(active), _counts_steps(request, active)
    # First those that the others wait for: a long reason is cut.
    by_cause = sorted(active, key=lambda status: not is_hindered(status))
    details = ", ".join(_describe(status, counts=counts) for status in by_cause)
    if counts:
        last = f"the last one was {max(steps):,}" if steps else "no step was made"
        return f"no new global step for {limit}, {last} ({details})"
    hint = "" if any(status.message for status in active) else f"; {LONGER}"
    if len(active) > 1 and any(_LOCAL_SERVER.search(status.message) for status in active):
        hint = f"; {LOCALHOST}"
    return f"no sign of life for {limit} ({details}){hint}"


def _describe(status: TaskStatus, *, counts: bool) -> str:
    if status.message:
        return f"{status.task} {status.message}"
    if not counts:
        return f"{status.task} is silent"
    if status.global_step is None:
        return f"{status.task} made no step"
    return f"{status.task} made its last step at {status.global_step:,}"


# ---- after the end of its program


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program has ended.

    Attributes:
        code: Its exit code, negative for a signal.
        error_line: The line of its output that names its error, or "".
        last_line: The last other line that it printed, or "".
        lost_contact: Whether its final record reports the loss of another task.
        out_of_memory: Whether the kernel killed a process of this container for lack of memory.
        host_out_of_memory: The same for a process of this session or job, or of this host.
        fault: The injected fault that ended it, or "".
    """

    code: int
    error_line: str = ""
    last_line: str = ""
    lost_contact: bool = False
    out_of_memory: bool = False
    host_out_of_memory: bool = False
    fault: str = ""


def failed(end: ProgramEnd, *, ps_count: int = 0) -> TaskOutcome:
    """The outcome of a program that failed without being stopped.

    Args:
        end: How the program has ended.
        ps_count: The number of the cluster's parameter servers.
    """
    code, message = end.code, end.error_line
    if code >= 0:
        why = f"exit code {code}"
        cause = Cause.PEER_LOST if end.lost_contact else Cause.EXIT_CODE
    elif code == -signal.SIGKILL and end.out_of_memory:
        why, cause = "killed: out of memory", Cause.OUT_OF_MEMORY
    else:
        why, cause = f"killed by {signal_name(-code)}", Cause.SIGNAL
        if code == -signal.SIGKILL and end.host_out_of_memory and not end.fault:
            # The counter does not name the process.
            why += ", probably out of memory: the kernel has killed a process for that"
        if code == -signal.SIGBUS:
            why += f", probably out of shared memory: {SHARED_MEMORY}"
    if end.fault:
        return TaskOutcome(State.FAILED, f"{why} (the injected fault `{end.fault}`)", cause)
    if message:
        message, fix = explained(message, ps_count)
        # The exit code of every Python program with an exception or a message is 1.
        why = message if code == 1 else f"{why}: {message}"
        return TaskOutcome(State.FAILED, f"{why}; {fix}" if fix else why, cause, fix)
    if code >= 0 and end.last_line:
        why += f"; its last line: {end.last_line}"
    return TaskOutcome(State.FAILED, why, cause)


def stopped(
    decided: TaskOutcome, own: TaskOutcome, end: ProgramEnd, statuses: TaskStatuses
) -> TaskOutcome:
    """The outcome of a program that ended after its agent had decided to stop it.

    An error of its own is often a consequence of the other task's failure. It counts if that task
    failed for the same reason, or if every task that failed had only lost another one.

    Args:
        decided: Why the agent wanted to stop it.
        own: The outcome if it had failed by itself.
        end: How the program has ended.
        statuses: The status of each task.
    """
    if decided.cause is not Cause.PEER_LOST or not end.error_line:
        return decided
    is_same = end.code > 0 and decided.reason.endswith(f" failed: {own.reason}")
    causes = {status.cause for status in statuses.values() if status.state is State.FAILED}
    is_first = causes == {Cause.PEER_LOST} and not end.lost_contact
    return own if is_same or is_first else decided


# ---- hints for programs that fail because a pseudo-cluster is not what they expect

NO_INTERNET: Final = "tasks have no Internet"
DOWNLOAD: Final = f"{NO_INTERNET}; put the file next to the program or into data/"
CHIEF: Final = "give the config a job named chief, as in clusters/estimator.yaml"
KERAS_2: Final = "this is Keras 3; for a program of Keras 2 add --framework tensorflow-2.15"
ONE_FILE: Final = "another task has opened the same file; let only one task write it"
FEWER_TASKS: Final = (
    "the cluster in the program has fewer tasks than the config;"
    " use a config with the program's tasks"
)
NO_GPU: Final = "the task has no GPU; use a config with GPUs, or test torch.cuda.is_available()"

_SHM: Final = Path("/dev/shm")  # noqa: S108  (the tasks' own)
_SHM_SIZE: Final = memory_for_people(disk_usage(_SHM).total) if _SHM.exists() else "none"
SHARED_MEMORY: Final = (
    f"{_SHM} has {_SHM_SIZE}; in containers, `shm` of a node in the config sets it"
)

# Messages of a host that was not found or not reached. An HTTP error is an answer of the host.
_NO_ADDRESS: Final = r"Name or service not known|name resolution|No address|unreachable|No route to"
# The URL names a file, and the program reads the file's copy, or reads the URL like a path.
_FILE: Final = re.compile(
    r"URL fetch failure on \S+ (?!\d{3} )"  # Keras: "…: None -- [Errno -2] …", "…: 404 -- …"
    r"|libcurl code (?:5|6|7|28) "  # tf.io, for gs:// and https://
    r"|File system scheme '(?:gs|s3|https?|hdfs)' not implemented"
)
_NO_ANSWER: Final = re.compile(
    rf"<urlopen error .*(?:{_NO_ADDRESS}|timed out|Tunnel connection failed)"
    rf"|\b(?:gaierror|ConnectError|ConnectionError|OSError): .*(?:{_NO_ADDRESS})"
    r"|HTTPS?ConnectionPool\(host='(?!localhost'|127\.)[^']*', port=\d+\): Max retries exceeded"
    r"|ClientConnectorError: Cannot connect to host "
    r"|LocalEntryNotFoundError: |couldn't connect to 'https?://"  # Hugging Face
)


_HINTS: Final = (
    (_FILE, DOWNLOAD),
    (_NO_ANSWER, NO_INTERNET),
    # Estimator's RunConfig.
    (re.compile(r'"cluster" is set in TF_CONFIG, it must have one "chief" node'), CHIEF),
    (
        re.compile(r'Task \d+ was not defined in job "|Job "[^"]*" was not defined in cluster'),
        FEWER_TASKS,
    ),
    (re.compile(r"KerasTensor|Keras 3\b|module 'keras\.(?!api)[\w.]*' has no|\{'lr': "), KERAS_2),
    (
        re.compile(
            r"out of shared memory|insufficient shared memory|shared memory\(shm\)"
            r"|</torch_\S+>: No space left|/dev/shm/\S+.*No space left"
        ),
        SHARED_MEMORY,
    ),
    (
        re.compile(
            r"doesn't have NCCL built in|'_cuda_setDevice'|Torch not compiled with CUDA"
            r"|Found no NVIDIA driver|No CUDA GPUs are available|no GPUs found"
        ),
        NO_GPU,
    ),
    # HDF5 locks a file; its tasks share a directory, unlike those of several hosts.
    (re.compile(r"\[Errno 11\] Unable to .*lock file"), ONE_FILE),
)


_CHECKPOINT_PART: Final = re.compile(
    rf"(\S+?)/[^/\s;]+(?:{CHECKPOINT_PART})"
    r"(?:; No such file or directory| did not exist| not found)"
)


def explained(message: str, ps_count: int) -> tuple[str, str]:
    """Return what a failed program's message means, and how to fix it; "" if that is not known.

    Each parameter server writes its part of a checkpoint, and one task joins the parts. This fails
    if each task has its own copy of the directory, such as `/tmp` in containers.

    Args:
        message: The line with the reason of the failure.
        ps_count: The number of the cluster's parameter servers.
    """
    part = _CHECKPOINT_PART.search(message)
    if part and ps_count:
        who = "parameter servers do" if ps_count > 1 else "parameter server and the workers do"
        return f"the {who} not share {part[1]}", "use a relative path"
    fix = next((hint for error, hint in _HINTS if error.search(message)), "")
    return message.rstrip(".") if fix else message, fix
