"""A local environment: agents and programs as processes of this host."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from lab.backends import (
    NO_PARTS,
    Chunk,
    Command,
    Environment,
    KeepVolume,
    Notify,
    Precondition,
    TaskInfo,
    gpu_probe,
    no_precondition,
    remove_volume,
)
from lab.backends.gpu_record import release
from lab.backends.local.log_tail import follow as follow_lines
from lab.backends.local.processes import base_environ, end_processes, inject_fault, versions
from lab.backends.local.state import EnvironmentRecord, Isolation, StateDir, remove_tree
from lab.backends.process import descendants, is_running, pid_in_namespace
from lab.backends.selection import known_task, require_agents
from lab.backends.state import Busy, lock_environment
from lab.errors import LabError
from lab.gpu.verification import GpuView
from lab.task.probes.netfault import link_environ
from lab.task.probes.sync import stream
from lab.task.protocol import Request, Volume, control
from lab.task.protocol.files import read_regular

# The user's .bashrc (pyenv, conda) may put another `python` first in PATH, so that variables alone
# are not enough.
_SHELL = ("bash", "--rcfile", str(Path(__file__).with_name("shell.bashrc")), "-i")

_POSTS = {
    "cancel": control.cancel,
    "kill": control.kill,
    "fault": control.inject_fault,
    "collected": control.mark_collected,
}


class LocalEnvironment(Environment):
    """A supervisor, its agents, and their run volume."""

    backend = "local"
    is_local = True

    def __init__(self, state_dir: StateDir, record: EnvironmentRecord) -> None:
        self._state_dir = state_dir
        self._record = record
        self._volume = Volume(state_dir.runs)
        self.project = record.project
        self.folder = record.root
        self.cluster_sha256 = record.cluster_sha256
        self.tensorflow = record.tensorflow

    @property
    def is_up(self) -> bool:
        """Whether its supervisor runs."""
        return self._record.process.alive()

    @property
    def sources_sha256(self) -> str:
        """Digest of lab's code that its agents run."""
        return self._record.sources_sha256

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec, with addresses that are valid in this environment."""
        return self._record.cluster_spec()

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        pids = self._agent_pids()
        return [
            TaskInfo(
                task=each.task,
                node=each.node,
                address=each.address,
                gpus=each.gpus,
                alive=each.task in pids,
                detail=f"pid {pids[each.task]}"
                if each.task in pids
                else self._how_ended(each.task),
            )
            for each in self._record.tasks
        ]

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Submit a request to the agents; see `Environment`.

        Raises:
            LabError: Another run is active, the supervisor or an agent does not run, or the run
                volume cannot be written.
        """
        if not self.is_up:
            raise self._stopped()
        incoming = self._volume.incoming(request.run_id)
        try:
            with self._volume_errors(), lock_environment(self.backend, self.project, shared=True):
                require_agents(self.project, self.tasks())
                for name, folder in parts.items():
                    shutil.copytree(folder, incoming / name)
                control.submit(self._volume, request)
        except control.VolumeBusy as busy:
            raise Busy(
                f"{busy} in the local environment {self.project!r}",
                f"follow it with `lab attach {busy.run_id}`, or wait for it with `lab run --wait`",
            ) from busy
        except LabError:
            shutil.rmtree(incoming, ignore_errors=True)
            raise

    def post(self, command: Command, run_id: str, text: str) -> None:
        """Write one message for a run to the run volume; see `Environment`."""
        with self._volume_errors():
            _POSTS[command](self._volume, run_id, text)

    def block_host(self, notify: Notify) -> None:
        """Do nothing: namespaces have no route to the host, and without them nothing helps."""

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        """Inject a fault into a node's network; see `Environment`.

        Raises:
            LabError: The node has no network of its own, no agent runs on it, or the kernel refused
                the fault.
        """
        if self._record.isolation is Isolation.PROCESSES:
            raise LabError(
                f"node {node} has no network of its own: namespaces are not available",
                "use other faults: kill, stop, pause, slow",
            )
        pids = self._agent_pids()
        tasks = [each.task for each in self._record.tasks if each.node == node]
        pid = next((pids[task] for task in tasks if task in pids), None)
        if pid is None:
            raise LabError(f"node {node} has no running agent", f"see `lab ps {self.project}`")
        link = next((each.link for each in self._record.nodes if each.name == node), None)
        given = link_environ(link.rate_bits, link.delay_us) if link else {}
        inject_fault(node, self._enter(pid), arguments, given)

    def runs(self) -> list[Request]:
        """All requests on the run volume, oldest first."""
        return control.requests(self._volume)

    def collected(self) -> Mapping[str, str]:
        """Run id to run store, as noted on the volume; see `Environment`."""
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
            yield from chunks(collected, follow=False, rest=True)
        if not control.ended(self._volume, run_id):
            raise self._stopped()

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output, `worker-0  | …`; see `Environment`.

        Raises:
            InputError: There is no such task.
        """
        names = {each.task: each.task for each in self._record.tasks}
        wanted = [known_task(self.project, names, task) for task in tasks] or list(names)
        files = {task: self._state_dir.output(task) for task in wanted}
        width = max(map(len, files), default=0)
        lines = follow_lines(files, tail, (lambda: self.is_up) if follow else None, since)
        return (f"{task:<{width}}  | {line}" for task, line in lines)

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the namespaces of the task's agent.

        Raises:
            InputError: There is no such task.
            LabError: Its agent does not run.
        """
        record = known_task(self.project, {each.task: each for each in self._record.tasks}, task)
        pid = self._agent_pids().get(task)
        if pid is None:
            raise LabError(
                f"{task} has no running agent",
                f"run `lab down {self.project}`, then boot it again",
            )
        own = {
            **record.environ,
            "PYTHONPATH": base_environ()["PYTHONPATH"],
            "LAB_PYTHON_BIN": str(Path(self._record.interpreter).parent),
        }
        variables = [f"{name}={value}" for name, value in own.items()]
        project = str(Path(record.environ["LAB_SCRIPTS"]).parent)
        return [*self._enter(pid), "env", "-C", project, *variables, *_SHELL]

    def probe_gpus(self, *, tensorflow: bool) -> dict[str, GpuView]:
        """The GPUs that each task sees now; see `Environment`."""
        pids = self._agent_pids()
        probe = partial(self._probe_task, tensorflow=tensorflow)
        probes = {
            each.task: partial(probe, each.task, pids.get(each.task)) for each in self._record.tasks
        }
        return gpu_probe.probe_all(probes, tensorflow=tensorflow)

    def _probe_task(self, task: str, pid: int | None, *, tensorflow: bool) -> GpuView:
        # The probe runs inside the namespaces, where the agent has another process id.
        own = self._agent_own_pid(task)
        if pid is None or own is None:
            return GpuView.unknown(self._how_ended(task))
        module = [self._record.interpreter, "-P", "-m", gpu_probe.MODULE, "--pid", str(own)]
        command = [*self._enter(pid), *module, *gpu_probe.arguments(tensorflow=tensorflow)]
        done = subprocess.run(
            command,
            env=base_environ(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return gpu_probe.parse_output(done.returncode, done.stdout, done.stderr)

    def _enter(self, pid: int) -> list[str]:
        """The command line prefix that starts a program in the namespaces of this agent."""
        if self._record.isolation is Isolation.PROCESSES:
            return []
        spaces = ["-U", "--preserve-credentials", "-n", "-u", "-m", "-p"]
        return ["nsenter", "-t", str(pid), *spaces, "--"]

    def provenance(self) -> dict[str, str]:
        """What really ran: interpreter, versions, kernel."""
        return {
            "interpreter": self._record.interpreter,
            "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
            "isolation": self._record.isolation.value,
            **versions(self._record.interpreter),
        }

    def boot_file(self) -> tuple[str, str]:
        """`processes.json`: the nodes and the tasks with their environment variables."""
        return "processes.json", self._record.to_json()

    def down(
        self,
        notify: Notify,
        *,
        unless: Precondition = no_precondition,
        keeps: KeepVolume = remove_volume,
    ) -> None:
        """End all its processes and remove its directory; see `Environment`.

        Raises:
            LabError: Another command uses the environment now, or parts of it are left.
        """
        with lock_environment(self.backend, self.project):
            if self._state_dir.read() != self._record:
                return  # another command has removed it, and may have booted a new one
            unless()
            keep = keeps()
            notify(f"local: removing {self.project}")
            self.end(keep_volume=keep)

    def end(self, *, gently: bool = True, keep_volume: bool = False) -> None:
        """End all its processes and remove its directory; the caller holds the lock.

        Args:
            gently: First let programs end by themselves, and agents record their ends.
            keep_volume: Whether to keep the run volume and the environment's record.

        Raises:
            LabError: Parts of it are left.
        """
        end_processes(
            self._record, list(self._agent_pids().values()), self._state_dir.log, gently=gently
        )
        if any(task.gpus for task in self._record.tasks):
            release(self.backend, self.project, str(self._state_dir.directory))
        if keep_volume:
            self._state_dir.kept.touch()
        else:
            remove_tree(self._state_dir.directory)

    def _agent_pids(self) -> dict[str, int]:
        """Task to the process id of its agent in this namespace, for agents that run."""
        if not self.is_up:
            return {}
        own = {each.task: self._agent_own_pid(each.task) for each in self._record.tasks}
        if self._record.isolation is Isolation.PROCESSES:
            return {task: pid for task, pid in own.items() if pid is not None and is_running(pid)}
        seen = {pid_in_namespace(pid): pid for pid in descendants(self._record.process.pid)}
        return {task: seen[pid] for task, pid in own.items() if pid is not None and pid in seen}

    def _agent_own_pid(self, task: str) -> int | None:
        try:
            return int(json.loads(read_regular(self._volume.agent(task)))["pid"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _how_ended(self, task: str) -> str:
        with suppress(FileNotFoundError):
            return f"agent ended, {self._state_dir.ended(task).read_text(encoding='utf-8')}"
        return "no agent"

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
                f"the run volume {self._state_dir.runs} cannot be used: {error.strerror}",
                "free space there, and check that you own it",
            ) from error

    def _stopped(self) -> LabError:
        return LabError(
            f"the local environment {self.project!r} has stopped: its supervisor ended",
            f"boot it again with `lab up`; until then its runs are in {self._state_dir.runs}",
        )
