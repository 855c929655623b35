"""Other processes: which one it is, whether it lives, and which are its children."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """A process that is never taken for a later one with the same id.

    Attributes:
        pid: Its id.
        started: When it was started, as the kernel counts.
        boot: Which life of the machine that was.
    """

    pid: int
    started: str
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessHandle:
        """The process that has this id now.

        Raises:
            ProcessLookupError: There is none.
        """
        if not (started := _started(pid)):
            raise ProcessLookupError(pid)
        return cls(pid, started, boot_id())

    def alive(self) -> bool:
        """Whether it still runs; one that has ended and was not reaped does not."""
        return _started(self.pid) == self.started and boot_id() == self.boot

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            if not _LINUX:
                if self.alive():
                    os.kill(self.pid, number)
                return
            # The descriptor stays with the process that it was opened for. psutil has no such
            # descriptor: another process could get the id between its check and its signal.
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def is_running(pid: int) -> bool:
    """Whether a process with this id runs; one that only waits to be reaped does not."""
    return bool(_started(pid))


def descendants(pid: int) -> list[int]:
    """All processes below this one, each behind its parent."""
    import psutil  # noqa: PLC0415  (few commands ask)

    try:
        return [each.pid for each in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def pid_in_namespace(pid: int) -> int | None:
    """The id that a process has inside its own pid namespace, which psutil does not show."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    ids = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return int(ids[-1]) if ids else None


def _started(pid: int) -> str:
    """When a running process was started; "" where there is none.

    On Linux in ticks since the boot: `create_time` of psutil changes when the clock is set, and
    other processes compare what is recorded here.
    """
    if not _LINUX:
        import psutil  # noqa: PLC0415  (few commands ask)

        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                return str(process.create_time())
        return ""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The program's name before these fields may hold blanks and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]


def boot_id() -> str:
    """Which life of this machine it is; "" where the kernel does not tell."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if _LINUX else ""
