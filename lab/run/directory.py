"""The run: its directory `runs/<id>/`, and `run.json`: what it was and where it stands."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypedDict

from lab.errors import InputError, LabError
from lab.run.typed import convert
from lab.strict_json import dump, parse
from lab.task.experiments import EXPERIMENTS, defaults, hyperparameters
from lab.task.files import read_regular, write_atomically
from lab.task.policy import OnFailure
from lab.task.protocol import (
    CLUSTER_FLAGS,
    RUN_ID,
    STALL_S,
    TASK,
    Entry,
    Request,
    chief_of,
    task_names,
)
from lab.task.states import State
from lab.task.text import short

FORMAT: Final = 1
"""The version of `run.json`; a reader refuses a later one."""

_GLANCE_S: Final = 0.5
"""Who looks whether a run is followed holds its lock for a moment, which turns nobody away."""


class TaskRow(TypedDict, total=False):
    """Where a task ran: `worker-0`, its node, `host:port` of its server, its GPUs' ids."""

    task: str
    node: str
    address: str
    gpus: tuple[str, ...]


_LATEST: Final = 1e11
"""Seconds since the epoch that can be shown as a date: up to the year 5138."""


@dataclass(frozen=True, slots=True)
class Left:
    """A file of a run that was not collected.

    Attributes:
        path: Relative to the run's directory.
        reason: Why.
        kept: Whether it holds data, for which the run volume stays.
    """

    path: str
    reason: str
    kept: bool


