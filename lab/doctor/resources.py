"""CPUs, memory, disk and the kernel's limits, compared with what the config asks for."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from lab.doctor.model import Outcome, count, ok, skipped, warning
from lab.placement.plan import Plan
from lab.units import memory_for_people

TASK_BYTES: Final = 750 * 2**20
"""Memory of one task that trains MNIST: TensorFlow, its data and its program; measured, 742 MiB."""

TASK_FILES: Final = 64
"""Open files of an agent and a program: libraries, event files, a connection to each other task."""

TASK_THREADS: Final = 86
"""Threads of a task beside TensorFlow's two pools, which have one for each CPU; measured, 90 on
two CPUs."""

# What file watchers in TensorBoard, Jupyter and editors take; some distributions have 128 and 8192.
INSTANCES: Final = 128
WATCHES: Final = 8192


def cpu_count() -> int:
    """The number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def judge_cpus(cpus: int, plan: Plan | None) -> Outcome:
    """Report the CPUs, and the tasks of the config."""
    what = count(cpus, "CPU")
    if plan:
        what += f" for {count(len(plan.tasks), 'task')}"
        what += ": they take turns" if len(plan.tasks) > cpus else ""
    return ok(what)


def memory_bytes() -> tuple[int, int]:
    """Main memory: all of it, and what is available without swapping."""
    import psutil  # noqa: PLC0415  (it may be missing)

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def judge_memory(memory: tuple[int, int], plan: Plan | None) -> Outcome:
    """Whether the tasks fit into the available memory."""
    total, available = memory
    wanted = _tasks(plan) * TASK_BYTES
    what = f"{memory_for_people(available)} of {memory_for_people(total)} available"
    if available >= wanted:
        return ok(what)
    return warning(
        f"{what}; {count(_tasks(plan), 'task')} with TensorFlow take about "
        f"{memory_for_people(wanted)}",
        "end what takes it (`ps aux --sort=-rss | head`), or choose a description with fewer tasks",
    )


def inotify_limits(limits: Path = Path("/proc/sys/fs/inotify")) -> tuple[int | None, int | None]:
    """The limits of inotify for each user: instances and watches; None where there are none."""
    return number_in(limits / "max_user_instances"), number_in(limits / "max_user_watches")


def judge_inotify(inotify_limits: tuple[int | None, int | None]) -> Outcome:
    """Whether enough files can be watched. TensorBoard, Jupyter and editors do; lab does not."""
    instances, watches = inotify_limits
    if instances is None or watches is None:
        return skipped("this system has no such limits")
    what = f"{instances:,} instances, {watches:,} watches for each user"
    if instances >= INSTANCES and watches >= WATCHES:
        return ok(what)
    return warning(
        f"{what}: TensorBoard, Jupyter and editors may see no changes",
        "`sudo sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=524288`",
    )


def open_files_limit() -> int:
    """The soft limit of open files; -1 for none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if soft == resource.RLIM_INFINITY else soft


def judge_open_files(open_files_limit: int, plan: Plan | None) -> Outcome:
    """Whether a process may have enough open files: the supervisor has those of all tasks."""
    wanted = 256 + TASK_FILES * _tasks(plan)
    if open_files_limit < 0 or open_files_limit >= wanted:
        return ok("no limit" if open_files_limit < 0 else f"{open_files_limit:,} for each process")
    return warning(
        f"{open_files_limit:,} for each process; {count(_tasks(plan), 'task')} may need {wanted:,}",
        f"`ulimit -n {max(4096, wanted)}` in this shell",
    )


def thread_limit(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The lowest limit of processes and threads for this process; None where there is none."""
    files = [proc / "sys/kernel/threads-max", proc / "sys/kernel/pid_max"]
    for line in text_of(proc / "self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers in {"", "pids"}:
            base = groups / controllers
            own = base / group.lstrip("/")
            parents = (each for each in (own, *own.parents) if each.is_relative_to(base))
            files += [each / "pids.max" for each in parents]
    limits = [number_in(file) for file in files]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        limits.append(soft)
    return min((each for each in limits if each is not None), default=None)


def judge_threads(thread_limit: int | None, cpus: int, plan: Plan | None) -> Outcome:
    """Whether this user may have enough processes and threads.

    Args:
        thread_limit: The lowest limit, or None for none.
        cpus: CPUs of the host: TensorFlow starts two threads for each.
        plan: The plan.
    """
    if thread_limit is None:
        return ok("no limit")
    wanted = _tasks(plan) * (TASK_THREADS + 2 * cpus)
    if thread_limit >= wanted:
        return ok(f"{thread_limit:,} at most")
    return warning(
        f"{thread_limit:,} at most; "
        f"{count(_tasks(plan), 'task')} with TensorFlow may need {wanted:,}",
        f"`ulimit -u {wanted * 2}`, or raise TasksMax of the user's slice: "
        f"`sudo systemctl set-property user-$(id -u).slice TasksMax={wanted * 2}`",
    )


def text_of(file: Path) -> str:
    """The content of a file of /proc or /sys; empty where there is none."""
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def number_in(file: Path) -> int | None:
    """The number in such a file; None where there is none, or another text, such as `max`."""
    text = text_of(file)
    return int(text) if text.isdecimal() else None


def _tasks(plan: Plan | None) -> int:
    return len(plan.tasks) if plan else 1
