"""What the programs of a run spend while it goes, and what all others on the machine do.

Read from the kernel's own counts, a few times a second; which of these looks fall into the training
is decided afterwards, by the run's records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.task.protocol import TASK

PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TASK: Final = b"LAB_TASK="


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all programs of a run.

    Attributes:
        time_unix: When, in seconds since the epoch.
        cpu_s: CPU seconds of each task's program since its start, by the task's name.
        busy_s: CPU seconds for which the machine's cores were busy since its start, whoever used
            them: also those that the hypervisor gave to others.
        wire_bytes: Bytes that the loopback of the node's own network has carried since it exists,
            with the headers of TCP and IP; None where the programs have no network of their own.
    """

    time_unix: float
    cpu_s: Mapping[str, float]
    busy_s: float
    wire_bytes: int | None


class Watcher:
    """Finds the programs once, and looks at them again and again.

    Args:
        marker: Stands in the environment of every process of the run: `LAB_STATE=…`.
        program: The program's file name, which stands in the command line of each.
        count: How many tasks there are.
    """

    def __init__(self, marker: bytes, program: str, count: int, proc: Path = PROC) -> None:
        self._marker, self._program = marker, program.encode()
        self._count, self._proc = count, proc
        self._found: dict[Path, str] = {}

    def look(self) -> Look | None:
        """What was spent so far; None before all programs are there, and when one has gone."""
        if len(self._found) < self._count:
            self._found = dict(self._programs())
        if len(self._found) < self._count:
            return None
        now = time.time()
        try:
            spent = {task: _cpu_s(folder) for folder, task in self._found.items()}
            busy = busy_s((self._proc / "stat").read_text(encoding="ascii"))
            wire = self._wire_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return Look(now, spent, busy, wire)

    def _programs(self) -> Iterator[tuple[Path, str]]:
        for folder in self._proc.glob("[0-9]*"):
            try:
                environ = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes()
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue  # it has just ended, or belongs to somebody else
            if self._marker not in environ:
                continue
            tasks = [each for each in environ if each.startswith(_TASK)]
            if TASK.fullmatch(name):  # a forked program has its task's name
                yield folder, name
            elif tasks and self._program in command:
                yield folder, tasks[0].removeprefix(_TASK).decode()

    def _wire_bytes(self) -> int | None:
        """The loopback's bytes, once: it counts each as sent and as received."""
        folder = next(iter(self._found))
        if (folder / "ns/net").readlink() == (self._proc / "self/ns/net").readlink():
            return None  # the box's own loopback, where anybody may talk
        return loopback_bytes((folder / "net/dev").read_text(encoding="ascii"))


def _cpu_s(folder: Path) -> float:
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def busy_s(stat: str) -> float:
    """CPU seconds of all cores together that were not idle, from the text of /proc/stat (proc(5)).

    Raises:
        ValueError: It does not tell.
    """
    for line in stat.splitlines():
        name, *counts = line.split()
        if name == "cpu":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, counts[:8])
            return (user + nice + system + irq + softirq + steal) / _TICKS
    raise ValueError("no line cpu in /proc/stat")


def loopback_bytes(devices: str) -> int:
    """The bytes that `lo` has received, from the text of /proc/net/dev.

    Raises:
        ValueError: There is no such device.
    """
    for line in devices.splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    raise ValueError("no device lo in /proc/net/dev")
