"""A local environment: agents and programs as processes of this host."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.directory import RecordedEnvironment
from lab.backends.environment import TaskInfo
from lab.backends.environment_dir import record_text
from lab.backends.gpu_record import release
from lab.backends.local.processes import end_processes, inject_fault
from lab.backends.local.state import EnvironmentRecord, Isolation, StateDir
from lab.backends.names import LOCAL
from lab.backends.process import ProcessHandle, pid_in_namespace
from lab.backends.python import base_environ, versions
from lab.backends.selection import known_task
from lab.errors import LabError
from lab.gpu.inventory import usable_cpus
from lab.network import link_environ
from lab.variables import LAB_SCRIPTS

if TYPE_CHECKING:
    from lab.gpu.verification import GpuView

# The user's .bashrc (pyenv, conda) may put another `python` first in PATH, so that variables alone
# are not enough.
_SHELL = ("bash", "--rcfile", str(Path(__file__).with_name("shell.bashrc")), "-i")


class LocalEnvironment(RecordedEnvironment[EnvironmentRecord]):
    """A supervisor, its agents, and their run volume."""

    backend = LOCAL
    is_local = True

    _state_dir: StateDir

    @property
    def is_up(self) -> bool:
        """Whether its supervisor runs, or an agent that has not ended since its supervisor did."""
        return self._record.process.alive() or bool(self._agents())

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        agents = self._agents()
        return [
            TaskInfo(
                task=record.task,
                node=record.node,
                address=record.address,
                gpus=record.gpus,
                alive=record.task in agents,
                detail=f"pid {agents[record.task].pid}"
                if record.task in agents
                else self._how_ended(record.task),
            )
            for record in self._record.tasks
        ]

    def stopped(self) -> LabError:
        """The error for an environment that has stopped."""
        return LabError(
            f"the local environment {self.project!r} has stopped: its supervisor ended",
            f"boot it again with `lab up`; until then its runs are in {self._state_dir.runs}",
        )

    def block_host(self) -> None:
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
        agents = self._agents()
        tasks = [record.task for record in self._record.tasks if record.node == node]
        agent = next((agents[task] for task in tasks if task in agents), None)
        if agent is None:
            raise LabError(f"node {node} has no running agent", f"see `lab ps {self.project}`")
        link = next((record.link for record in self._record.nodes if record.name == node), None)
        variables = link_environ(link.rate_bits, link.delay_us) if link else {}
        inject_fault(node, self._enter(agent), arguments, variables)

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the namespaces of the task's agent.

        Raises:
            InputError: There is no such task.
            LabError: Its agent does not run.
        """
        records = {record.task: record for record in self._record.tasks}
        record = known_task(self.project, records, task)
        agent = self._agents().get(task)
        if agent is None:
            raise LabError(
                f"{task} has no running agent",
                f"run `lab down {self.project}`, then boot it again",
            )
        own = {
            **record.environ,
            "PYTHONPATH": base_environ()["PYTHONPATH"],
            "PATH": f"{Path(self._record.interpreter).parent}:{os.environ.get('PATH', os.defpath)}",
        }
        variables = [f"{name}={value}" for name, value in own.items()]
        project = str(Path(record.environ[LAB_SCRIPTS]).parent)
        return [*self._enter(agent), "env", "-C", project, *variables, *_SHELL]

    def probe_gpus(self) -> dict[str, GpuView]:
        """The GPUs that each task sees now; see `Environment`."""
        from lab.backends import gpu_probe  # noqa: PLC0415  (only a host with GPUs is probed)

        agents = self._agents()
        return gpu_probe.probe_all(
            {
                record.task: partial(self._probe_task, record.task, agents.get(record.task))
                for record in self._record.tasks
            }
        )

    def _probe_task(self, task: str, agent: ProcessHandle | None) -> GpuView:
        from lab.backends import gpu_probe  # noqa: PLC0415  (see `probe_gpus`)
        from lab.gpu.verification import GpuView  # noqa: PLC0415

        # The probe runs inside the namespaces, where the agent has another process id.
        own = self._state_dir.read_agent(task)
        if agent is None or own is None:
            return GpuView(why=self._how_ended(task))
        # This Python has nvidia-ml-py; that of the tasks may not have it.
        probe = [sys.executable, "-P", *gpu_probe.COMMAND, "--pid", str(own.pid)]
        done = subprocess.run(
            [*self._enter(agent), *probe],
            env=base_environ(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return gpu_probe.parse_output(done.returncode, done.stdout, done.stderr)

    def _enter(self, agent: ProcessHandle) -> list[str]:
        """The command line prefix that starts a program in the namespaces of this agent."""
        if self._record.isolation is Isolation.PROCESSES:
            return []
        spaces = ["-U", "--preserve-credentials", "-n", "-u", "-m", "-p"]
        return ["nsenter", "-t", str(agent.pid), *spaces, "--"]

    def provenance(self) -> dict[str, str]:
        """What really ran: interpreter, versions, kernel."""
        return {
            "interpreter": self._record.interpreter,
            "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
            "isolation": self._record.isolation.value,
            "cpus": str(usable_cpus()),
            **versions(self._record.interpreter),
        }

    def boot_file(self) -> tuple[str, str]:
        """`processes.json`: the nodes and the tasks with their environment variables."""
        return "processes.json", record_text(self._record)

    def stop(self, *, gently: bool = True) -> None:
        """End all its processes; see `RecordedEnvironment`."""
        end_processes(
            self._record, list(self._agents().values()), self._state_dir.log, gently=gently
        )
        if any(task.gpus for task in self._record.tasks):
            release(self.backend, self.project, str(self._state_dir.directory))

    def _agents(self) -> dict[str, ProcessHandle]:
        """Task to its agent, as this process sees it, for agents that run."""
        tasks = [record.task for record in self._record.tasks]
        agents = {task: agent for task in tasks if (agent := self._state_dir.read_agent(task))}
        if self._record.isolation is Isolation.PROCESSES:
            return {task: agent for task, agent in agents.items() if agent.alive()}
        below = self._record.process.descendants()
        own = {(pid_in_namespace(process.pid), process.started): process for process in below}
        keys = {task: (agent.pid, agent.started) for task, agent in agents.items()}
        return {task: own[key] for task, key in keys.items() if key in own}

    def _how_ended(self, task: str) -> str:
        with suppress(FileNotFoundError):
            return f"agent ended, {self._state_dir.ended(task).read_text(encoding='utf-8')}"
        return "no agent"
