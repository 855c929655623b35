"""Handles of other processes: identity, state and children."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """A process, distinguished from later processes with the same id.

    Attributes:
        pid: Its id.
        started: Its start time, as the kernel counts.
        boot: The id of the host's boot at that time.
    """

    pid: int
    started: str
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessHandle:
        """Return the process that has this id now.

        Raises:
            ProcessLookupError: There is no such process.
        """
        if not (started := _started(pid)):
            raise ProcessLookupError(pid)
        return cls(pid, started, boot_id())

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not count."""
        return _started(self.pid) == self.started and boot_id() == self.boot

    def descendants(self) -> list[ProcessHandle]:
        """Return all processes below it, each after its parent; none if it has ended."""
        import psutil  # noqa: PLC0415  (few commands need it)

        handles = []
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with suppress(ProcessLookupError):
                    handles.append(ProcessHandle.of(child.pid))
        return handles if self.alive() else []

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it, if it still runs."""
        with suppress(ProcessLookupError):
            # The descriptor always refers to the same process. Without it, another process could
            # get the id between the check and the signal.
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def pid_in_namespace(pid: int) -> int | None:
    """Return the id of a process inside its own pid namespace, which psutil does not show."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    ids = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return int(ids[-1]) if ids else None


def _started(pid: int) -> str:
    """The start time of a running process; "" if there is none.

    It is in ticks since the boot. psutil's `create_time` changes when the clock is set,
    but later commands compare this value with a recorded one.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The program's name before these fields may contain spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]


def boot_id() -> str:
    """Return the id of this host's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
