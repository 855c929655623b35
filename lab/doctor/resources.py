"""CPUs, memory, disk and the kernel's limits, against what the description asks for."""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lab.doctor.model import Finding, Need, Verdict
from lab.placement.plan import Plan
from lab.units import memory_for_people

AREA: Final = "resources"

TASK_BYTES: Final = 750 * 2**20
"""Memory of one task that trains MNIST: TensorFlow, its data and its program; measured, 742 MiB."""

TASK_FILES: Final = 64
"""Open files of an agent and a program: libraries, event files, a connection to each other task."""

TASK_THREADS: Final = 86
"""Threads of a task beside TensorFlow's two pools, which have one for each CPU; measured, 90 on
two CPUs."""

RUNS_BYTES: Final = 10**9
FEWEST_BYTES: Final = 50 * 10**6
"""Less than this is not enough for a single short run."""

# What file watchers in TensorBoard, Jupyter and editors take; some distributions have 128 and 8192.
INSTANCES: Final = 128
WATCHES: Final = 8192


def cpus(available: int, plan: Plan | None) -> Finding:
    """CPUs, beside the tasks of the description."""
    what = _many(available, "CPU")
    if plan:
        what += f" for {_many(len(plan.tasks), 'task')}"
        what += ": they take turns" if len(plan.tasks) > available else ""
    return Finding(AREA, "CPUs", Verdict.OK, what)


def memory(total: int, available: int, plan: Plan | None) -> Finding:
    """Memory, beside what the tasks will take.

    Args:
        total: Bytes of main memory.
        available: Bytes that can be had without swapping.
        plan: The description, placed.
    """
    tasks = len(plan.tasks) if plan else 1
    wanted = tasks * TASK_BYTES
    what = f"{memory_for_people(available)} of {memory_for_people(total)} available"
    if available >= wanted:
        return Finding(AREA, "memory", Verdict.OK, what)
    return Finding(
        AREA,
        "memory",
        Verdict.WARNING,
        f"{what}; {_many(tasks, 'task')} with TensorFlow take about {memory_for_people(wanted)}",
        "end what takes it (`ps aux --sort=-rss | head`), or choose a description with fewer tasks",
    )


def disk(name: str, directory: Path, free: Callable[[Path], tuple[Path, int]]) -> Finding:
    """Room for what runs and environments write.

    Args:
        name: What is kept there.
        directory: Where; it need not be there yet.
        free: The directory that was measured, and the bytes that are free in it.
    """
    where, there = free(directory)
    what = f"{there / 10**9:.1f} GB free in {where}"
    mend = f"free some: `du -xh {where} | sort -h | tail`"
    if there < FEWEST_BYTES:
        return Finding(AREA, name, Verdict.FAILED, what, mend, blocks="the disk is full")
    if there < RUNS_BYTES:
        return Finding(AREA, name, Verdict.WARNING, what, mend)
    return Finding(AREA, name, Verdict.OK, what)


def inotify(instances: int | None, watches: int | None) -> Finding:
    """How many files can be watched: TensorBoard, Jupyter and editors do; lab itself does not."""
    if instances is None or watches is None:
        return Finding(AREA, "inotify", Verdict.SKIPPED, "this system has no such limits")
    what = f"{instances:,} instances, {watches:,} watches for each user"
    if instances >= INSTANCES and watches >= WATCHES:
        return Finding(AREA, "inotify", Verdict.OK, what)
    return Finding(
        AREA,
        "inotify",
        Verdict.WARNING,
        f"{what}: TensorBoard, Jupyter and editors may see no changes",
        "`sudo sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=524288`",
    )


def files(soft: int, plan: Plan | None) -> Finding:
    """How many files a process may have open: the supervisor holds those of all tasks.

    Args:
        soft: The limit; negative for none.
        plan: The description, placed.
    """
    tasks = len(plan.tasks) if plan else 1
    wanted = 256 + TASK_FILES * tasks
    if soft < 0 or soft >= wanted:
        shown = "no limit" if soft < 0 else f"{soft:,} for each process"
        return Finding(AREA, "open files", Verdict.OK, shown, needed_for=Need.LOCAL)
    return Finding(
        AREA,
        "open files",
        Verdict.WARNING,
        f"{soft:,} for each process; {_many(tasks, 'task')} may need {wanted:,}",
        f"`ulimit -n {max(4096, wanted)}` in this shell",
        Need.LOCAL,
    )


def threads(limit: int | None, cpus_available: int, plan: Plan | None) -> Finding:
    """How many processes and threads this user may have.

    Args:
        limit: The lowest of the limits that hold here, or None for none.
        cpus_available: TensorFlow starts two threads for each.
        plan: The description, placed.
    """
    if limit is None:
        return Finding(AREA, "threads", Verdict.OK, "no limit", needed_for=Need.LOCAL)
    tasks = len(plan.tasks) if plan else 1
    wanted = tasks * (TASK_THREADS + 2 * cpus_available)
    if limit >= wanted:
        return Finding(AREA, "threads", Verdict.OK, f"{limit:,} at most", needed_for=Need.LOCAL)
    return Finding(
        AREA,
        "threads",
        Verdict.WARNING,
        f"{limit:,} at most; {_many(tasks, 'task')} with TensorFlow may need {wanted:,}",
        f"`ulimit -u {wanted * 2}`, or raise TasksMax of the user's slice: "
        f"`sudo systemctl set-property user-$(id -u).slice TasksMax={wanted * 2}`",
        Need.LOCAL,
    )


# ---- Facts of this machine


def cpu_count() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """Main memory: all of it, and what can be had without swapping."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text("ascii"), re.MULTILINE)
    except OSError:
        found = None  # not Linux
    return total, int(found.group(1)) * 1024 if found else total


def free_bytes(directory: Path) -> tuple[Path, int]:
    """The nearest directory that is there, and the bytes that an ordinary user can write in it."""
    there = directory.absolute()
    while not there.is_dir() and there != there.parent:
        there = there.parent
    return there, shutil.disk_usage(there).free


def number_in(path: Path) -> int | None:
    """The number that a file of /proc or /sys holds; None where there is none."""
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None  # `max`, or another system


def open_files() -> int:
    """The soft limit of open files; -1 for none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if soft == resource.RLIM_INFINITY else soft


def thread_limit(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The lowest limit of processes and threads that holds for this process."""
    limits = [number_in(proc / "sys/kernel/threads-max"), number_in(proc / "sys/kernel/pid_max")]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        limits.append(soft)
    limits += [number_in(path) for path in _pids_files(proc / "self/cgroup", groups)]
    return min((each for each in limits if each is not None), default=None)


def _pids_files(own: Path, groups: Path) -> list[Path]:
    """`pids.max` of every control group that this process is in, upwards."""
    try:
        lines = own.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers not in {"", "pids"}:
            continue
        base = groups / controllers
        directory = base / group.lstrip("/")
        for each in (directory, *directory.parents):
            if not each.is_relative_to(base):
                break
            found.append(each / "pids.max")
    return found


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
