"""Whether a task's program has ever had a TCP connection to the program of another task.

The kernel lists the connections of a network namespace in `/proc/PID/net/tcp`, each with the inode
of its socket (see proc_pid_net(5)); the descriptors of a process show the inodes of its sockets.
This needs no capability, only the same user.

The answer is not known if a program could have talked in a way that this does not show: over UDP,
RDMA or shared memory, over an address that is not in the cluster spec, or with a process of its own
node that its agent cannot see.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from lab.task.agent.process import family

_STATES: Final = frozenset({"01", "04", "05", "06", "08", "09", "0B"})
"""The states of connections that are or were established, as `<net/tcp_states.h>` numbers them. An
end that has closed its connection is in TIME_WAIT (06) for a minute, and has no inode any more."""

_FIRST_LOOKS_S: Final = 0.1
_LATER_LOOKS_S: Final = 5.0
_LEAST_LOOKS: Final = 3
"""With fewer looks, a short connection may have been missed."""

_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
_SHARED_MEMORY: Final = re.compile(
    rb" rw-s .*(?:/dev/infiniband/|/SYSV|/dev/shm/(?!.*\(deleted\)$))", re.MULTILINE
)
"""A line of `/proc/PID/maps`: memory that other programs can open, or an RDMA device."""

Address = IPv4Address | IPv6Address

End = tuple[Address, int]
"""The address and the port of one end of a connection."""


class Connection(NamedTuple):
    """A connection in a network namespace, and the inode of its local end; 0: it is closed."""

    local: End
    remote: End
    inode: int


class Contact:
    """Looks for connections of one task's program to the programs of the other tasks."""

    def __init__(
        self, address: str, others: Collection[str], *, talked: bool | None = None
    ) -> None:
        """Prepare for the first program.

        Args:
            address: `host:port` of the task.
            others: The same of the other tasks.
            talked: The answer of an earlier process of this agent.
        """
        self._host = address.rpartition(":")[0]
        self._unresolved = {each.rpartition(":")[0] for each in (address, *others)}
        self._here, self._elsewhere = set[Address](), set[Address]()
        self._ports = {int(each.rpartition(":")[2]) for each in (address, *others)}
        self._talked, self._is_unclear, self._looks = bool(talked), False, 0
        self._program, self._is_launched, self._ignored_port = 0, False, 0
        self._began = self._due = 0.0
        # Those that do not count: older ones, and those of the program to itself.
        self._known: set[tuple[End, End]] = set()

    @property
    def talked(self) -> bool | None:
        """Whether the program has had a connection to another task, in any attempt; None: unknown.

        It is also unknown before the program was looked at a few times.
        """
        if self._talked:
            return True
        return None if self._is_unclear or self._looks < _LEAST_LOOKS else False

    def begin(self, program: int, *, is_launched: bool = False, ignored_port: int = 0) -> None:
        """Note the start of a program.

        Args:
            program: Its first process.
            is_launched: Whether this process only starts the others. It may connect to that of
                another task although their programs do not.
            ignored_port: The port of a service of the agents; 0: there is none.
        """
        self._program, self._is_launched, self._ignored_port = program, is_launched, ignored_port
        self._began = self._due = time.monotonic()
        self._known |= {(each.local, each.remote) for each in connections()}
        # A name server that does not answer can take a minute; the agent must send heartbeats.
        names = threading.Thread(target=self._resolve, daemon=True)
        names.start()
        names.join(1.0)

    def look(self, others: Iterable[int] = ()) -> None:
        """Look at the connections of the program, if a look is due and none was found before.

        Args:
            others: The programs of other tasks, if they are processes of this node.
        """
        now = time.monotonic()
        if self._talked or now < self._due:
            return
        self._due = now + min(_LATER_LOOKS_S, max(_FIRST_LOOKS_S, (now - self._began) / 100))
        self._looks += 1
        processes = family(self._program).keys()
        own = _sockets(processes)
        counted = _sockets(processes - {self._program}) if self._is_launched else own
        listed = [*self._connections()]
        inodes = {(each.local, each.remote): each.inode for each in listed}
        for each in (each for each in listed if each.inode in counted):
            other_end = inodes.get((each.remote, each.local))
            if other_end is None:  # it is on another node
                self._talked |= each.remote[0] in self._elsewhere
                # The nodes may have a second network, as for InfiniBand.
                self._is_unclear |= not each.remote[0].is_global
            elif other_end in own:
                self._known.add((each.local, each.remote))
            elif other_end in _sockets(chain.from_iterable(map(family, others))):
                self._talked = True
            else:
                self._is_unclear = True
        self._is_unclear |= any(map(_has_other_ways, processes))

    def end(self) -> None:
        """Look for connections that the program has closed, after its end."""
        for each in self._connections():
            if not each.inode and (each.local, each.remote) not in self._known:
                self._talked |= each.remote[0] in self._elsewhere
                self._is_unclear |= bool(self._unresolved)
                # The list does not show whose connection on this node it was.
                is_of_a_task = not self._ports.isdisjoint({each.local[1], each.remote[1]})
                self._is_unclear |= is_of_a_task and each.remote[0] in self._here

    def _connections(self) -> Iterator[Connection]:
        for each in connections():
            if not self._ignored_port or self._ignored_port not in {each.local[1], each.remote[1]}:
                yield each

    def _resolve(self) -> None:
        for host in tuple(self._unresolved):
            with contextlib.suppress(OSError):  # of a node that does not run
                found = {ip_address(end[0]) for *_, end in socket.getaddrinfo(host, None)}
                (self._here if host == self._host else self._elsewhere).update(found)
                self._unresolved.discard(host)


def connections() -> Iterator[Connection]:
    """The TCP connections of this network namespace that are or were established."""
    for _, local, remote, state, *_, inode in _listed("tcp", "tcp6"):
        if state in _STATES:
            yield Connection(_end(local), _end(remote), int(inode))


def _listed(*names: str) -> Iterator[list[str]]:
    """The first ten fields of each line of tables in `/proc/self/net`."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            for line in Path("/proc/self/net", name).read_text("ascii").splitlines()[1:]:
                yield line.split()[:10]


def _end(text: str) -> End:
    """Read `0100007F:1F90`, an address in words of the host's byte order and a port."""
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    address = ip_address(struct.pack(f"={len(words)}I", *words))
    return getattr(address, "ipv4_mapped", None) or address, int(port, 16)


def _sockets(processes: Iterable[int]) -> set[int]:
    """The inodes of the sockets of processes."""
    inodes = set()
    for process in processes:
        # It may end now, or belong to another user.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if match := _SOCKET.fullmatch(str(descriptor.readlink())):
                        inodes.add(int(match[1]))
    return inodes


def _has_other_ways(process: int) -> bool:
    """Whether a process has what it could talk over without a connection of TCP."""
    with contextlib.suppress(OSError):
        if _SHARED_MEMORY.search(Path(f"/proc/{process}/maps").read_bytes()):
            return True
        return not _sockets([process]).isdisjoint(int(udp[9]) for udp in _listed("udp", "udp6"))
    return False
