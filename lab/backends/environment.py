"""The base class `Environment`: a booted plan, on any backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from lab.backends.names import capabilities
from lab.backends.run_volume import NotFound, NoVolume, RunVolume
from lab.backends.state import lock_environment
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.protocol.volume import Chunk, Request

if TYPE_CHECKING:
    from lab.cluster.gpu.verification import GpuView

T = TypeVar("T")

NO_PARTS: Final[Mapping[str, Path]] = MappingProxyType({})

KeepVolume = Callable[[], bool]
"""Whether to keep the run volume when the rest of an environment is removed."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task of an environment that is up, as `lab ps` shows it.

    Attributes:
        task: The task's name, `worker-0`.
        node: The node of the task.
        address: `host:port` of its TensorFlow server.
        gpus: Device ids of its planned GPUs. `probe_gpus` finds those that it really sees.
        alive: Whether its agent runs.
        detail: The state that the engine or the kernel reports: `running (healthy)`, `pid 4711`.
    """

    task: str
    node: str
    address: str
    gpus: tuple[str, ...]
    alive: bool
    detail: str


class Environment(ABC):
    """A booted plan, or the parts of it that are left.

    Each backend's class derives from this one. The methods with a body are the same on all
    backends.

    Attributes:
        backend: The name of its backend.
        project: The environment's name.
        folder: The project's directory; "" if it is no longer known.
        cluster_sha256: Digest of the config.
        runtime: The runtime of its tasks, a key of `lab.protocol.runtimes.RUNTIMES`.
        run_volume: Its run volume.
    """

    backend: str
    project: str
    folder: str
    cluster_sha256: str
    runtime: str
    run_volume: RunVolume

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether any part of it runs. If not, stopped containers or its run volume are left."""

    @property
    @abstractmethod
    def sources_sha256(self) -> str:
        """Digest of lab's code that its agents run (`probes.version`); "" if it is unknown.

        Raises:
            LabError: The backend does not answer.
        """

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether its tasks run on this host and use this host's GPUs."""

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec, with addresses that are valid in this environment."""
        spec: dict[str, list[str]] = {}
        for task in self.tasks():
            spec.setdefault(task.task.rpartition("-")[0], []).append(task.address)
        return spec

    @abstractmethod
    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""

    def require_agents(self) -> None:
        """Check that the agents of all tasks run, before a request is written.

        Otherwise the other agents would start the request and wait for the missing one until they
        time out.

        Raises:
            LabError: An agent does not run.
        """
        missing = [task for task in self.tasks() if not task.alive]
        if missing:
            more = f" ({len(missing)} tasks are not up)" if len(missing) > 1 else ""
            raise LabError(
                f"{missing[0].task} of environment {self.project} is not up: {missing[0].detail}",
                f"see `lab ps {self.project}`, then `lab down` and `lab up`{more}",
            )

    def known_task(self, tasks: Mapping[str, T], task: str) -> T:
        """Return the value of a task.

        Raises:
            InputError: The environment has no such task.
        """
        if task not in tasks:
            raise InputError(
                f"environment {self.project} has no task {task!r}",
                f"its tasks: {', '.join(tasks) or 'none'}",
            )
        return tasks[task]

    def selected(self, tasks: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
        """Return these tasks by their names; all if none is named.

        Raises:
            InputError: The environment has no such task.
        """
        return {name: self.known_task(tasks, name) for name in names or tasks}

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Submit a request to the agents.

        Args:
            request: The request.
            parts: Directories to copy into the run's directory before the run starts, by their
                names there: `program` with the user's own program and its modules;
                `checkpoints` to continue from.

        Raises:
            Busy: Another run is active in this environment.
            LabError: An agent does not run, or the run volume cannot be written.
        """
        with lock_environment(self.backend, self.project, shared=True):
            self.require_agents()
            self.run_volume.put(request.run_id, parts)
            self.run_volume.call("submit", request.to_json())

    def cancel(self, run_id: str, reason: str) -> None:
        """Request the end of a run: the programs save their state and exit."""
        self.run_volume.call("cancel", run_id, reason)

    def kill(self, run_id: str, reason: str) -> None:
        """Request the immediate end of a run: the agents kill the programs."""
        self.run_volume.call("kill", run_id, reason)

    def block_host(self) -> None:  # noqa: B027  (by default, no task can reach it)
        """Block this host from the tasks of each node that can reach it; by default none can.

        An environment that `lab` did not boot, or whose node was restarted, may need it. It
        prints a warning if the kernel or the engine refuses.
        """

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        """Inject a fault into a node's network. It lasts its full time, even if the caller ends.

        Args:
            node: The node.
            arguments: Arguments of `lab.protocol.network.fault`.

        Raises:
            LabError: The fault is not in effect; the message contains the kernel's reason. A
                backend without network faults always raises it.
        """
        del arguments
        raise LabError(
            f"{capabilities(self.backend).tasks} cannot change the network of node {node}",
            "use other faults: kill, stop, pause, slow",
        )

    def inject_fault(self, run_id: str, fault: str) -> None:
        """Write a fault to the run volume, for the agents of a run."""
        self.run_volume.call("fault", run_id, fault)

    def mark_collected(self, run_id: str, directory: str) -> None:
        """Note on the run volume that the whole run was collected into this run store."""
        self.run_volume.call("collected", run_id, directory)

    def runs(self) -> list[Request]:
        """All requests on the run volume, oldest first.

        Raises:
            LabError: The run volume cannot be read, or holds something else.
        """
        try:
            printed = self.run_volume.call("requests").decode(errors="replace")
        except NoVolume:
            return []
        try:
            return [Request.from_json(line) for line in printed.splitlines()]
        except ValueError as error:
            raise LabError(
                f"the run volume of {self.project}: {error}", "see `lab shell`"
            ) from error

    def continuation(self, run_id: str) -> Request | None:
        """Wait for the run that continues an ended one; None if there is none.

        Args:
            run_id: The run that has ended.

        Raises:
            LabError: The backend does not answer.
        """
        del run_id
        return None

    def clock_offset_s(self) -> float:
        """Seconds by which the time of its tasks is ahead of this host's clock.

        Raises:
            LabError: The run volume cannot be used.
        """
        return 0.0

    def collected(self) -> Mapping[str, str]:
        """Run id to run store, as `mark_collected` notes it. A program can forge these notes.

        Raises:
            LabError: The volume cannot be read, or its agents do not know such notes.
        """
        import msgspec  # noqa: PLC0415  (few commands need it)

        try:
            return msgspec.json.decode(self.run_volume.call("collected"), type=dict[str, str])
        except NotFound:
            return {}
        except (msgspec.MsgspecError, RecursionError) as error:
            raise LabError(
                f"the run volume of {self.project} returned invalid notes: {error}"
            ) from error

    def stream(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Stream the files of a run.

        Args:
            run_id: The run.
            offsets: Path relative to the run's directory to the bytes that are collected already.
            follow: Continue until every task has ended; otherwise stop after the current files.
            all_sizes: Send files of any size.
            rest: Send all files although a task has not recorded its end, as its agent has died.

        Yields:
            Pieces of files; None at least once a second, so that the caller can refresh a view.

        Raises:
            LabError: The environment has stopped, or the run volume cannot be read.
        """
        chunks = self.run_volume.stream(
            run_id, offsets, follow=follow, all_sizes=all_sizes, rest=rest
        )
        with closing(chunks):
            for chunk in chunks:
                if chunk is None:
                    self.check_followed(run_id)
                yield chunk

    def check_followed(self, run_id: str) -> None:  # noqa: B027  (by default, the stream breaks off)
        """Check about once a second an environment whose run is followed.

        Raises:
            LabError: It has stopped.
        """

    @abstractmethod
    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output, `worker-0  | …`.

        Args:
            tasks: The tasks; empty: all.
            follow: Continue with new lines.
            tail: Begin with this many lines of each task; None: with all.
            since: Only lines written since this time, in seconds since the epoch.
        """

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the task's container or namespaces.

        Raises:
            InputError: There is no such task, or a backend without shells, as by default.
            LabError: The task does not run.
        """
        del task
        raise InputError(
            f"`lab shell` cannot open a shell in {capabilities(self.backend).tasks}",
            f"see `lab logs` and `lab ps {self.project}`",
        )

    def probe_gpus(self) -> dict[str, GpuView]:
        """The GPUs that each task sees now, by the task's name.

        If nodes are containers, the result contains them too, by their own names. They must see no
        GPU. The view of a task that cannot be probed contains the reason. The result is empty if
        another service gives the tasks their GPUs.
        """
        return {}

    @abstractmethod
    def provenance(self) -> dict[str, str]:
        """What really ran: image digest or interpreter, versions of engine or kernel."""

    @abstractmethod
    def boot_file(self) -> tuple[str, str]:
        """File name and text of what was booted: the compose file, or the processes as JSON."""

    def is_recorded(self) -> bool:
        """Whether no other command has removed it since this object was made."""
        return True

    @abstractmethod
    def end(self, *, keep_volume: bool = False) -> None:
        """End it and remove everything with its labels, but nothing else.

        The caller holds the lock.

        Args:
            keep_volume: Whether to keep the run volume, and what is needed to find it.

        Raises:
            LabError: Parts of it are left.
        """

    def down(
        self,
        *,
        keeps: KeepVolume = lambda: False,
    ) -> None:
        """Remove this environment.

        Args:
            keeps: Called first, once no more runs can be submitted: whether to keep the run volume.
                If it raises, nothing is removed.

        Raises:
            Busy: Another command boots it, submits a run to it or removes it now.
            LabError: Parts of it are left.
        """
        with lock_environment(self.backend, self.project):
            if not self.is_recorded():
                return  # another command may have booted a new one
            keep = keeps()
            LOG.info(f"{self.backend}: removing the environment {self.project}")
            self.end(keep_volume=keep)


Check = Callable[[Environment], None]
"""Checks an environment after its boot; raises LabError if the boot must fail."""
