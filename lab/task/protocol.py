"""What the helper, the task agents and the collector say to each other, all of it as files.

The run volume is the only channel::

    requests/<run_id>.json        a request: what every task agent is to start
    requests/<run_id>.collected   the directory of runs into which all of it was collected
    agents/<task>.json            an agent's presence; its modification time is the heartbeat
    agents/<task>.lock            locked by the agent as long as it lives
    <run_id>/tasks/<task>.jsonl   records, one JSON object a line      (appended by the agent)
    <run_id>/logs/<task>.log      every other line, verbatim            (appended by the agent)
    <run_id>/status/<task>.json   the task's state                      (replaced atomically)
    <run_id>/cancel.json          asks every agent to end the run       (created once)
    <run_id>/kill.json            the same, at once                     (created once)
    <run_id>/start/<task>         tells the task's program to train     (created by its agent)
    <run_id>/faults/<n>.json      a fault that was asked for during the run
    <run_id>/program/             a program of one's own, and its modules (by the helper)
    <run_id>/model/, checkpoints/, tb/<task>/                           (by lab's programs)
    <run_id>/files/               the working directory of all programs, with what they write there
    incoming/<run_id>/            program/, files/ and checkpoints/ before the request is made
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.task.policy import OnFailure
from lab.task.states import Cause, State

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")
TASK = re.compile(r"[a-z]+-(0|[1-9][0-9]{0,4})")

ClusterSpec = Mapping[str, list[str]]
"""TensorFlow's cluster spec: job to list of `host:port`."""


CLUSTER_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "job_name": (),
    "task_index": ("task_id",),
    "ps_hosts": ("ps",),
    "worker_hosts": ("worker",),
}
"""The flags that tell a program who is who in the cluster, each with its other names."""

DATA_DIR: Final = "LAB_DATA_DIR"
"""Names the directory with a student's own data to programs that take no flag for it."""

STALL_S: Final[float] = 300
"""Seconds without a new global step that are too many, where nobody says otherwise."""

READY_S: Final[float] = 120
"""Seconds within which every program must be ready, where nobody says otherwise."""

LOST_CONTACT: Final = "lost contact with"
"""So begins the last word of a program that misses another task."""

LOST_AFTER_S: Final = 15.0
"""An agent whose heartbeat stands still for this long is lost, in seconds."""


_CHIEFS: Final = ("chief-0", "worker-0")


def task_names(cluster: ClusterSpec) -> list[str]:
    """Names of all tasks in the cluster's order, `worker-0` for `/job:worker/task:0`."""
    return [f"{job}-{i}" for job, hosts in cluster.items() for i in range(len(hosts))]


