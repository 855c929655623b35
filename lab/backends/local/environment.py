"""A local environment that was booted."""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lab.backends import NOTHING, Chunk, Keeps, Say, TaskInfo, Unless, looking, never, nothing
from lab.backends.gpu_record import release
from lab.backends.hearing import check_hearing
from lab.backends.local import state
from lab.backends.local.disturb import disturb
from lab.backends.local.ending import end_processes
from lab.backends.local.interpreter import environ, versions
from lab.backends.local.state import EnvironmentRecord, Isolation, Place
from lab.backends.local.tails import follow as follow_lines
from lab.backends.local.trees import remove_tree
from lab.backends.locking import Busy
from lab.backends.process import descendants, inner_pid, running
from lab.errors import InputError, LabError
from lab.gpu.verification import Sight
from lab.task import control
from lab.task.files import read_regular
from lab.task.netfault import variables
from lab.task.protocol import Request, Volume
from lab.task.shipping import ship

# Variables alone would not do: a user's own start-up file (pyenv, conda) puts its `python` first.
_SHELL = ("bash", "--rcfile", str(Path(__file__).with_name("shell.bashrc")), "-i")


class LocalEnvironment:
    """Agents under one supervisor, and their run volume."""

    backend = "local"

    def __init__(self, place: Place, record: EnvironmentRecord) -> None:
        self._place = place
        self._record = record
        self._volume = Volume(place.runs)
        self.project = record.project
        self.folder = record.root
        self.cluster_sha256 = record.cluster_sha256
        self.tensorflow = record.tensorflow
        self.sources_sha256 = record.sources_sha256

    @property
    def is_here(self) -> bool:
        """Always."""
        return True

    @property
    def root(self) -> Path:
        """The project's directory."""
        return Path(self._record.root)

    @property
    def isolation(self) -> Isolation:
        """How its nodes are kept apart."""
        return self._record.isolation

    def alive(self) -> bool:
        """Whether its supervisor is there."""
        return self._record.process.alive()

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec, with addresses that are valid in this environment."""
        return self._record.cluster_spec()

    def tasks(self) -> list[TaskInfo]:
        """Every task, in the plan's order."""
        pids = self._agent_pids()
        return [
            TaskInfo(
                task=task.task,
                node=task.node,
                address=task.address,
                gpus=task.gpus,
                alive=task.task in pids,
                detail=f"pid {pids[task.task]}"
                if task.task in pids
                else self._how_ended(task.task),
            )
            for task in self._record.tasks
        ]

    def submit(self, request: Request, parts: Mapping[str, Path] = NOTHING) -> None:
        """Hand a request to the agents; see `Environment`.

        Raises:
            LabError: Another run is under way in this environment, it has gone, an agent of it
                has, or its volume cannot be written.
        """
        if not self.alive():
            raise self._gone()
        try:
            with state.locked(self.project, shared=True):
                check_hearing(self.project, self.tasks())
                for name, folder in parts.items():
                    shutil.copytree(folder, self._volume.incoming(request.run_id) / name)
                control.submit(self._volume, request)
        except control.VolumeBusy as busy:
            raise Busy(
                f"{busy} in the local environment {self.project!r}",
                f"follow it with `lab attach {busy.run_id}`, or wait for it with `lab run --wait`",
            ) from busy
        except OSError as error:
            shutil.rmtree(self._volume.incoming(request.run_id), ignore_errors=True)
            raise self._volume_fault(error) from error

    def cancel(self, run_id: str, reason: str) -> None:
        """Ask the agents to end a run.

        Raises:
            LabError: There is no such run, or the volume cannot be written.
        """
        self._tell(control.cancel, run_id, reason)

    def kill(self, run_id: str, reason: str) -> None:
        """Ask the agents to end a run at once.

        Raises:
            LabError: There is no such run, or the volume cannot be written.
        """
        self._tell(control.kill, run_id, reason)

    def disturb(self, node: str, words: Sequence[str]) -> None:
        """Do a fault to a node's network; see `Environment`.

        Raises:
            LabError: The node has no network of its own, no agent is on it, or it was refused.
        """
        link = next((each.link for each in self._record.nodes if each.name == node), None)
        given = variables(link.rate_bits, link.delay_us) if link else {}
        disturb(node, self._enter(self._inhabitant(node)), words, given)

    def _inhabitant(self, node: str) -> int:
        """The process id of an agent on a node with a network of its own."""
        if self._record.isolation is Isolation.PROCESSES:
            raise LabError(
                f"node {node} has no network of its own: there are no namespaces here",
                "faults that act on a program work: kill, stop, pause, slow",
            )
        pids = self._agent_pids()
        on = (
            pids[each.task]
            for each in self._record.tasks
            if each.node == node and each.task in pids
        )
        pid = next(on, None)
        if pid is None:
            raise LabError(f"node {node} has no agent any more", f"see `lab ps {self.project}`")
        return pid

    def tell(self, run_id: str, fault: str) -> None:
        """Put a fault on the volume, where the agents of a run find it.

        Raises:
            LabError: There is no such run, or the volume cannot be written.
        """
        self._tell(control.inject_fault, run_id, fault)

    def _tell(self, what: Callable[[Volume, str, str], None], run_id: str, reason: str) -> None:
        try:
            what(self._volume, run_id, reason)
        except control.NoSuchRun as error:
            raise LabError(str(error)) from error
        except OSError as error:
            raise self._volume_fault(error) from error

    def runs(self) -> list[Request]:
        """All requests on the volume, oldest first."""
        return control.requests(self._volume)

    def mark_collected(self, run_id: str, directory: str) -> None:
        """Note into which directory of runs all of a run was collected; see `Environment`."""
        self._tell(control.mark_collected, run_id, directory)

    def collected(self) -> Mapping[str, str]:
        """Run to the directory that is noted so."""
        return control.collected(self._volume)

    def ship(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Bring a run home, from the given byte offsets on.

        Raises:
            LabError: There is no such run, or the environment has gone; what it has left on its
                volume has been shipped by then.
        """
        at_home = dict(offsets)
        try:
            for chunk in ship(
                self._volume, run_id, offsets, follow=follow, all_sizes=all_sizes, rest=rest
            ):
                if chunk is None and not self.alive():
                    break
                if chunk is not None and not chunk.fault:
                    at_home[chunk.path] = (chunk.offset or 0) + len(chunk.data)
                yield chunk
            else:
                return
            yield from ship(
                self._volume, run_id, at_home, follow=False, all_sizes=all_sizes, rest=True
            )
        except control.NoSuchRun as error:
            raise LabError(str(error)) from error
        except OSError as error:
            raise self._volume_fault(error) from error
        if not control.ended(self._volume, run_id):
            raise self._gone()

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines that the agents copied to their standard output, `worker-0  | …`.

        Raises:
            InputError: There is no such task.
        """
        names = [task.task for task in self._record.tasks]
        unknown = [task for task in tasks if task not in names]
        if unknown:
            raise InputError(f"no task {unknown[0]!r}", f"there are {', '.join(names)}")
        files = {task: self._place.output(task) for task in (tasks or names)}
        width = max(map(len, files), default=0)
        lines = follow_lines(files, tail, self.alive if follow else None, since)
        return (f"{task:<{width}}  | {line}" for task, line in lines)

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the task's place.

        Raises:
            InputError: There is no such task.
            LabError: Its agent is not there.
        """
        record = next((each for each in self._record.tasks if each.task == task), None)
        if record is None:
            names = ", ".join(each.task for each in self._record.tasks)
            raise InputError(f"no task {task!r}", f"there are {names}")
        pid = self._agent_pids().get(task)
        if pid is None:
            raise LabError(
                f"{task} has no agent any more", f"`lab down {self.project}` and boot anew"
            )
        own = {
            **record.environ,
            "PYTHONPATH": environ()["PYTHONPATH"],
            "LAB_PYTHON_BIN": str(Path(self._record.interpreter).parent),
        }
        variables = [f"{name}={value}" for name, value in own.items()]
        project = str(Path(record.environ["LAB_SCRIPTS"]).parent)
        return [*self._enter(pid), "env", "-C", project, *variables, *_SHELL]

    def look(self, *, tensorflow: bool) -> dict[str, Sight]:
        """What every task sees of the box's GPUs now; see `Environment`."""
        pids = self._agent_pids()

        def asking(task: str) -> Callable[[], Sight]:
            return lambda: self._look(task, pids.get(task), tensorflow=tensorflow)

        asks = {task.task: asking(task.task) for task in self._record.tasks}
        return looking.ask_all(asks, tensorflow=tensorflow)

    def _look(self, task: str, pid: int | None, *, tensorflow: bool) -> Sight:
        # Inside the namespaces its agent has another id, the one that the agent knows itself.
        own = self._presence_pid(task)
        if pid is None or own is None:
            return Sight.untold(self._how_ended(task))
        module = [self._record.interpreter, "-P", "-m", looking.MODULE, "--pid", str(own)]
        command = [*self._enter(pid), *module, *looking.words(tensorflow=tensorflow)]
        done = subprocess.run(
            command,
            env=environ(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return looking.answer(done.returncode, done.stdout, done.stderr)

    def _enter(self, pid: int) -> list[str]:
        """The command line prefix that starts a program where this agent is."""
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

    def description(self) -> tuple[str, str]:
        """`processes.json`: nodes, tasks and the variables that they were started with."""
        return "processes.json", self._record.to_json()

    def down(self, say: Say, *, unless: Unless = never, keeps: Keeps = nothing) -> None:
        """End every process of it and remove its directory; see `Environment`.

        Raises:
            LabError: Another command boots it or takes it down now, or something of it is left.
        """
        with state.locked(self.project):
            if self._place.read() != self._record:
                return  # another command has taken it down since, and may have booted anew
            unless()
            keep = keeps()
            say(f"local: taking down {self.project}")
            self.end(keep_volume=keep)

    def end(self, *, gently: bool = True, keep_volume: bool = False) -> None:
        """The same for a caller that has the lock.

        Args:
            gently: Let programs end by themselves first, and agents write how.
            keep_volume: Whether the run volume stays, and what is known of the environment.

        Raises:
            LabError: Something of it is left.
        """
        end_processes(
            self._record, list(self._agent_pids().values()), self._place.log, gently=gently
        )
        if any(task.gpus for task in self._record.tasks):
            release(self.backend, self.project, str(self._place.directory))
        if keep_volume:
            self._place.kept.touch()
        else:
            remove_tree(self._place.directory)

    def _agent_pids(self) -> dict[str, int]:
        """Task to the process id of its agent, as this process sees it; those that run."""
        if not self.alive():
            return {}
        said = {task.task: self._presence_pid(task.task) for task in self._record.tasks}
        if self._record.isolation is Isolation.PROCESSES:
            return {task: pid for task, pid in said.items() if pid is not None and running(pid)}
        seen = {inner_pid(pid): pid for pid in descendants(self._record.process.pid)}
        return {task: seen[pid] for task, pid in said.items() if pid is not None and pid in seen}

    def _presence_pid(self, task: str) -> int | None:
        try:
            return int(json.loads(read_regular(self._volume.agent(task)))["pid"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _how_ended(self, task: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return f"agent ended, {self._place.ended(task).read_text(encoding='utf-8')}"
        return "no agent"

    def _gone(self) -> LabError:
        return LabError(
            f"the local environment {self.project!r} has gone: its supervisor has ended",
            f"boot it anew with `lab up`; until then its runs lie in {self._place.runs}",
        )

    def _volume_fault(self, error: OSError) -> LabError:
        return LabError(
            f"the run volume {self._place.runs} cannot be used: {error.strerror}",
            "make room on it, and see that it is yours",
        )
