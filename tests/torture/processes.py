"""Processes of this machine, found by their environment variables."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is not confused with a later one of the same id.

    Attributes:
        pid: Its id in this machine's own namespace.
        descriptor: Its pidfd.
    """

    pid: int
    descriptor: int

    def runs(self) -> bool:
        """Whether it has not ended; one that only waits to be reaped has."""
        return _stat(self.pid)[:1] not in ([], ["Z"], ["X"])

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; False where it had ended before."""
        if not self.runs():
            return False
        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)


def opened(pid: int) -> Process | None:
    """The process that has this id now."""
    try:
        return Process(pid, os.pidfd_open(pid))
    except ProcessLookupError:
        return None


def program(project: str, run_id: str, task: str) -> Process | None:
    """The program of a task of a run: the uppermost process with that run's variables.

    A forked program has its task's name, and its environment's variables.
    """
    pids = having(LAB_RUN_ID=run_id, LAB_TASK=task)
    pids += [pid for pid in having(LAB_PROJECT=project) if _name(pid) == task]
    uppermost = [pid for pid in pids if _parent(pid) not in pids]
    return opened(uppermost[0]) if uppermost else None


def agent(project: str, task: str) -> Process | None:
    """The agent of a task of an environment of processes."""
    for pid in having(LAB_PROJECT=project, LAB_TASK=task):
        if "LAB_RUN_ID" not in environ(pid) and b"lab.task.agent" in _command(pid):
            return opened(pid)
    return None


def having(**variables: str) -> list[int]:
    """Ids of all processes that have these variables, lowest first."""
    wanted = variables.items()
    return [pid for pid in _all() if wanted <= environ(pid).items()]


def environ(pid: int) -> Mapping[str, str]:
    """The variables that a process was started with; none where it has ended or is not readable."""
    pairs = _read(Path(f"/proc/{pid}/environ")).decode(errors="replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def resident_bytes(pid: int) -> int:
    """The memory of a process; 0 where it has ended."""
    fields = _read(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def describe(pid: int) -> str:
    """Id and command line."""
    return f"process {pid} ({_command(pid).replace(bytes(1), b' ').decode(errors='replace')[:100]})"


def _all() -> Iterator[int]:
    return (int(name) for name in sorted(os.listdir("/proc")) if name.isdigit())  # noqa: PTH208


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[str]:
    """The fields after the name: state, parent, …; none where it has ended."""
    return _read(Path(f"/proc/{pid}/stat")).decode(errors="replace").rpartition(")")[2].split()


def _name(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/comm")).decode(errors="replace").rstrip("\n")


def _command(pid: int) -> bytes:
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