def chief_of(tasks: Collection[str]) -> str | None:
    """The task that initializes and saves: the chief, else the first worker, if any."""
    return next((task for task in _CHIEFS if task in tasks), None)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one task starts, where each task has a program of its own.

    Attributes:
        program: The program's path relative to the run's `program/`.
        cluster_flags: Names of those flags of the cluster that it is started with.
    """

    program: str
    cluster_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One run, as the task agents are to execute it.

    Attributes:
        run_id: The run's name, also its directory's.
        experiment: The experiment's name, or the program's stem.
        program: The program's path, absolute or relative to the scripts directory; where it is
            `own`, relative to the run's `program/`; with `programs`, as the user named them all.
        programs: Task to its program, where each task has its own; empty: all start `program`.
            A task that is not among them starts none.
        own: Whether it is a program of the user's own, which came with the request.
        listing: Whether it is run as it was printed, with TensorFlow 1's API.
        faithful: Whether a listing's polls of 30 seconds stay as they were.
        mend: Whether the known faults of printed synchronous programs are mended.
        cluster_flags: Names of those flags of the cluster that it is started with.
        args: Further arguments of the program, behind the standard flags.
        cluster: TensorFlow's cluster spec of the environment.
        services: Jobs that serve until every other job has ended (`ps`).
        data_dir: Directory with a student's own data, or "" for the data that is shipped.
        submitted_unix: When it was submitted, in seconds since the epoch.
        stall_s: Seconds without a new global step after which the run has failed; 0: no limit.
        ready_s: Seconds within which every program must be ready; 0: no limit.
        start: Task to the moment at which it starts, as `parse_when` reads it; a task that is not
            among them starts with the others.
        on_failure: What becomes of the run when a task fails.
        restarts: How often each task is started again at most.
        gang: Whether all tasks start again together when one does.
        faults: What is to be done to it, as `lab.task.faults` reads it.
        autorun: Digest of what `docker compose up` trains by itself, if this is that run; or "".
        resumed_from: The run whose checkpoints it goes on from, where no client has recorded it; or
            "".
    """

    run_id: str
    experiment: str
    program: str
    args: tuple[str, ...]
    cluster: dict[str, list[str]]
    services: tuple[str, ...] = ("ps",)
    data_dir: str = ""
    submitted_unix: float = 0.0
    own: bool = False
    listing: bool = False
    faithful: bool = False
    mend: bool = False
    cluster_flags: tuple[str, ...] = tuple(CLUSTER_FLAGS)
    programs: Mapping[str, Entry] = field(default_factory=dict)
    stall_s: float = STALL_S
    ready_s: float = 0.0
    start: Mapping[str, str] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.FAIL
    restarts: int = 0
    gang: bool = False
    faults: tuple[str, ...] = ()
    autorun: str = ""
    resumed_from: str = ""

    def tasks(self) -> list[str]:
        """Names of all tasks, in the cluster's order."""
        return task_names(self.cluster)

    def others(self) -> list[str]:
        """Names of the tasks whose end ends the run: all that are no service."""
        return [task for task in self.tasks() if not self.is_service(task)]

    def is_service(self, task: str) -> bool:
        """Whether this task serves the others and ends when they have ended."""
        return task.rpartition("-")[0] in self.services

    def entry(self, task: str) -> Entry | None:
        """What a task starts; None: nothing."""
        if self.programs:
            return self.programs.get(task)
        return Entry(self.program, self.cluster_flags)

    @property
    def chief(self) -> str | None:
        """The task that initializes and saves, if any."""
        return chief_of(self.tasks())

    @property
    def waits(self) -> bool:
        """Whether its program waits for the word to train."""
        return not self.own

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Read it back.

        Raises:
            ValueError: The text is no request.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            tuples: dict[str, Any] = {name: tuple(raw[name]) for name in _TUPLES if name in raw}
            policy = OnFailure(raw.get("on_failure", OnFailure.FAIL))
            programs = {
                task: Entry(each["program"], tuple(each["cluster_flags"]))
                for task, each in raw.get("programs", {}).items()
            }
            request = cls(**{**raw, **tuples, "on_failure": policy, "programs": programs})
            names = request.tasks()
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a request: {error}") from error
        if not isinstance(request.run_id, str) or not RUN_ID.fullmatch(request.run_id):
            raise ValueError(f"not a run id: {request.run_id!r}")
        for name in names:
            if not TASK.fullmatch(name):
                raise ValueError(f"not a task: {name!r}")
        return request


_TUPLES: Final = ("args", "services", "cluster_flags", "faults")


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an earlier start of a task's program ended.

    Attributes:
        reason: Why, in words.
        cause: The same in a word.
        started_unix: When it was started, in seconds since the epoch, or None.
        ended_unix: When it had ended, in seconds since the epoch.
        global_step: The highest that its records have told, or None.
    """

    reason: str
    cause: Cause | None
    started_unix: float | None
    ended_unix: float
    global_step: int | None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state of one task of one run, as its agent last wrote it.

    Attributes:
        task: `worker-0`.
        state: Where it stands.
        attempt: 0 for the first start of the program, one more for each restart.
        reason: Why it stands there, in words; may be empty.
        cause: The same in a word for programs, where it ended otherwise than well.
        exit_code: The program's exit code; None while it runs or when a signal ended it.
        signal: The name of the signal that ended the program (`SIGKILL`), or None.
        pid: The program's process id where it runs, or None.
        started_unix: When the program was started, in seconds since the epoch, or None.
        ended_unix: When it had ended, in seconds since the epoch, or None.
        global_step: The highest that its records have told, or None.
        stepped_unix: When that one came, in seconds since the epoch, or None.
        message: What its newest event says: mostly what it waits for; may be empty.
        earlier: How the attempts before this one ended, the first one first.
        records_sha256: SHA-256 of its records, once it has ended; "" in statuses of earlier
            versions, and of a task that another one had to declare lost.
        records_lost: The number of records that could not be written to the run volume.
    """

    task: str
    state: State
    attempt: int = 0
    reason: str = ""
    cause: Cause | None = None
    exit_code: int | None = None
    signal: str | None = None
    pid: int | None = None
    started_unix: float | None = None
    ended_unix: float | None = None
    global_step: int | None = None
    stepped_unix: float | None = None
    message: str = ""
    earlier: tuple[Attempt, ...] = ()
    records_sha256: str = ""
    records_lost: int = 0

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskStatus:
        """Read it back.

        Raises:
            ValueError: The text is no status.
        """
        try:
            raw = json.loads(text)
            known = {
                "state": State(raw["state"]),
                "cause": _cause(raw.get("cause")),
                "earlier": tuple(
                    Attempt(**{**each, "cause": _cause(each.get("cause"))})
                    for each in raw.get("earlier", ())
                ),
            }
            status = cls(**{**raw, **known})
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a task status: {error}") from error
        fitting = (
            isinstance(getattr(status, name), kinds) for name, kinds in _STATUS_KINDS.items()
        )
        if not all(fitting):
            raise ValueError("not a task status: a field has another type")
        return status


