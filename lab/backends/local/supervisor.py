"""The supervisor: starts the agents of one local environment, and ends them when it ends.

Inside namespaces it is process 1, so that the kernel kills all processes when it dies. Without
namespaces each agent has the end of a pipe, which closes when the supervisor dies. The argument is
the environment's state directory. It starts no agent before the line `START` on its standard input:
then the environment's record is written. It ends when the record is removed, because no command
could find it. The fork server (`lab.task.agent.forkserver`) imports TensorFlow for all tasks.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from lab.backends.local.state import (
    START,
    EnvironmentRecord,
    Isolation,
    StateDir,
    TaskRecord,
    parse_cpuset,
)
from lab.backends.process import ProcessHandle
from lab.backends.python import base_environ, module_command
from lab.base.signals import way_to_end
from lab.base.variables import LAB_LOCAL
from lab.protocol.runtimes import RUNTIMES, TENSORFLOW
from lab.task.agent import forkserver
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.command import environ_of_import

# An agent waits 5 s for its program, and 3 s for the rest of the output.
_AGENTS_GRACE_S = 10.0
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class ForkServer:
    """The fork server's process, and the agents' ends of its socket pairs.

    Attributes:
        pid: Its process id; None if it does not run.
        ends: Task to the agent's end of the socket pair.
    """

    pid: int | None = None
    ends: Mapping[str, socket.socket] = field(default_factory=dict)


def start_forkserver(record: EnvironmentRecord, state_dir: StateDir) -> ForkServer:
    """Start the fork server, if programs of this environment can be forked.

    Raises:
        OSError: It could not be started.
    """
    tasks = [task for task in record.tasks if not task.gpus]
    if unavailable_reason(record.runtime) is not None or not tasks:
        return ForkServer()
    pairs = {task.task: socket.socketpair(type=socket.SOCK_SEQPACKET) for task in tasks}
    server_ends = [pair[1].fileno() for pair in pairs.values()]
    # The variables that all agents have in common.
    shared = dict(set.intersection(*(set(task.environ.items()) for task in record.tasks)))
    with state_dir.output("forkserver").open("ab") as output:
        process = subprocess.Popen(
            [record.interpreter, *forkserver.argv(server_ends)],
            env=environ_of_import({**base_environ(), **shared}, record.runtime),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=server_ends,
            process_group=0,
        )
    process.returncode = 0  # the supervisor reaps it, like every other process
    for _, server_end in pairs.values():
        server_end.close()
    return ForkServer(process.pid, {task: pair[0] for task, pair in pairs.items()})


def unavailable_reason(runtime: str) -> str | None:
    """Why each program must import TensorFlow itself; None if the fork server imports it."""
    if "fork" not in os.environ.get(LAB_LOCAL, "fork").split(","):
        return f"{LAB_LOCAL} has no fork"
    if runtime != TENSORFLOW.name:
        return f"forking is not tested with {RUNTIMES[runtime].title}"
    return None


@dataclass(slots=True)
class Supervisor:
    """Starts agents, reaps ended processes, stops agents.

    Attributes:
        state_dir: The environment's state directory.
        record: The environment's record.
    """

    state_dir: StateDir
    record: EnvironmentRecord
    _agents: dict[int, str] = field(default_factory=dict)
    _leash: tuple[int, int] | None = None
    _stopping: bool = False
    _forkserver: ForkServer = field(default_factory=ForkServer)

    def run(self) -> int:
        """Run the agents until a signal or the end of the record stops them; return the exit code.

        Raises:
            NetworkError: The network could not be built; nothing was started.
            OSError: An agent could not be started; the others end with this process.
        """
        wakes, waker = socket.socketpair()
        for end in (wakes, waker):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (*_ENDS, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        self._start_all()
        stop_at: float | None = None
        while True:
            self._reap()
            self._stopping = self._stopping or self._is_removed()
            if self._stopping and stop_at is None:
                stop_at = time.monotonic() + _AGENTS_GRACE_S
                self._signal_all(signal.SIGTERM)
            if stop_at is not None and (not self._left() or time.monotonic() > stop_at):
                break
            select.select([wakes], [], [], 1.0)
            with contextlib.suppress(BlockingIOError):
                wakes.recv(4096)
        self._signal_all(signal.SIGKILL)
        return 0

    def _is_removed(self) -> bool:
        try:
            self.state_dir.record.lstat()
        except OSError as error:  # another one: the file system does not answer
            return isinstance(error, FileNotFoundError | NotADirectoryError)
        return False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._stopping = self._stopping or number in _ENDS

    def _start_all(self) -> None:
        self.state_dir.output("x").parent.mkdir(exist_ok=True)
        # First, because its import takes longest; the rest runs in parallel on another CPU.
        self._forkserver = start_forkserver(self.record, self.state_dir)
        if self.record.isolation is Isolation.NAMESPACES:
            # Imported here: netlink takes 0.4 s.
            from lab.backends.local.network import build, hosts_text  # noqa: PLC0415

            self.state_dir.hosts.write_text(hosts_text(self.record.nodes), encoding="utf-8")
            namespaces = build(self.record.nodes, self.state_dir.hosts)
            for task in self.record.tasks:
                node = namespaces[task.node]
                self._start(task, node.enter(), node.descriptors())
        else:
            self._leash = os.pipe()
            for task in self.record.tasks:
                self._start(task, [], ())

    def _start(self, task: TaskRecord, prefix: list[str], descriptors: tuple[int, ...]) -> None:
        options = [] if self._leash is None else ["--leash"]
        if (end := self._forkserver.ends.get(task.task)) is not None:
            options += ["--forkserver", str(end.fileno())]
            descriptors = (*descriptors, end.fileno())
        with self.state_dir.output(task.task).open("ab") as output:
            agent = subprocess.Popen(
                [*prefix, *module_command("lab.task.agent", self.record.interpreter), *options],
                env={**base_environ(), **task.environ},
                stdin=self._leash[0] if self._leash is not None else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=descriptors,
                process_group=0,  # and no session: see `ChildProcess` in `lab.task.agent.process`
            )
        if end is not None:  # only the agent has it then
            end.close()
        self._agents[agent.pid] = task.task
        # `_reap` reaps it, so that Popen must not wait for it.
        agent.returncode = 0
        with contextlib.suppress(ProcessLookupError):  # it has ended: `_reap` reports it
            self.state_dir.write_agent(task.task, ProcessHandle.of(agent.pid))
        if task.cpuset is not None:
            _pin(agent.pid, task.task, task.cpuset)
        _log(f"{task.task}: agent started, pid {agent.pid}")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._forkserver.pid:
                self._forkserver = replace(self._forkserver, pid=None)
            task = self._agents.pop(pid, None)
            if task is not None:
                how = way_to_end(os.waitstatus_to_exitcode(status))
                _log(f"{task}: agent ended, {how}")
                # A full disk must not end the other agents.
                with contextlib.suppress(OSError):
                    self.state_dir.ended(task).write_text(how, encoding="utf-8")

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._left():
            os.kill(pid, number)

    def _left(self) -> list[int]:
        """The processes that still run: agents, and the fork server, which ends after them."""
        forkserver = [] if self._forkserver.pid is None else [self._forkserver.pid]
        return [*self._agents, *forkserver]


def _pin(pid: int, task: str, cpuset: str) -> None:
    try:
        os.sched_setaffinity(pid, parse_cpuset(cpuset))
    except OSError as error:
        _log(f"{task}: not pinned to the CPUs {cpuset}: {error.strerror}")


def _log(line: str) -> None:
    AgentLog(sys.stderr.fileno()).echo(f"{time.strftime('%H:%M:%S')} {line}\n".encode())


def main(argv: list[str]) -> int:
    """Run the environment of this state directory; return the exit code."""
    state_dir = StateDir(Path(argv[0]))
    # Before the caller has written the record, no command could find and end this process.
    if sys.stdin.buffer.readline() != START:
        return 1
    record = state_dir.read()
    if record is None:
        sys.stderr.write(f"error: no environment in {state_dir.directory}\n")
        return 1
    try:
        return Supervisor(state_dir, record).run()
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
