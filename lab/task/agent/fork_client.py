"""The agent's side of the connection to the fork server (`lab.task.agent.forkserver`)."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.task.agent.forkserver import receive, send

_ANSWER_S: Final = 10.0
"""Time limit for an answer, in seconds. The fork server normally answers in milliseconds."""


class ForkRefused(Exception):  # noqa: N818  (an answer)
    """The program must be started as a new process; the message contains the reason."""


class ForkClient:
    """The agent's side of the connection.

    Attributes:
        unavailable_reason: Why the fork server forks nothing; None if it does, or is not ready.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Use a socket.

        Args:
            sock: One socket of a pair, which this process has inherited; only the fork server has
                the other one.
        """
        self._sock = sock
        self._sock.set_inheritable(False)  # in a program it would keep the connection open
        self._sock.settimeout(_ANSWER_S)
        self._is_settled = False
        self.unavailable_reason: str | None = None

    @property
    def wake_fds(self) -> tuple[int, ...]:
        """Descriptors that get readable when the fork server is ready or has failed."""
        return () if self._is_settled else (self._sock.fileno(),)

    def is_settled(self) -> bool:
        """Whether the fork server has reported if it can fork programs."""
        if not self._is_settled and select.select([self._sock], [], [], 0)[0]:
            self._is_settled = True
            try:
                self.unavailable_reason = receive(self._sock)[0]["reason"]
            except OSError:
                self.disconnect("the fork server has ended")
        return self._is_settled

    def disconnect(self, reason: str) -> None:
        """Close the connection; the task parent then ends its programs and itself."""
        self._is_settled = True
        self.unavailable_reason = reason
        self._sock.close()

    def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> ForkedProgram:
        """Fork a program.

        Raises:
            ForkRefused: The program must be started as a new process.
            OSError: The pipe for its output cannot be created.
        """
        if self.unavailable_reason is not None:
            raise ForkRefused(self.unavailable_reason)
        if not self._is_settled:  # the next message is the readiness report, not an answer
            raise ForkRefused("the import is still running")
        output, writing = os.pipe()
        request = {
            "agent": os.getpid(),
            "argv": list(argv),
            "environ": dict(environ),
            "folder": str(folder),
        }
        try:
            send(self._sock, request, writing)
            answer, _ = receive(self._sock)
            if "pid" in answer:
                return ForkedProgram(self, answer["pid"], output)
            os.close(output)
            raise ForkRefused(answer["reason"])
        except OSError as error:
            os.close(output)
            self.disconnect("the fork server has ended")
            raise ForkRefused("the fork server has ended") from error
        finally:
            os.close(writing)

    def reap(self, pid: int) -> int:
        """Kill the orphans of an ended program and return its exit code.

        If the task parent has ended, the kernel has killed the program with it.
        """
        try:
            send(self._sock, {"reap": pid})
            return int(receive(self._sock)[0]["code"])
        except OSError:
            self.disconnect("the fork server has ended")
            return -signal.SIGKILL


class ForkedProgram:
    """One start of a program, in its own process group; used like `process.ChildProcess`.

    Its parent is the task parent. The process id is not reused before `reap`.

    Attributes:
        pid: Its process id.
        output: The reading end of the pipe for its standard output and error.
    """

    def __init__(self, fork_client: ForkClient, pid: int, output: int) -> None:
        """Watch a program.

        Raises:
            OSError: The process does not exist.
        """
        self._fork_client = fork_client
        self._code: int | None = None
        self._descriptor = os.pidfd_open(pid)
        self.pid = pid
        self.output = output

    @property
    def wake_fds(self) -> tuple[int, ...]:
        """Descriptors that get readable when it ends."""
        return (self._descriptor,) if self._code is None else ()

    def ended(self) -> bool:
        """Whether it has ended. It is not reaped, so its process group id is not reused."""
        return self._code is not None or bool(select.select([self._descriptor], [], [], 0)[0])

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._code is None:
                os.killpg(self.pid, number)

    def reap(self) -> int:
        """Kill the rest of its group and return its exit code, negative for a signal."""
        if self._code is None:
            self.signal(signal.SIGKILL)
            self._code = self._fork_client.reap(self.pid)
            os.close(self._descriptor)
        return self._code
