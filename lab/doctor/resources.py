"""Checks of CPUs, memory and the kernel's limits against the needs of the config."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from lab.doctor.model import Outcome, ok, skipped, warning
from lab.formatting import counted
from lab.placement.plan import Plan
from lab.units import memory_for_people

TASK_BYTES: Final = 750 * 2**20
"""Memory of one task that trains MNIST, with TensorFlow and its data; measured: 742 MiB."""

TASK_FILES: Final = 64
"""Open files of an agent and a program: libraries, event files, connections to other tasks."""

TASK_THREADS: Final = 86
"""Threads of a task without TensorFlow's two pools, which have a thread for each CPU; measured: 90
on two CPUs."""

# Enough for file watchers in TensorBoard, Jupyter and editors; some distributions set these values.
INSTANCES: Final = 128
WATCHES: Final = 8192


def cpu_count() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def judge_cpus(cpus: int, plan: Plan | None) -> Outcome:
    """Report the CPUs, and the tasks of the config."""
    what = counted(cpus, "CPU")
    if plan:
        what += f" for {counted(len(plan.tasks), 'task')}"
        what += ", which share CPUs" if len(plan.tasks) > cpus else ""
    return ok(what)


def memory_bytes() -> tuple[int, int]:
    """Return the total main memory, and the memory that is available without swapping."""
    import psutil  # noqa: PLC0415  (it may be missing)

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def judge_memory(memory: tuple[int, int], plan: Plan | None) -> Outcome:
    """Check that the tasks fit into the available memory."""
    total, available = memory
    wanted = _tasks(plan) * TASK_BYTES
    what = f"{memory_for_people(available)} of {memory_for_people(total)} available"
    if available >= wanted:
        return ok(what)
    return warning(
        f"{what}; {counted(_tasks(plan), 'task')} with TensorFlow need about "
        f"{memory_for_people(wanted)}",
        "stop other programs (`ps aux --sort=-rss | head` lists them), or use a config with fewer "
        "tasks",
    )


def inotify_limits(limits: Path = Path("/proc/sys/fs/inotify")) -> tuple[int | None, int | None]:
    """Return the inotify limits of each user, instances and watches; None if there is no limit."""
    return number_in(limits / "max_user_instances"), number_in(limits / "max_user_watches")


def judge_inotify(inotify_limits: tuple[int | None, int | None]) -> Outcome:
    """Check that TensorBoard, Jupyter and editors can watch enough files; lab watches none."""
    instances, watches = inotify_limits
    if instances is None or watches is None:
        return skipped("this system has no such limits")
    what = f"{instances:,} instances, {watches:,} watches for each user"
    if instances >= INSTANCES and watches >= WATCHES:
        return ok(what)
    return warning(
        f"{what}: TensorBoard, Jupyter and editors may not notice changed files",
        "`sudo sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=524288`",
    )


def open_files_limit() -> int:
    """Return the soft limit of open files; -1 if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if soft == resource.RLIM_INFINITY else soft


def judge_open_files(open_files_limit: int, plan: Plan | None) -> Outcome:
    """Check the limit of open files: the supervisor opens files of all tasks."""
    wanted = 256 + TASK_FILES * _tasks(plan)
    if open_files_limit < 0 or open_files_limit >= wanted:
        return ok("no limit" if open_files_limit < 0 else f"{open_files_limit:,} for each process")
    return warning(
        f"{open_files_limit:,} for each process; "
        f"{counted(_tasks(plan), 'task')} may need {wanted:,}",
        f"`ulimit -n {max(4096, wanted)}` in this shell",
    )


def thread_limit(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the lowest limit of processes and threads for this process; None if there is none."""
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
    """Check that this user may have enough processes and threads.

    Args:
        thread_limit: The lowest limit; None if there is none.
        cpus: The number of CPUs of the host. TensorFlow starts two threads for each.
        plan: The plan, or None.
    """
    if thread_limit is None:
        return ok("no limit")
    wanted = _tasks(plan) * (TASK_THREADS + 2 * cpus)
    if thread_limit >= wanted:
        return ok(f"{thread_limit:,} at most")
    return warning(
        f"{thread_limit:,} at most; "
        f"{counted(_tasks(plan), 'task')} with TensorFlow may need {wanted:,}",
        f"`ulimit -u {wanted * 2}`, or raise TasksMax of the user's slice: "
        f"`sudo systemctl set-property user-$(id -u).slice TasksMax={wanted * 2}`",
    )


def text_of(file: Path) -> str:
    """Return the text of a file in /proc or /sys; "" if it cannot be read."""
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def number_in(file: Path) -> int | None:
    """Return the number in such a file; None without a number, as for `max`."""
    text = text_of(file)
    return int(text) if text.isdecimal() else None


def _tasks(plan: Plan | None) -> int:
    return len(plan.tasks) if plan else 1
