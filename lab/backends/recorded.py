"""Environments with a record in a directory of this user."""

from __future__ import annotations

import json
import re
import subprocess
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from lab.backends.environment import NO_PARTS, Environment, TaskInfo
from lab.backends.log_tail import follow as follow_lines
from lab.backends.run_volume import DirectoryVolume
from lab.backends.state import state_directory
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.protocol.volume import Request, Volume, continuation, control
from lab.protocol.volume.files import read_regular, write_atomically

_PROJECT = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task of a record.

    Attributes:
        task: The task's name, `worker-0`.
        node: Its node in the config.
    """

    task: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What every record in `environment.json` has.

    Attributes:
        project: The project's name.
        cluster_sha256: Digest of the config.
        root: The project's directory.
        tasks: The tasks, in the plan's order.
        runtime: The runtime of its tasks, a key of `lab.protocol.runtimes.RUNTIMES`.
        sources_sha256: Digest of lab's code that the agents run.
    """

    project: str
    cluster_sha256: str
    root: str
    tasks: tuple[TaskRecord, ...]
    runtime: str
    sources_sha256: str


R = TypeVar("R", bound=Record)


class EnvironmentDir(Generic[R]):
    """The directory `<state>/<backend>/<project>/` of one environment of this user.

    Attributes:
        backend: The backend's name.
        record_type: The type of the record.
        hint: How to end an environment whose record cannot be read.
        directory: The directory.
        record: The file with the environment's record.
        runs: The run volume.
        kept: A file that marks a run volume as kept, because it has files that are not collected.
    """

    backend: ClassVar[str]
    record_type: ClassVar[type[Any]]
    hint: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "environment.json"
        self.runs = directory / "runs"
        self.kept = directory / "kept"

    @classmethod
    def base(cls) -> Path:
        """Return the directory of all environments of this backend and this user."""
        return state_directory() / cls.backend

    @classmethod
    def of(cls, project: str) -> Self:
        """Return the directory of an environment; it may not exist.

        Raises:
            LabError: The name is not valid.
        """
        if not _PROJECT.fullmatch(project):
            raise LabError(f"{project!r} is not a project name", "use a-z, 0-9 and hyphens")
        return cls(cls.base() / project)

    @classmethod
    def all(cls) -> list[Self]:
        """Return the directories of all environments that have a record, by name."""
        return [cls(path.parent) for path in sorted(cls.base().glob("*/environment.json"))]

    def output(self, task: str) -> Path:
        """The file with the output of a task's agent."""
        return self.directory / "output" / f"{task}.log"

    def read(self) -> R | None:
        """Read the record; None if there is none.

        Raises:
            LabError: The record cannot be read.
        """
        # Imported here: few commands look for such environments.
        import msgspec  # noqa: PLC0415

        try:
            # Unknown keys are ignored.
            record: R = msgspec.json.decode(self.record.read_bytes(), type=self.record_type)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, RecursionError, OSError) as error:
            raise LabError(
                f"{self.record} cannot be read: {error}",
                f"{self.hint}, then remove {self.directory}",
            ) from error
        return record

    def write(self, record: R) -> None:
        """Write the record atomically."""
        write_atomically(self.record, record_text(record))

    def clear(self) -> None:
        """Remove the files of a stopped environment, except ended runs of a kept run volume.

        A run with a damaged request also stays: nothing can collect it. Then create the run volume.
        """
        if self.kept.exists():
            self._clear_kept()
        elif self.directory.is_dir():
            remove_tree(self.directory)
        self.runs.mkdir(parents=True, mode=0o700, exist_ok=True)

    def _clear_kept(self) -> None:
        volume = Volume(self.runs)
        requests = control.requests(volume)
        ended = {run.run_id for run in requests if control.state_of(volume, run).ended}
        valid = {request.run_id for request in requests}
        damaged = {path.stem for path in volume.requests.glob("*.json")} - valid
        for name in sorted(damaged):
            where = self.runs / name
            LOG.warning(f"{where} is kept but was not collected: the run's request is damaged")
        kept_runs = ended | damaged
        needed = {self.runs, self.record, self.kept, volume.requests}
        directories = (self.directory, self.runs, volume.requests)
        for path in [path for directory in directories for path in directory.iterdir()]:
            if path not in needed and path.stem not in kept_runs:
                remove_tree(path)

    def remove(self, *, keep_volume: bool) -> None:
        """Remove the directory of an environment that has ended.

        Args:
            keep_volume: Whether to keep the run volume and the record instead, and mark them.

        Raises:
            LabError: Files are left.
        """
        if keep_volume:
            self.kept.touch()
        elif self.directory.is_dir():
            remove_tree(self.directory)


