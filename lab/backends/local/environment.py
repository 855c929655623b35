"""An environment of processes: a supervisor, its agents, and their run volume."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.environment import TaskInfo
from lab.backends.gpu_record import release
from lab.backends.local.state import EnvironmentRecord, Isolation, StateDir
from lab.backends.names import LOCAL
from lab.backends.network_faults import wait_until_in_effect
from lab.backends.process import ProcessHandle, pid_in_namespace
from lab.backends.python import (
    base_environ,
    module_command,
    versions,
)
from lab.backends.recorded import RecordedEnvironment
from lab.base.errors import LabError
from lab.base.variables import LAB_SCRIPTS
from lab.protocol.network import fault
from lab.protocol.network.link import link_environ

if TYPE_CHECKING:
    from lab.cluster.gpu.verification import GpuView

_POLL_S = 0.05

# The supervisor waits 10 s for its agents.
_TERM_WITHIN_S = 15.0
_KILL_WITHIN_S = 10.0

REVERT_S: Final = 5.0
"""Seconds that a network fault has to revert its changes."""


# The user's .bashrc (pyenv, conda) may put another `python` first in PATH, so that variables alone
# are not enough.
_SHELL = ("bash", "--rcfile", str(Path(__file__).with_name("shell.bashrc")), "-i")


class LocalEnvironment(RecordedEnvironment[EnvironmentRecord]):
    """A supervisor, its agents, and their run volume.

    Namespaces have no route to the host, and without them nothing can block it.
    """

    backend = LOCAL
    is_local = True
    state_dirs = StateDir

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
        record = self.known_task(records, task)
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
        from lab.backends import gpu_verification  # noqa: PLC0415  (only a host with GPUs is probed)

        agents = self._agents()
        return gpu_verification.probe_all(
            {
                record.task: partial(self._probe_task, record.task, agents.get(record.task))
                for record in self._record.tasks
            }
        )

    def _probe_task(self, task: str, agent: ProcessHandle | None) -> GpuView:
        from lab.backends import gpu_verification  # noqa: PLC0415  (see `probe_gpus`)
        from lab.cluster.gpu.verification import GpuView  # noqa: PLC0415

        # The probe runs inside the namespaces, where the agent has another process id.
        own = self._state_dir.read_agent(task)
        if agent is None or own is None:
            return GpuView(why=self._how_ended(task))
        # This Python has nvidia-ml-py; that of the tasks may not have it.
        probe = [sys.executable, "-P", *gpu_verification.COMMAND, "--pid", str(own.pid)]
        done = subprocess.run(
            [*self._enter(agent), *probe],
            env=base_environ(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return gpu_verification.parse_output(done.returncode, done.stdout, done.stderr)

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
            "cpus": str(len(os.sched_getaffinity(0))),
            **versions(self._record.interpreter),
        }

    def stop(self, *, gently: bool = True) -> None:
        """End the supervisor, and all processes below it; see `RecordedEnvironment`."""
        supervisor = self._record.process
        isolated = self._record.isolation is Isolation.NAMESPACES
        below = supervisor.descendants() if isolated else [*self._agents().values()]
        # With namespaces, the supervisor's process is the only child of `unshare`.
        leader = below[0] if isolated and below else supervisor
        stages = [
            (leader, signal.SIGTERM, _TERM_WITHIN_S),
            (supervisor, signal.SIGKILL, _KILL_WITHIN_S),
        ]
        # During a boot, process 1 of the namespace may not have a handler for SIGTERM yet: it would
        # ignore the signal.
        for target, number, seconds in stages[1:] if isolated and not gently else stages:
            target.signal(number)
            if _have_ended(supervisor, below, seconds):
                break
        else:
            raise LabError(
                f"processes of the local environment {self.project!r} did not end",
                f"see pid {supervisor.pid} and {self._state_dir.log}",
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


def _have_ended(supervisor: ProcessHandle, below: Sequence[ProcessHandle], within_s: float) -> bool:
    """Wait until these processes have ended; return whether they have in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(ChildProcessError):
            os.waitpid(supervisor.pid, os.WNOHANG)  # it may be this process's own child
        if not supervisor.alive() and not any(handle.alive() for handle in below):
            return True
        time.sleep(_POLL_S)
    return False


def inject_fault(
    node: str,
    enter: Sequence[str],
    arguments: Sequence[str],
    variables: Mapping[str, str],
) -> None:
    """Start a network fault in a node's namespaces, and return when it is in effect.

    Args:
        node: The node's name, for messages.
        enter: The command line prefix that starts a program on the node.
        arguments: Arguments of `lab.protocol.network.fault`.
        variables: Environment variables that describe the node's link.

    Raises:
        LabError: The fault is not in effect; its changes are reverted.
    """
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [*enter, *module_command(fault.MODULE), *arguments],
            env={**base_environ(), **variables},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C must not end it
        )
        assert process.stdout is not None  # noqa: S101 (narrows the type)
        pipe = process.stdout

        def began() -> bytes | None:
            with pipe as output:
                if output.readline():
                    return None
            process.wait()
            stderr.seek(0)
            return stderr.read()

        try:
            wait_until_in_effect(node, began)
        except BaseException:
            if process.returncode is None:
                _end(process)
            raise
        process.returncode = 0  # no `wait` for it: it ends by itself


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group of a fault: with SIGTERM, after a time limit with SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(REVERT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
