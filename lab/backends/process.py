"""Other processes: which one it is, whether it lives, and which are its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_LINUX = sys.platform == "linux"
_DEAD = {"Z", "X", ""}


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that is never taken for a later one with the same id.

    Attributes:
        pid: Its id.
        started: When it was started, as the kernel tells it.
        boot: Which life of the machine that was.
    """

    pid: int
    started: str
    boot: str

    @classmethod
    def of(cls, pid: int) -> Identity:
        """The process that has this id now.

        Raises:
            ProcessLookupError: There is none.
        """
        state, started = _look(pid)
        if state in _DEAD:
            raise ProcessLookupError(pid)
        return cls(pid, started, boot_id())

    def alive(self) -> bool:
        """Whether it still runs; one that has ended and was not reaped does not."""
        state, started = _look(self.pid)
        return state not in _DEAD and started == self.started and boot_id() == self.boot

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if not _LINUX:
            if self.alive():
                os.kill(self.pid, number)
            return
        try:
            # The descriptor stays with the process that it was opened for, so that nobody else
            # is hit when this one ends between the look and the signal.
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive():
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


def running(pid: int) -> bool:
    """Whether a process with this id runs; one that only waits to be reaped does not."""
    return _look(pid)[0] not in _DEAD


def descendants(pid: int) -> list[int]:
    """All processes below this one, children before grandchildren. Linux only."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _stat_fields(path)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = list(children.get(pid, ()))
    for each in found:
        found.extend(children.get(each, ()))
    return found


def inner_pid(pid: int) -> int | None:
    """The id that a process has inside its own pid namespace. Linux only."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    ids = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return int(ids[-1]) if ids else None


def _look(pid: int) -> tuple[str, str]:
    """State and start time; two empty texts where there is no such process."""
    if _LINUX:
        fields = _stat_fields(Path(f"/proc/{pid}/stat"))
        return (fields[0], fields[19]) if fields else ("", "")
    shown = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return (shown[0][0], shown[1].strip()) if len(shown) == 2 else ("", "")  # noqa: PLR2004


def _stat_fields(path: Path) -> list[str]:
    """The fields behind the program's name, which may hold blanks and parentheses itself."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def boot_id() -> str:
    """Which life of this machine it is; "" where the kernel does not tell."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if _LINUX else ""
