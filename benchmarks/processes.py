"""The CPU time of a run's processes, and that of the whole host.

The watcher reads the kernel's counters a few times a second. The run's records decide afterwards
which of these samples are inside the training.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.trainings import ROOT, TIMEOUT_S, TrainingError, UnfitError, Workplace
from lab.protocol.volume.layout import TASK

PROC: Final = Path("/proc")
EVERY_S: Final = 0.25
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TASK: Final = b"LAB_TASK="


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of all processes of a run.

    Attributes:
        time_unix: The time, in seconds since the epoch.
        cpu_s: CPU seconds of each task's program since its start, by task.
        lab_s: CPU seconds of the client, the supervisor, the fork server and the agents.
        busy_s: CPU seconds of all work on the host's cores since its boot, also the time that the
            hypervisor gave to other hosts.
    """

    time_unix: float
    cpu_s: Mapping[str, float]
    lab_s: float
    busy_s: float


class Watcher:
    """Find the processes once, and sample them repeatedly.

    Args:
        marker: A variable in the environment of every process of the run: `LAB_STATE=…`.
        program: The program's file name, which is in the command line of each program.
        count: The number of tasks.
    """

    def __init__(self, marker: bytes, program: str, count: int, proc: Path = PROC) -> None:
        self._marker, self._program = marker, program.encode()
        self._count, self._proc = count, proc
        self._programs: dict[Path, str] = {}
        self._others: list[Path] = []

    def sample(self) -> Sample | None:
        """Return a sample; None before all programs have started and after one has ended."""
        if len(self._programs) < self._count:
            self._find()
        if len(self._programs) < self._count:
            return None
        now = time.time()
        try:
            spent = {task: _cpu_s(folder) for folder, task in self._programs.items()}
            lab = sum(_cpu_s(folder) for folder in self._others)
            busy = busy_s((self._proc / "stat").read_text(encoding="ascii"))
        except (FileNotFoundError, ProcessLookupError):
            return None
        return Sample(now, spent, lab, busy)

    def _find(self) -> None:
        self._programs, self._others = {}, []
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
                self._programs[folder] = name
            elif tasks and self._program in command:
                self._programs[folder] = tasks[0].removeprefix(_TASK).decode()
            else:
                self._others.append(folder)


def watched(place: Workplace, command: Sequence[str], program: str, count: int) -> list[Sample]:
    """Run a `lab run` that must succeed, and return the samples while all programs ran.

    Args:
        place: The directory and the environment variables.
        command: The command.
        program: The file name of the programs.
        count: The number of tasks.

    Raises:
        TrainingError: The run did not succeed.
    """
    watcher = Watcher(f"LAB_STATE={place.environ['LAB_STATE']}".encode(), program, count)
    samples = []
    with tempfile.TemporaryFile(dir=place.folder) as output:
        process = subprocess.Popen(
            command,
            env=place.environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(EVERY_S)
            sample = watcher.sample()
            if sample is not None:
                samples.append(sample)
        if process.poll() is None:
            process.terminate()
        if process.wait() != 0:
            output.seek(0)
            last = output.read().decode(errors="replace")[-2000:]
            raise TrainingError(f"lab run: exit code {process.returncode}: {last}")
    return samples


def ends(samples: Sequence[Sample], begin: float, end: float) -> tuple[Sample, Sample]:
    """Return the first and the last sample in an interval of time, in seconds since the epoch.

    Raises:
        UnfitError: There are fewer than two.
    """
    inside = [sample for sample in samples if begin <= sample.time_unix <= end]
    if len(inside) < 2:  # noqa: PLR2004
        raise UnfitError("the training was too short for two samples; use more steps")
    return inside[0], inside[-1]


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
