"""Starts the fork server (`lab.task.agent.forkserver`), which imports TensorFlow for all tasks."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.backends.local.state import EnvironmentRecord, StateDir
from lab.backends.python import base_environ
from lab.runtimes import RUNTIMES, TENSORFLOW
from lab.task.agent import forkserver
from lab.task.agent.command import environ_of_import
from lab.variables import LAB_LOCAL


@dataclass(frozen=True, slots=True)
class ForkServer:
    """The fork server's process, and the agents' ends of its socket pairs.

    Attributes:
        pid: Its process id; None if it does not run.
        ends: Task to the agent's end of the socket pair.
    """

    pid: int | None = None
    ends: Mapping[str, socket.socket] = field(default_factory=dict)

    def close_client_end(self, task: str) -> None:
        """Close this process's copy of the agent's end, so that only the agent has it."""
        if end := self.ends.get(task):
            end.close()


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
