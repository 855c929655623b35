"""A training program that the fork server forked (`lab.task.agent.forkserver`). Linux only.

An agent and its cradle exchange JSON messages over a socket pair, each with a descriptor or none.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "LAB_NURSERY"
"""Names to an agent the descriptor of its end of the socket pair."""

_ANSWER_S: Final = 10.0
"""A cradle answers in milliseconds; after so long it counts as gone."""

_LENGTH: Final = struct.Struct("!I")


class ConnectionClosed(Exception):  # noqa: N818  (a state)
    """The other side has closed its end, or says what nobody understands."""


def send(end: socket.socket, message: Mapping[str, object], descriptor: int | None = None) -> None:
    """Send a message.

    Args:
        end: This side's end.
        message: What to say.
        descriptor: A file descriptor of which the other side gets a copy.

    Raises:
        OSError: The other side has gone, or takes nothing within the socket's time-out.
    """
    data = json.dumps(message).encode()
    length = _LENGTH.pack(len(data))
    descriptors = [] if descriptor is None else [descriptor]
    # So short a piece is sent whole or not at all.
    socket.send_fds(end, [length], descriptors)
    end.sendall(data)


def receive(end: socket.socket) -> tuple[dict[str, Any], int | None]:
    """Wait for a message.

    Returns:
        The message, and the descriptor that came with it.

    Raises:
        HungUp: The other side has gone.
        OSError: Nothing came within the socket's time-out.
    """
    head, descriptors, _, _ = socket.recv_fds(end, _LENGTH.size, 1)
    try:
        head += _rest(end, _LENGTH.size - len(head))
        message = json.loads(_rest(end, _LENGTH.unpack(head)[0]))
    except ValueError as error:
        _close(descriptors)
        raise ConnectionClosed(str(error)) from error
    except BaseException:
        _close(descriptors)
        raise
    return message, descriptors[0] if descriptors else None


def _rest(end: socket.socket, count: int) -> bytes:
    pieces = []
    while count:
        piece = end.recv(count)
        if not piece:
            raise ConnectionClosed("the other side has gone")
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class ForkRefused(Exception):  # noqa: N818  (an answer)
    """The program has to be started by itself; the message says why."""


class ForkClient:
    """The agent's end of the socket pair.

    Attributes:
        why_not: Why nothing is forked any more; None while it may be, or is not known yet.
    """

    def __init__(self, end: socket.socket) -> None:
        """Take it over.

        Args:
            end: Its other side is held by the nursery alone.
        """
        self._end = end
        self._end.settimeout(_ANSWER_S)
        self._is_settled = False
        self.unavailable_reason: str | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ForkClient | None:
        """The one that this agent was given, if it was."""
        descriptor = environ.get(VARIABLE)
        if not descriptor:
            return None
        end = socket.socket(fileno=int(descriptor))
        end.set_inheritable(False)  # a program that held it would keep the cradle alive
        return cls(end)

    @property
    def wakes(self) -> tuple[int, ...]:
        """Descriptors that get readable when it has something to say."""
        return () if self._is_settled else (self._end.fileno(),)

    def is_settled(self) -> bool:
        """Whether it is known by now if programs can be forked."""
        if not self._is_settled and select.select([self._end], [], [], 0)[0]:
            self._is_settled = True
            try:
                self.unavailable_reason = receive(self._end)[0]["why_not"]
            except (ConnectionClosed, OSError):
                self.disconnect("the nursery has gone")
        return self._is_settled

    def disconnect(self, why_not: str) -> None:
        """Ask it for nothing any more; it ends, with what it holds."""
        self._is_settled = True
        self.unavailable_reason = why_not
        self._end.close()

    def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> ForkedProgram:
        """Fork a program.

        Raises:
            Refused: It has to be started by itself.
            OSError: There is no pipe for its output.
        """
        if self.unavailable_reason is not None:
            raise ForkRefused(self.unavailable_reason)
        if not self._is_settled:  # what it says next is not an answer
            raise ForkRefused("the import is under way")
        output, writing = os.pipe()
        order = {
            "agent": os.getpid(),
            "argv": list(argv),
            "environ": dict(environ),
            "folder": str(folder),
        }
        try:
            send(self._end, order, writing)
            answer, _ = receive(self._end)
            if "pid" in answer:
                return ForkedProgram(self, answer["pid"], output)
            os.close(output)
            raise ForkRefused(answer["why_not"])
        except (ConnectionClosed, OSError) as error:
            os.close(output)
            self.disconnect("the nursery has gone")
            raise ForkRefused("the nursery has gone") from error
        finally:
            os.close(writing)

    def reap(self, pid: int) -> int:
        """The exit code of a program that has ended; whatever it has left behind is ended.

        A cradle that has gone has taken the program with it.
        """
        try:
            send(self._end, {"reap": pid})
            return int(receive(self._end)[0]["code"])
        except (ConnectionClosed, OSError):
            self.disconnect("the nursery has gone")
            return -signal.SIGKILL


class ForkedProgram:
    """One start of a program, in a process group of its own; as `lab.task.agent.process.Program`.

    Its parent is the cradle, which keeps its process id from being another's until `reap`.

    Attributes:
        pid: Its process id.
        output: The reading end of the pipe that its standard output and error share.
    """

    def __init__(self, fork_client: ForkClient, pid: int, output: int) -> None:
        """Watch a program.

        Raises:
            OSError: It has been taken away already.
        """
        self._fork_client = fork_client
        self._code: int | None = None
        self._descriptor = os.pidfd_open(pid)
        self.pid = pid
        self.output = output

    @property
    def wakes(self) -> tuple[int, ...]:
        """Descriptors that get readable when it ends."""
        return (self._descriptor,) if self._code is None else ()

    def ended(self) -> bool:
        """Whether it has ended; it is not reaped, so that its process group stays its own."""
        return self._code is not None or bool(select.select([self._descriptor], [], [], 0)[0])

    def signal(self, number: int) -> None:
        """Send a signal to it and to its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._code is None:
                os.killpg(self.pid, number)

    def reap(self) -> int:
        """End what is left of its group and take its exit code, negative for a signal."""
        if self._code is None:
            self.signal(signal.SIGKILL)
            self._code = self._fork_client.reap(self.pid)
            os.close(self._descriptor)
        return self._code