_NUMBER: Final = (int, float, type(None))
_STATUS_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("task", "reason", "message", "records_sha256"), (str,)),
    **dict.fromkeys(("attempt", "records_lost"), (int,)),
    "signal": (str, type(None)),
    **dict.fromkeys(("exit_code", "pid", "global_step"), (int, type(None))),
    **dict.fromkeys(("started_unix", "ended_unix", "stepped_unix"), _NUMBER),
}
"""The types of a status's fields, for a program may write to its file."""


def _cause(word: str | None) -> Cause | None:
    return None if word is None else Cause(word)


@dataclass(frozen=True, slots=True)
class Volume:
    """Where everything lies on the run volume."""

    root: Path
    requests: Path = field(init=False)
    agents: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", self.root / "requests")
        object.__setattr__(self, "agents", self.root / "agents")

    def incoming(self, run_id: str) -> Path:
        """Where a program of one's own arrives, before its run is there."""
        return self.root / "incoming" / run_id

    def program(self, run_id: str) -> Path:
        """Where it lies during the run."""
        return self.run(run_id) / "program"

    def files(self, run_id: str) -> Path:
        """The working directory of a run's programs."""
        return self.run(run_id) / "files"

    def agent(self, task: str) -> Path:
        """The presence of one task's agent."""
        return self.agents / f"{task}.json"

    def life(self, task: str) -> Path:
        """The file that one task's agent has locked as long as it lives."""
        return self.agents / f"{task}.lock"

    def request(self, run_id: str) -> Path:
        """The file of one request."""
        return self.requests / f"{run_id}.json"

    def collected(self, run_id: str) -> Path:
        """The file that names where a run was collected."""
        return self.requests / f"{run_id}.collected"

    def run(self, run_id: str) -> Path:
        """The directory of one run."""
        return self.root / run_id

    def status(self, run_id: str, task: str) -> Path:
        """The state of one task."""
        return self.run(run_id) / "status" / f"{task}.json"

    def records(self, run_id: str, task: str) -> Path:
        """The records of one task."""
        return self.run(run_id) / "tasks" / f"{task}.jsonl"

    def log(self, run_id: str, task: str) -> Path:
        """The other lines of one task."""
        return self.run(run_id) / "logs" / f"{task}.log"

    def cancel(self, run_id: str) -> Path:
        """The file whose presence asks every agent to end the run."""
        return self.run(run_id) / "cancel.json"

    def kill(self, run_id: str) -> Path:
        """The file whose presence asks every agent to end the run at once."""
        return self.run(run_id) / "kill.json"

    def start(self, run_id: str, task: str) -> Path:
        """The file whose presence tells a task's program to train."""
        return self.run(run_id) / "start" / task

    def faults(self, run_id: str) -> Path:
        """Where faults are told that were asked for during the run."""
        return self.run(run_id) / "faults"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a run that comes home.

    Attributes:
        path: Relative to the run's directory, `logs/worker-0.log`.
        offset: Where `data` belongs in the file, in bytes; None: it replaces the whole file.
        data: The bytes.
        fault: Why the file is not collected; then there are no bytes. "": it is collected.
        kept: Whether a file with a fault holds data that stays on the run volume.
    """

    path: str
    offset: int | None
    data: bytes
    fault: str = ""
    kept: bool = False


def new_run_id(experiment: str) -> str:
    """A name for a new run: `20261121-0810-async-7f3a`, where the time is UTC.

    Args:
        experiment: The experiment's name or the program's stem; what a run id may not hold is
            replaced by a hyphen.
    """
    name = re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")[:40].strip("-") or "run"
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime())}-{name}-{secrets.token_hex(2)}"
