"""Environments whose run volume is a directory that this process can read and write."""

from __future__ import annotations

import json
import shutil
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic

from lab.backends.environment import NO_PARTS, Command, Environment, TaskInfo, Wanted
from lab.backends.environment_dir import EnvironmentDir, R
from lab.backends.log_tail import follow as follow_lines
from lab.backends.state import Busy, lock_environment
from lab.base.errors import LabError
from lab.protocol.volume import Chunk, Request, Volume, control
from lab.protocol.volume.files import read_regular
from lab.protocol.volume.transfer import stream

_POSTS = {
    "cancel": control.cancel,
    "kill": control.kill,
    "fault": control.inject_fault,
    "collected": control.mark_collected,
}


class DirectoryEnvironment(Environment):
    """The part of an environment that uses only its run volume and the output of its agents."""

    def __init__(self, runs: Path) -> None:
        self._volume = Volume(runs)

    @abstractmethod
    def output(self, task: str) -> Path:
        """The file with the output of a task's agent."""

    @abstractmethod
    def stopped(self) -> LabError:
        """The error for an environment that has stopped."""

    def mark_ends(self) -> None:
        """Mark the tasks whose agents ended without recording it."""

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Submit a request to the agents; see `Environment`.

        Raises:
            LabError: Another run is active, the environment has stopped, an agent does not run, or
                the run volume cannot be written.
        """
        if not self.is_up:
            raise self.stopped()
        try:
            with (
                self._volume_errors(),
                lock_environment(self.backend, self.project, shared=True),
                control.uploads(self._volume, request.run_id),
            ):
                self.require_agents()
                for name, folder in parts.items():
                    shutil.copytree(folder, self._volume.incoming(request.run_id) / name)
                now = time.time() + self.clock_offset_s()
                control.submit(self._volume, replace(request, submitted_unix=now))
        except control.VolumeBusy as busy:
            raise Busy(
                f"{busy} in the {self.backend} environment {self.project!r}",
                f"follow it with `lab attach {busy.run_id}`",
            ) from busy

    def post(self, command: Command, run_id: str, text: str) -> None:
        """Write one message for a run to the run volume; see `Environment`."""
        with self._volume_errors():
            _POSTS[command](self._volume, run_id, text)

    def runs(self) -> list[Request]:
        """All requests on the run volume, oldest first."""
        with self._volume_errors():
            return control.requests(self._volume)

    def collected(self) -> Mapping[str, str]:
        """Run id to run store, as noted on the volume; see `Environment`."""
        with self._volume_errors():
            return control.collected(self._volume)

    def chunks(self, wanted: Wanted) -> Iterator[Chunk | None]:
        """Stream files of a run; see `Environment`.

        Raises:
            LabError: There is no such run, or the environment stopped before the run ended. The
                error is raised after all files on the run volume are sent.
        """
        collected = dict(wanted.offsets)
        chunks = partial(stream, self._volume, wanted.run_id, all_sizes=wanted.all_sizes)
        with self._volume_errors():
            for chunk in chunks(wanted.offsets, follow=wanted.follow, rest=wanted.rest):
                if chunk is None and not self.is_up:
                    break
                if chunk is not None and not chunk.fault:
                    collected[chunk.path] = (chunk.offset or 0) + len(chunk.data)
                yield chunk
            else:
                return
            self.mark_ends()
            yield from chunks(collected, follow=False, rest=True)
            found = control.find(self._volume, wanted.run_id)
            has_ended = control.state_of(self._volume, found).ended
        if not has_ended:
            raise self.stopped()

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output, `worker-0  | …`; see `Environment`.

        Raises:
            InputError: There is no such task.
        """
        known = {info.task: self.output(info.task) for info in self.tasks()}
        files = self.selected(known, tasks)
        width = max(map(len, files), default=0)
        lines = follow_lines(files, tail, (lambda: self.is_up) if follow else None, since)
        return (f"{task:<{width}}  | {line}" for task, line in lines)

    @contextmanager
    def _volume_errors(self) -> Iterator[None]:
        """Convert errors of the run volume into errors for the user.

        Raises:
            LabError: There is no such run, or the volume cannot be used.
        """
        try:
            yield
        except control.NoSuchRun as error:
            raise LabError(str(error)) from error
        except OSError as error:
            raise LabError(
                f"the run volume {self._volume.root} cannot be used: {error.strerror}",
                "free space there, and check that you own it",
            ) from error


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


class RecordedEnvironment(Recorded[R], DirectoryEnvironment):
    """A recorded environment whose run volume is in the same directory."""

    def __init__(self, state_dir: EnvironmentDir[R], record: R) -> None:
        Recorded.__init__(self, state_dir, record)
        DirectoryEnvironment.__init__(self, state_dir.runs)

    def output(self, task: str) -> Path:
        """The file with the output of a task's agent."""
        return self._state_dir.output(task)

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


class ReportingEnvironment(RecordedEnvironment[R]):
    """A recorded environment whose agents report their addresses and GPUs."""

    def agent(self, task: str) -> Mapping[str, str]:
        """What a task's agent reports about itself: `address` and `gpus`; empty if it does not run.

        Raises:
            LabError: The run volume cannot be used.
        """
        with self._volume_errors():
            try:
                report = json.loads(read_regular(self._volume.agent(task)))
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
