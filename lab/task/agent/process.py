"""A training program as the agent's own child."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.base.parent_death import set_pdeathsig

OOM_COUNTERS: Final = (
    Path("/sys/fs/cgroup/memory.events"),  # cgroup v2
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # cgroup v1
)
"""The counters of a container."""

_REAP_S: Final = 2.0
"""Seconds within which the killed descendants must end."""

_HOST_OOM_COUNTER: Final = Path("/proc/vmstat")

# Of <sys/prctl.h>.
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def set_subreaper() -> None:
    """Make this process the parent of the orphans of its programs.

    A program's background processes may leave its process group. When they become orphans, the
    kernel gives them to the nearest subreaper, which can then end them.
    """
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def child_setup() -> Callable[[], None]:
    """Return the function that a new child calls first, so that it ends with this process."""
    return functools.partial(set_pdeathsig, os.getpid())


def set_process_name(name: str) -> None:
    """Set this process's name as `ps -o comm` and `top` show it."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def signal_name(number: int) -> str:
    """The name of a signal number, such as `SIGKILL`; some signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class ChildProcess:
    """One start of a program, in its own process group.

    It has no session of its own: Linux schedules each session as one unit (`sched_autogroup`). A
    parameter server and workers that share CPUs train a sixth slower in separate sessions.

    Use it only in a process without other children, because `reap` ends all children.

    Attributes:
        pid: Its process id.
        output: The reading end of the pipe for its standard output and error.
        wake_fds: Descriptors that get readable when it ends. None: the agent gets SIGCHLD.
    """

    wake_fds: tuple[int, ...] = ()

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        *,
        has_sessions: bool = False,
    ) -> None:
        """Start the program.

        Args:
            argv: Its command line.
            environ: Its environment variables.
            folder: Its working directory.
            has_sessions: Whether it starts each of its processes in a session, as `torchrun` does.

        Raises:
            OSError: It cannot be started.
        """
        self._has_sessions = has_sessions
        self.output, writing = os.pipe()
        try:
            # The agent has one thread while it starts a program, so no lock is held between fork
            # and exec.
            self._child = subprocess.Popen(
                argv,
                env=environ,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                process_group=0,
                preexec_fn=child_setup(),  # noqa: PLW1509
            )
        except BaseException:
            os.close(self.output)
            raise
        finally:
            os.close(writing)
        self.pid = self._child.pid

    def ended(self) -> bool:
        """Whether it has ended. It is not reaped, so its process group id is not reused."""
        if self._child.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: int) -> None:
        """Send a signal to its process group; one that stops or continues, to its sessions, too."""
        if self._child.returncode is not None:
            return
        groups = {self.pid}
        if self._has_sessions and number in {signal.SIGSTOP, signal.SIGCONT}:
            groups |= {int(fields[2]) for fields in family(self.pid).values()}
        for group in groups:
            # A program may have changed its user.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def reap(self) -> int:
        """Kill the rest of its group and return its exit code, negative for a signal."""
        self.signal(signal.SIGKILL)
        code = self._child.wait()
        reap_children()
        return code


def reap_children() -> None:
    """Kill and reap all descendants of this process."""
    me, deadline = os.getpid(), time.monotonic() + _REAP_S
    while time.monotonic() < deadline:
        children = [pid for pid, fields in _stats().items() if int(fields[1]) == me]
        if not children:
            return
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def cpu_time_s() -> float | None:
    """The CPU time of all descendants of this process so far, in seconds; None: unknown."""
    me, *others = family(os.getpid()).values() or [[]]
    # Fields 14 to 17 of proc(5): of the process, and of its children that were waited for.
    ticks = [*me[13:15], *(count for fields in others for count in fields[11:15])]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") if others else None


def is_stopped(pid: int) -> bool:
    """Whether a process or one of its descendants is stopped, as by SIGSTOP."""
    return any(fields[0] == b"T" for fields in family(pid).values())


def family(pid: int) -> dict[int, list[bytes]]:
    """The fields of `_stats` of a process, which come first, and of its descendants."""
    stats = _stats()
    members = [pid] if pid in stats else []
    for parent in members:  # it grows
        members += [child for child, fields in stats.items() if int(fields[1]) == parent]
    return {member: stats[member] for member in members}


def _stats() -> dict[int, list[bytes]]:
    """The fields of `/proc/PID/stat` after the name, of each process."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            stats[int(path.parent.name)] = path.read_bytes().rpartition(b")")[2].split()
    return stats


def all_oom_kills() -> tuple[int | None, int | None]:
    """The numbers of processes that the kernel has killed for lack of memory; None: unknown.

    Returns:
        The number in this container, and that among all processes of this session or job, or of
        this host.
    """
    return oom_kills(OOM_COUNTERS), oom_kills(shared_oom_counters())


def shared_oom_counters(groups: Path = Path("/proc/self/cgroup")) -> tuple[Path, ...]:
    """The counters of the cgroup that a process shares with others, and of the host.

    Args:
        groups: The list of the process's cgroups (see cgroups(7)).
    """
    counters = []
    with contextlib.suppress(OSError):
        for line in groups.read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                counters.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
            elif controllers == "memory":
                counters.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return (*counters, _HOST_OOM_COUNTER)


def oom_kills(counters: Sequence[Path]) -> int | None:
    """The number of out-of-memory kills; None: unknown.

    Args:
        counters: Files with a line `oom_kill N`; the first one with such a line is used.
    """
    for path in counters:
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdecimal():
                return int(count)
    return None
