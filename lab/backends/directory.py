"""Environments whose run volume is a directory that this process can read and write."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab.backends import (
    NO_PARTS,
    Chunk,
    Command,
    Environment,
    KeepVolume,
    Precondition,
    no_precondition,
    remove_volume,
)
from lab.backends.log_tail import follow as follow_lines
from lab.backends.selection import known_task, require_agents
from lab.backends.state import Busy, lock_environment, state_directory
from lab.errors import LabError, Notify
from lab.text import visible
from lab.volume import Request, Volume, control
from lab.volume.transfer import stream

_POSTS = {
    "cancel": control.cancel,
    "kill": control.kill,
    "fault": control.inject_fault,
    "collected": control.mark_collected,
}


_PROJECT = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


class DirectoryEnvironment(Environment):
    """The part of an environment that uses only its run volume and the output of its agents."""

    def __init__(self, runs: Path) -> None:
        """Create the object.

        Args:
            runs: The run volume.
        """
        self._volume = Volume(runs)

    @abstractmethod
    def output(self, task: str) -> Path:
        """The file with the output of a task's agent."""

    @abstractmethod
    def stopped(self) -> LabError:
        """The error for an environment that has stopped."""

    def mark_ends(self) -> None:
        """Mark the tasks whose agents have ended without writing the end of their task."""

    @abstractmethod
    def is_recorded(self) -> bool:
        """Whether its record is still that of this object."""

    @abstractmethod
    def end(self, *, keep_volume: bool = False) -> None:
        """End it and remove its directory; the caller holds the lock.

        Args:
            keep_volume: Whether to keep the run volume and the environment's record.

        Raises:
            LabError: Parts of it are left.
        """

    def down(
        self,
        notify: Notify,
        *,
        unless: Precondition = no_precondition,
        keeps: KeepVolume = remove_volume,
    ) -> None:
        """End it and remove its directory; see `Environment`.

        Raises:
            LabError: Another command uses the environment now, or parts of it are left.
        """
        with lock_environment(self.backend, self.project):
            if not self.is_recorded():
                return  # another command has removed it, and may have booted a new one
            unless()
            keep = keeps()
            notify(f"{self.backend}: removing the environment {self.project}")
            self.end(keep_volume=keep)

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
                require_agents(self.project, self.tasks())
                for name, folder in parts.items():
                    shutil.copytree(folder, self._volume.incoming(request.run_id) / name)
                now = time.time() + self.clock_offset_s()
                control.submit(self._volume, replace(request, submitted_unix=now))
        except control.VolumeBusy as busy:
            raise Busy(
                f"{busy} in the {self.backend} environment {self.project!r}",
                f"follow it with `lab attach {busy.run_id}`, or wait for it with `lab run --wait`",
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

    def stream(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Stream the files of a run, from the given byte offsets on; see `Environment`.

        Raises:
            LabError: There is no such run, or the environment stopped before the run ended. The
                error is raised after all files on the run volume are sent.
        """
        collected = dict(offsets)
        chunks = partial(stream, self._volume, run_id, all_sizes=all_sizes)
        with self._volume_errors():
            for chunk in chunks(offsets, follow=follow, rest=rest):
                if chunk is None and not self.is_up:
                    break
                if chunk is not None and not chunk.fault:
                    collected[chunk.path] = (chunk.offset or 0) + len(chunk.data)
                yield chunk
            else:
                return
            self.mark_ends()
            yield from chunks(collected, follow=False, rest=True)
            has_ended = control.ended(self._volume, run_id)
        if not has_ended:
            raise self.stopped()

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output, `worker-0  | …`; see `Environment`.

        Raises:
            InputError: There is no such task.
        """
        names = {each.task: each.task for each in self.tasks()}
        wanted = [known_task(self.project, names, task) for task in tasks] or list(names)
        files = {task: self.output(task) for task in wanted}
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


class EnvironmentDir:
    """The directory of one environment: its record, its run volume, the output of its agents.

    Attributes:
        directory: The directory.
        record: The file with the environment's record.
        runs: The run volume.
        kept: A file that marks a run volume as kept, because it has files that are not collected.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "environment.json"
        self.runs = directory / "runs"
        self.kept = directory / "kept"

    def output(self, task: str) -> Path:
        """The file with the output of a task's agent."""
        return self.directory / "output" / f"{task}.log"

    def clear(self, notify: Notify) -> bool:
        """Remove the files of a stopped environment, except ended runs of a kept run volume.

        A run with a damaged request also stays: nothing can collect it.

        Args:
            notify: Receives one line for each such run.

        Returns:
            Whether the volume is kept.
        """
        volume = Volume(self.runs)
        requests = {each.run_id: each for each in control.requests(volume)}
        ended = {name for name, each in requests.items() if control.state_of(volume, each).ended}
        if not self.kept.exists():
            if self.directory.is_dir():
                remove_tree(self.directory)
            return False
        damaged = {path.stem for path in volume.requests.glob("*.json")} - set(requests)
        for name in sorted(damaged):
            where = visible(str(self.runs / name))
            notify(f"{where} is kept, but not collected: the run's request is damaged")
        kept = ended | damaged
        needed = {self.runs, self.record, self.kept, volume.requests}
        directories = (self.directory, self.runs, volume.requests)
        for path in [path for directory in directories for path in directory.iterdir()]:
            if path not in needed and path.stem not in kept:
                remove_tree(path)
        return True


def directory_of(backend: str, project: str) -> Path:
    """Return the directory of an environment of this user; it may not exist.

    Raises:
        LabError: The name is not valid.
    """
    if not _PROJECT.fullmatch(project):
        raise LabError(f"{project!r} is not a project name", "use a-z, 0-9 and hyphens")
    return state_directory() / backend / project


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
