"""`run.json`: the options, environment and state of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from time import time
from typing import Any, Final, TypedDict, TypeVar

from lab.base.strict_json import dump, parse
from lab.protocol.experiments.experiment import Experiment, with_defaults
from lab.protocol.records.reader import Times
from lab.protocol.volume import Request, RunSpec
from lab.protocol.volume.layout import TASK, ClusterSpec, task_names
from lab.protocol.volume.run_spec import registered
from lab.protocol.volume.states import State

FORMAT: Final = 2
"""The version of `run.json`; a reader refuses any other one."""

_LATEST: Final = 1e11
"""Seconds since the epoch that can be shown as a date: up to the year 5138."""

_CLOCKS_S: Final = 3600.0
"""The largest difference between the clocks of a run's machines, in seconds."""

T = TypeVar("T")


class TaskRow(TypedDict, total=False):
    """A task's placement: `worker-0`, its node, `host:port` of its server, its GPUs' ids."""

    task: str
    node: str
    address: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Uncollected:
    """A file of a run that was not collected.

    Attributes:
        path: Relative to the run's directory.
        reason: The reason.
        kept: Whether it holds data, so that the run volume must be kept.
    """

    path: str
    reason: str
    kept: bool


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The content of `run.json`.

    Attributes:
        run_id: The run's id, which is also the name of its directory.
        spec: The specification of the run.
        state: The run's state.
        reason: The reason for this state; may be empty.
        backend: The name of its backend; empty before one is chosen.
        project: The name of the run's environment.
        hyperparameters: The values of the program's flags, by name.
        seed: The seed, given or drawn; None if the program has no seed.
        cluster: TensorFlow's cluster spec.
        cluster_file: The config's file, or "" if it is unknown.
        cluster_sha256: The config's digest.
        tasks: Task, node, address and GPUs of every task, in the plan's order.
        gpus: Device ids of all GPUs of the run.
        plan: The placement; None for a run that another client submitted.
        git: `commit` and `dirty` of the project's directory, or None outside a repository.
        versions: The versions of lab, Python and the libraries of the client.
        provenance: Image digest or interpreter, and engine or kernel of the environment.
        epoch_workers: The number of workers whose epochs determine the end of the run. A resumed
            run inherits the number of the first run; 0: the run's own workers.
        notices: The notices of the preparation: the backend, and what the host does not have.
        started_unix: The time of the user's request, in seconds since the epoch.
        submitted_unix: The time of the submission, in seconds since the epoch, or None.
        stopped_unix: The time when the last task ended, in seconds since the epoch, or None.
        collected: Whether all files except `left` were collected after the last task had ended, or
            after the environment of a lost run had stopped.
        left: The files that could not be collected.
        imported: Whether it comes from an archive; no environment of this host has it.
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
    notices: tuple[str, ...] = ()
    started_unix: float = 0.0
    submitted_unix: float | None = None
    stopped_unix: float | None = None
    collected: bool = False
    left: tuple[Uncollected, ...] = ()
    imported: bool = False
    format: int = FORMAT

    @classmethod
    def of_request(
        cls, request: Request, *, backend: str, project: str, before: RunInfo | None = None
    ) -> RunInfo:
        """Return the content of `run.json` for a run that this client did not submit.

        Args:
            request: Its request.
            backend: The name of its backend.
            project: The name of its environment.
            before: The interrupted run with whose checkpoints it continues, or None.
        """
        return replace(
            cls(request.run_id, request.spec) if before is None else before,
            run_id=request.run_id,
            spec=request.spec,
            state=State.STARTING,
            reason="",
            backend=backend,
            project=project,
            cluster=request.cluster,
            epoch_workers=0 if before is None else before.all_epoch_workers,
            started_unix=request.submitted_unix,
            submitted_unix=request.submitted_unix,
            stopped_unix=None,
            collected=False,
            left=(),
            **parameters_of(request.spec),
        )

    @property
    def all_epoch_workers(self) -> int:
        """The number of workers whose epochs determine the end of the run, and of resumed runs."""
        return self.epoch_workers or len(self.cluster.get("worker", ()))

    def task_names(self) -> list[str]:
        """Return the names of all tasks, in the cluster's order."""
        return task_names(self.cluster)

    @property
    def has_started(self) -> bool:
        """Whether agents received the run."""
        return self.submitted_unix is not None

    @property
    def zero_unix(self) -> float:
        """The Unix time at which a run's seconds begin: its submission to the tasks."""
        return self.started_unix if self.submitted_unix is None else self.submitted_unix

    @property
    def times(self) -> Times:
        """The times that a record of the run may have; the clocks of its machines may differ."""
        end = time() if self.stopped_unix is None else self.stopped_unix
        return self.zero_unix - _CLOCKS_S, max(end, self.zero_unix) + _CLOCKS_S

    def to_json(self) -> str:
        """Return indented JSON with a final line end."""
        return dump(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunInfo:
        """Parse `run.json`.

        Raises:
            ValueError: The text is not a `run.json` of this format.
        """
        raw = parse(text)
        version = raw.get("format")
        if version != FORMAT:
            raise ValueError(f"its format is {version}; this lab reads {FORMAT}")
        _check_keys(raw, cls)
        _check_keys(raw.get("spec"), RunSpec)
        info = convert(raw, cls)
        for name in ("started_unix", "submitted_unix", "stopped_unix"):
            if not 0 <= (getattr(info, name) or 0) <= _LATEST:
                raise ValueError(f"its {name} is not a time")
        for name, hosts in info.cluster.items():
            if not TASK.fullmatch(f"{name}-{len(hosts)}"):
                raise ValueError(f"its cluster has a job {name!r}: not a valid job name")
        return info


def _check_keys(raw: object, kind: type[RunInfo | RunSpec]) -> None:
    unknown = raw.keys() - kind.__dataclass_fields__.keys() if isinstance(raw, dict) else ()
    if unknown:
        raise ValueError(f"unknown key {min(unknown)!r}")


def parameters_of(spec: RunSpec, experiment: Experiment | None = None) -> dict[str, Any]:
    """Return the fields `hyperparameters` and `seed` of a run.

    Args:
        spec: Its specification.
        experiment: Its experiment; None: the one of lab that the specification names, if any.
    """
    experiment = experiment or registered(spec)
    if experiment is None:
        return {}
    values = with_defaults(experiment, spec.args)
    seed = values.get("seed")
    return {"hyperparameters": values, "seed": seed if isinstance(seed, int) else None}


def convert(raw: object, kind: type[T]) -> T:
    """Convert parsed JSON to a dataclass, and check every type.

    Raises:
        ValueError: A key is missing, or its value has the wrong type; the message names the key.
    """
    # Imported here because not every command reads a run.
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.convert(raw, kind, str_keys=True)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ValueError(error) from None


def gpus_of(info: RunInfo) -> dict[str, tuple[str, ...]]:
    """Return the device ids of the GPUs that can be sampled, by task.

    Tasks without such a GPU are left out. Only UUIDs count: a GPU's index is not unique to a host.
    """
    gpus_by_task = {}
    for row in info.tasks:
        gpus = tuple(gpu for gpu in row.get("gpus", ()) if not gpu.isdecimal())
        if gpus:
            gpus_by_task[row["task"]] = gpus
    return gpus_by_task
