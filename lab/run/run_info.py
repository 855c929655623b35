"""`run.json`: what a run is, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, TypedDict, TypeVar

from lab.strict_json import dump, parse
from lab.task.protocol import TASK, ClusterSpec, Request, RunSpec, chief_of, nested, task_names
from lab.task.protocol.experiments import defaults, hyperparameters, registered
from lab.task.protocol.states import State
from lab.task.text import short

FORMAT: Final = 2
"""The version of `run.json`; a reader refuses a later one.

Format 1 held the fields of `spec` beside the others.
"""

_LATEST: Final = 1e11
"""Seconds since the epoch that can be shown as a date: up to the year 5138."""

T = TypeVar("T")


class TaskRow(TypedDict, total=False):
    """Where a task ran: `worker-0`, its node, `host:port` of its server, its GPUs' ids."""

    task: str
    node: str
    address: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Uncollected:
    """A file of a run that was not collected.

    Attributes:
        path: Relative to the run's directory.
        reason: Why.
        kept: Whether it holds data, for which the run volume stays.
    """

    path: str
    reason: str
    kept: bool


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What `run.json` holds.

    Attributes:
        run_id: The run's name, also its directory's.
        spec: What the user asked for.
        state: The run's state.
        reason: Why it is in this state; may be empty.
        backend: `local` or `compose`; empty while none is chosen.
        project: The name of the environment that it runs in.
        hyperparameters: Those arguments of the program that are flags of it, with their values.
        seed: The seed that was given, or chosen; None where the program takes none.
        cluster: TensorFlow's cluster spec.
        cluster_file: The config that it was made from, or "" where it is not known.
        cluster_sha256: The config's digest.
        tasks: Task, node, address and GPUs of every task, in the plan's order.
        gpus: Device ids of all GPUs that the run could see.
        plan: The placement, as it was booted; None in an environment that was up before.
        git: `commit` and `dirty` of the project's directory, or None outside a repository.
        versions: Of lab, Python and the libraries of this side.
        provenance: What really ran: image digest or interpreter, engine or kernel.
        epoch_workers: How many workers' epochs make its end, as it was for the first run that it
            resumes from; 0: its own.
        started_unix: When the run was asked for, in seconds since the epoch.
        submitted_unix: When it was submitted to the agents, in seconds since the epoch, or None.
        stopped_unix: When its last task had ended, in seconds since the epoch, or None.
        collected: Whether all files except `left` were collected after the last task had ended.
        left: The files that could not be collected.
    """

    run_id: str
    spec: RunSpec
    state: State = State.PENDING
    reason: str = ""
    backend: str = ""
    project: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    cluster: ClusterSpec = field(default_factory=dict)
    cluster_file: str = ""
    cluster_sha256: str = ""
    tasks: tuple[TaskRow, ...] = ()
    gpus: tuple[str, ...] = ()
    plan: Mapping[str, Any] | None = None
    git: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    epoch_workers: int = 0
    started_unix: float = 0.0
    submitted_unix: float | None = None
    stopped_unix: float | None = None
    collected: bool = False
    left: tuple[Uncollected, ...] = ()
    format: int = FORMAT

    @classmethod
    def of_request(cls, request: Request, *, backend: str, project: str) -> RunInfo:
        """What is known of a run that another client has begun."""
        return cls(
            run_id=request.run_id,
            spec=request.spec,
            state=State.STARTING,
            backend=backend,
            project=project,
            cluster=request.cluster,
            started_unix=request.submitted_unix,
            submitted_unix=request.submitted_unix,
            **parameters_of(request.spec),
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

    def to_json(self) -> str:
        """Indented JSON with a final line end."""
        return dump(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunInfo:
        """Read it back, in this format or an earlier one.

        Raises:
            ValueError: The text is no `run.json` of such a format.
        """
        raw = parse(text)
        later = raw.get("format")
        if isinstance(later, int) and later > FORMAT:
            raise ValueError(f"written by a later lab (format {later})")
        if later is None or later == 1:
            raw = nested({_RENAMED.get(key, key): value for key, value in raw.items()})
            raw["format"] = FORMAT
        _check_keys(raw, cls)
        _check_keys(raw.get("spec"), RunSpec)
        info = convert(raw, cls)
        for name in ("started_unix", "submitted_unix", "stopped_unix"):
            if not 0 <= (getattr(info, name) or 0) <= _LATEST:
                raise ValueError(f"its {name} is no time")
        for name, hosts in info.cluster.items():
            if not TASK.fullmatch(f"{name}-{len(hosts)}"):
                raise ValueError(f"its cluster has a job {short(name)!r}, which is no job's name")
        return info


_RENAMED: Final = {"argv": "args"}
"""Keys of format 1 that have another name now."""


def _check_keys(raw: object, kind: type[RunInfo | RunSpec]) -> None:
    unknown = raw.keys() - {each.name for each in fields(kind)} if isinstance(raw, dict) else ()
    if unknown:
        raise ValueError(f"its key {short(min(unknown))!r} is not known")


def parameters_of(spec: RunSpec) -> dict[str, Any]:
    """The `hyperparameters` and the `seed` of a run."""
    experiment = registered(spec)
    if experiment is None:
        return {}
    found = defaults(experiment) | hyperparameters(experiment, spec.args)
    seed = found.get("seed")
    return {"hyperparameters": found, "seed": seed if isinstance(seed, int) else None}


def convert(raw: object, kind: type[T]) -> T:
    """Parsed JSON as a dataclass, with every type checked.

    Raises:
        ValueError: A key is missing, or its value has another type; the message names the key.
    """
    # Imported here: not every command reads a run.
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.convert(raw, kind)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ValueError(short(str(error))) from None
