"""The CPU time of a run's programs, and the CPU time of the whole host.

The watcher reads the kernel's counters a few times a second. The run's records decide afterwards
which of these samples are inside the training.
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
class Sample:
    """One sample of all programs of a run.

    Attributes:
        time_unix: The time, in seconds since the epoch.
        cpu_s: CPU seconds of each task's program since its start, by task.
        busy_s: CPU seconds of all work on the host's cores since its boot, also the time that the
            hypervisor gave to other hosts.
    """

    time_unix: float
    cpu_s: Mapping[str, float]
    busy_s: float


class Watcher:
    """Find the programs once, and sample them repeatedly.

    Args:
        marker: A variable in the environment of every process of the run: `LAB_STATE=…`.
        program: The program's file name, which is in the command line of each program.
        count: The number of tasks.
    """

    def __init__(self, marker: bytes, program: str, count: int, proc: Path = PROC) -> None:
        self._marker, self._program = marker, program.encode()
        self._count, self._proc = count, proc
        self._found: dict[Path, str] = {}

    def sample(self) -> Sample | None:
        """Return a sample; None before all programs have started and after one has ended."""
        if len(self._found) < self._count:
            self._found = dict(self._programs())
        if len(self._found) < self._count:
            return None
        now = time.time()
        try:
            spent = {task: _cpu_s(folder) for folder, task in self._found.items()}
            busy = busy_s((self._proc / "stat").read_text(encoding="ascii"))
        except (FileNotFoundError, ProcessLookupError):
            return None
        return Sample(now, spent, busy)

    def _programs(self) -> Iterator[tuple[Path, str]]:
        for folder in self._proc.glob("[0-9]*"):
            try:
                environ = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes()
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue  # the process has ended, or is another user's
            if self._marker not in environ:
                continue
            tasks = [each for each in environ if each.startswith(_TASK)]
            if TASK.fullmatch(name):  # a forked program has its task's name
                yield folder, name
            elif tasks and self._program in command:
                yield folder, tasks[0].removeprefix(_TASK).decode()


def _cpu_s(folder: Path) -> float:
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def busy_s(stat: str) -> float:
    """Return the CPU seconds of all cores that were not idle, from /proc/stat's text (proc(5)).

    Raises:
        ValueError: The text has no line for all cores.
    """
    for line in stat.splitlines():
        name, *counts = line.split()
        if name == "cpu":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, counts[:8])
            return (user + nice + system + irq + softirq + steal) / _TICKS
    raise ValueError("no line cpu in /proc/stat")