DEFAULT_RUNS_DIR: Final = "runs"
LAST: Final = "last"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What `run.json` holds.

    Attributes:
        run_id: The run's name, also its directory's.
        experiment: The experiment's name.
        program: The program's path in `scripts/`; where it is `own`, in the run's `program/`; with
            `programs`, as the user named them all.
        programs: Task to its program, where each task has its own; empty: all start `program`.
        own: Whether it is a program of the user's own, which the run has a copy of.
        listing: Whether it is run as it was printed, with TensorFlow 1's API.
        faithful: Whether a listing's polls of 30 seconds stay as they were.
        mend: Whether the known faults of printed synchronous programs are mended.
        cluster_flags: Names of those flags of the cluster that it is started with.
        state: Where the run stands.
        reason: Why it stands there, in words; may be empty.
        backend: `local` or `compose`; empty while none is chosen.
        project: The name of the environment that it runs in.
        argv: The program's arguments behind the standard flags.
        hyperparameters: Those of `argv` that are flags of the program, with their values.
        seed: The seed that was given, or chosen; None where the program takes none.
        data_dir: Directory with a student's own data, or "".
        cluster: TensorFlow's cluster spec.
        cluster_file: The description that it was made from, or "" where it is not known.
        cluster_sha256: The description's digest.
        services: Jobs that serve until every other job has ended.
        tasks: Task, node, address and GPUs of every task, in the plan's order.
        gpus: Device ids of all cards that the run could see.
        plan: The placement, as it was booted; None in an environment that was up before.
        git: `commit` and `dirty` of the project's directory, or None outside a repository.
        versions: Of lab, Python and the libraries of this side.
        provenance: What really ran: image digest or interpreter, engine or kernel.
        stall_s: Seconds without a new global step after which it has failed; 0: no limit.
        ready_s: Seconds within which every program must be ready; 0: no limit.
        start: Task to the moment at which it starts, where that is not with the others.
        on_failure: What becomes of the run when a task fails.
        restarts: How often each task is started again at most.
        gang: Whether all tasks start again together when one does.
        faults: What is to be done to it, a line each.
        resumed_from: The run whose checkpoints it goes on from, or "".
        epoch_workers: How many workers' epochs make its end, as it was for the first run that it
            goes on from; 0: its own.
        started_unix: When the run was asked for, in seconds since the epoch.
        submitted_unix: When it was handed to the agents, in seconds since the epoch, or None.
        stopped_unix: When its last task had ended, in seconds since the epoch, or None.
        collected: Whether all files except `left` were collected after the last task had
            ended.
        left: The files that could not be collected.
    """

    run_id: str
    experiment: str
    program: str = ""
    state: State = State.PENDING
    reason: str = ""
    backend: str = ""
    project: str = ""
    argv: tuple[str, ...] = ()
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    data_dir: str = ""
    cluster: Mapping[str, list[str]] = field(default_factory=dict)
    cluster_file: str = ""
    cluster_sha256: str = ""
    services: tuple[str, ...] = ("ps",)
    tasks: tuple[TaskRow, ...] = ()
    gpus: tuple[str, ...] = ()
    plan: Mapping[str, Any] | None = None
    git: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    started_unix: float = 0.0
    submitted_unix: float | None = None
    stopped_unix: float | None = None
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
    resumed_from: str = ""
    epoch_workers: int = 0
    collected: bool = False
    left: tuple[Left, ...] = ()
    format: int = FORMAT

    @classmethod
    def of_request(cls, request: Request, *, backend: str, project: str) -> RunInfo:
        """What is known of a run that was begun without this helper."""
        experiment = None if request.own else EXPERIMENTS.get(request.experiment)
        parameters = (
            defaults(experiment) | hyperparameters(experiment, request.args) if experiment else {}
        )
        seed = parameters.get("seed")
        return cls(
            run_id=request.run_id,
            experiment=request.experiment,
            program=request.program,
            state=State.STARTING,
            backend=backend,
            project=project,
            argv=request.args,
            hyperparameters=parameters,
            seed=seed if isinstance(seed, int) else None,
            resumed_from=request.resumed_from,
            data_dir=request.data_dir,
            cluster=request.cluster,
            services=request.services,
            started_unix=request.submitted_unix,
            submitted_unix=request.submitted_unix,
            own=request.own,
            listing=request.listing,
            faithful=request.faithful,
            mend=request.mend,
            cluster_flags=request.cluster_flags,
            programs=request.programs,
            stall_s=request.stall_s,
            ready_s=request.ready_s,
            start=request.start,
            on_failure=request.on_failure,
            restarts=request.restarts,
            gang=request.gang,
            faults=request.faults,
        )

    def task_names(self) -> list[str]:
        """Names of all tasks, in the cluster's order."""
        return task_names(self.cluster)

    @property
    def chief(self) -> str | None:
        """The task that initializes and saves, if any."""
        return chief_of(self.task_names())

    @property
    def has_started(self) -> bool:
        """Whether agents received the run."""
        return self.submitted_unix is not None

    def is_service(self, task: str) -> bool:
        """Whether this task serves the others and ends when they have ended."""
        return task.rpartition("-")[0] in self.services

    def to_json(self) -> str:
        """Indented JSON with a final line end."""
        return dump(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunInfo:
        """Read it back.

        Raises:
            ValueError: The text is no `run.json` of this format.
        """
        raw = parse(text)
        later = raw.get("format")
        if isinstance(later, int) and later > FORMAT:
            raise ValueError(f"written by a later lab (format {later})")
        unknown = raw.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"its key {short(min(unknown))!r} is not known")
        info = convert(raw, cls)
        for name in ("started_unix", "submitted_unix", "stopped_unix"):
            if not 0 <= (getattr(info, name) or 0) <= _LATEST:
                raise ValueError(f"its {name} is no time")
        for name, hosts in info.cluster.items():
            if not TASK.fullmatch(f"{name}-{len(hosts)}"):
                raise ValueError(f"its cluster has a job {short(name)!r}, which is no job's name")
        return info