def record_text(record: Record) -> str:
    """Return a record as indented JSON."""
    return json.dumps(asdict(record), indent=2) + "\n"


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with its content.

    It uses `rm`, because Python's functions fail at a depth of some hundred directories.

    Raises:
        LabError: Files are left.
    """
    done = subprocess.run(
        ["rm", "-rf", "--", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        raise LabError(f"{path} cannot be removed: {last}", "remove it by hand")


class Recorded(Environment, Generic[R]):
    """An environment with a record in a directory of this user.

    Attributes:
        state_dirs: The type of the directories of such environments.
    """

    state_dirs: ClassVar[type[EnvironmentDir[Any]]]

    def __init__(self, state_dir: EnvironmentDir[R], record: R) -> None:
        self._state_dir = state_dir
        self._record = record
        self.project = record.project
        self.folder = record.root
        self.cluster_sha256 = record.cluster_sha256
        self.runtime = record.runtime

    @property
    def sources_sha256(self) -> str:
        """Digest of lab's code that its agents run."""
        return self._record.sources_sha256

    def is_recorded(self) -> bool:
        """Whether its record is still that of this object."""
        return self._state_dir.read() == self._record


class RecordedEnvironment(Recorded[R]):
    """A recorded environment whose run volume is in the same directory."""

    run_volume: DirectoryVolume

    def __init__(self, state_dir: EnvironmentDir[R], record: R) -> None:
        super().__init__(state_dir, record)
        self.run_volume = DirectoryVolume(state_dir.runs)

    def stopped(self) -> LabError:
        """The error for an environment that has stopped."""
        return LabError(
            f"the {self.backend} environment {self.project!r} has stopped",
            f"boot it again with `lab up`; until then its runs are in {self._state_dir.runs}",
        )

    def boot_file(self) -> tuple[str, str]:
        """`processes.json`: the record, with the tasks and their processes."""
        return "processes.json", record_text(self._record)

    def mark_ends(self) -> None:
        """Mark the tasks whose agents ended without recording it, with `mark_lost`."""

    def mark_lost(self, reason: str) -> None:
        """Mark the tasks without an end as lost, when no agent runs."""
        continuation.mark_lost(self.run_volume.volume, reason)

    def continues(self, run_id: str) -> bool:
        """Whether an ended run continues when its agents start again."""
        volume = self.run_volume.volume
        return continuation.continues(volume, control.find(volume, run_id))

    def has_lost_task(self, run_id: str) -> bool:
        """Whether the agent of a task of a run was lost, as when its node fails."""
        volume = self.run_volume.volume
        return continuation.has_lost_task(volume, control.find(volume, run_id))

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Submit a request to the agents; see `Environment`."""
        if not self.is_up:  # before the lock, which a boot holds while it waits in a queue
            raise self.stopped()
        now = time.time() + self.clock_offset_s()
        super().submit(replace(request, submitted_unix=now), parts)

    def check_followed(self, run_id: str) -> None:
        """Check that it has not stopped; see `Environment`."""
        if not self.is_up:
            self.mark_ends()
            raise self.stopped()

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output, `worker-0  | …`; see `Environment`.

        Raises:
            InputError: There is no such task.
        """
        outputs = {
            record.task: self._state_dir.output(record.task) for record in self._record.tasks
        }
        files = self.selected(outputs, tasks)
        width = max(map(len, files), default=0)
        lines = follow_lines(files, tail, (lambda: self.is_up) if follow else None, since)
        return (f"{task:<{width}}  | {line}" for task, line in lines)

    @abstractmethod
    def stop(self, *, gently: bool = True) -> None:
        """End all its processes.

        Args:
            gently: First let programs end by themselves, and agents record their ends.

        Raises:
            LabError: Processes are left.
        """

    def end(self, *, gently: bool = True, keep_volume: bool = False) -> None:
        """End it and remove its directory; see `Environment`."""
        self.stop(gently=gently)
        self._state_dir.remove(keep_volume=keep_volume)

    def agent(self, task: str) -> Mapping[str, str]:
        """What a task's agent reports about itself: `address` and `gpus`; empty if it does not run.

        Raises:
            LabError: The run volume cannot be used.
        """
        with self.run_volume.errors():
            try:
                report = json.loads(read_regular(self.run_volume.volume.agent(task)))
                return {name: str(report[name]) for name in ("address", "gpus")}
            except (FileNotFoundError, PermissionError, ValueError, KeyError, TypeError):
                return {}

    def tasks_in(self, state: str) -> list[TaskInfo]:
        """All tasks, in the plan's order.

        Args:
            state: The state of the environment, for each task.
        """
        infos, is_up = [], self.is_up
        for record in self._record.tasks:
            agent = self.agent(record.task)
            gpus = agent.get("gpus", "none").split(",")
            infos.append(
                TaskInfo(
                    task=record.task,
                    node=record.node,
                    address=agent.get("address", ""),
                    gpus=() if gpus == ["none"] else tuple(gpus),
                    alive=is_up and bool(agent),
                    detail=state,
                )
            )
        return infos