@dataclass(frozen=True, slots=True)
class RunDir:
    """One run's directory at home."""

    path: Path

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def info_path(self) -> Path:
        """`run.json`."""
        return self.path / "run.json"

    @property
    def program(self) -> Path:
        """The copy of a program of the user's own, with the modules beside it."""
        return self.path / "program"

    @property
    def original(self) -> Path:
        """Files of `program/` as they were before they were converted; often missing."""
        return self.path / "original"

    @property
    def files(self) -> Path:
        """The programs' working directory: data files that came with them, and what they wrote."""
        return self.path / "files"

    @property
    def checkpoints(self) -> Path:
        """Its checkpoints, as they came home, or as they are to go on from."""
        return self.path / "checkpoints"

    @property
    def summary_path(self) -> Path:
        """`summary.json`."""
        return self.path / "summary.json"

    @property
    def gpu_samples(self) -> Path:
        """What the cards did while somebody followed, one JSON object a line; often missing."""
        return self.path / "gpu.jsonl"

    def records(self, task: str) -> Path:
        """The records of one task, one JSON object a line."""
        return self.path / "tasks" / f"{task}.jsonl"

    def log(self, task: str) -> Path:
        """The other lines of one task."""
        return self.path / "logs" / f"{task}.log"

    def status(self, task: str) -> Path:
        """The state of one task."""
        return self.path / "status" / f"{task}.json"

    def create(self, info: RunInfo) -> None:
        """Make the directory and write `run.json`, before anything starts.

        Raises:
            FileExistsError: The directory is there already.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir()
        self.write(info)

    def discard(self) -> None:
        """Remove the directory of a run that did not start, as far as the file system permits."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, info: RunInfo) -> None:
        """Replace `run.json` atomically."""
        write_atomically(self.info_path, info.to_json())

    def update(self, **changes: Any) -> RunInfo:  # noqa: ANN401  (fields of RunInfo)
        """Change fields of `run.json` and return it."""
        info = replace(self.read(), **changes)
        self.write(info)
        return info

    def read(self) -> RunInfo:
        """Read `run.json`.

        Raises:
            LabError: It is missing or unreadable.
        """
        try:
            return RunInfo.from_json(read_regular(self.info_path))
        except FileNotFoundError:
            raise LabError(
                f"{self.info_path} is missing", f"bring it home with `lab collect {self.run_id}`"
            ) from None
        except ValueError as error:
            raise LabError(f"{self.info_path}: {error}", "move that directory away") from error

    def complete(self) -> bool:
        """Whether the run has ended and all of it is at home.

        That it was given up on is no end: its tasks may still train.
        """
        if not (self.info_path.is_file() and self.summary_path.is_file()):
            return False
        info = self.read()
        return info.state.ended and info.collected

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other collectors of this run away; the lock ends with its process.

        Raises:
            LabError: Another process collects this run.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if not _lock(descriptor):
                raise LabError(
                    f"run {self.run_id} is being collected by another process",
                    "wait until it has ended",
                )
            yield
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Take the lock of a run's directory; False where another process keeps it."""
    give_up = time.monotonic() + _GLANCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                return False
            time.sleep(0.01)
        else:
            return True


def runs_dir(given: str | None) -> Path:
    """Where runs are kept: the flag, `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: It is there and is no directory.
    """
    path = Path(given or os.environ.get("LAB_RUNS_DIR") or DEFAULT_RUNS_DIR)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is no directory", "name another one with --runs-dir")
    return path


def all_runs(home: Path) -> list[RunDir]:
    """Every run at home, oldest first; what is no run is passed over.

    Those whose `run.json` cannot be read come before all others: nobody knows when they began.
    """
    if not home.is_dir():
        return []
    found = [RunDir(path) for path in home.iterdir() if (path / "run.json").is_file()]
    return sorted(found, key=lambda run: (_begun(run), run.run_id))


def _has_started(run: RunDir) -> bool:
    """Whether agents received the run; False where its `run.json` cannot be read."""
    try:
        return run.read().has_started
    except (LabError, OSError):
        return False


def _begun(run: RunDir) -> float:
    """When it began, in seconds since the epoch; 0 where its `run.json` does not tell."""
    try:
        return run.read().started_unix
    except (LabError, OSError):
        return 0.0


def resolve(word: str, ids: list[str], *, where: str) -> str:
    """The run that a user names: its id, a unique beginning of it, or `last`.

    Args:
        word: What the user typed.
        ids: The ids to choose from, oldest first; for `last` those of runs that started.
        where: Where they are, for the message.

    Raises:
        InputError: No run, or several, fit.
    """
    if not ids:
        raise InputError(f"no run in {where} has started", "start one with `lab run async`")
    if word == LAST:
        return ids[-1]
    if word in ids:
        return word
    fitting = [run_id for run_id in ids if run_id.startswith(word)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(fitting[:4])
        raise InputError(f"{word!r} fits {len(fitting)} runs ({some})", "write more of it")
    raise InputError(f"no run {word!r} in {where}", "see `lab runs`")


def find_run(word: str, home: Path) -> RunDir:
    """The run at home that a user names.

    Raises:
        InputError: No run, or several, fit.
    """
    known = all_runs(home)
    ids = [run.run_id for run in known if word != LAST or _has_started(run)]
    return RunDir(home / resolve(word, ids, where=str(home)))


def safe_run_id(run_id: str) -> str:
    """The id itself.

    Raises:
        LabError: It could be no directory's name.
    """
    if not RUN_ID.fullmatch(run_id):
        raise LabError(f"not a run id: {run_id!r}", "remove that request from the run volume")
    return run_id
