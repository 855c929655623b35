"""How the processes of a local environment are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from lab.backends.local.state import EnvironmentRecord, Isolation
from lab.backends.process import Identity, descendants, running
from lab.errors import LabError

# The supervisor gives its agents 10 s.
_TERM_WITHIN_S = 15.0
_KILL_WITHIN_S = 10.0
_POLL_S = 0.05


def end_processes(
    record: EnvironmentRecord, agents: Sequence[int], log: Path, *, gently: bool
) -> None:
    """End the supervisor, and every process below it.

    Args:
        record: The environment.
        agents: The process ids of its agents.
        log: What its supervisor prints, for the message.
        gently: Let programs end by themselves first, and agents write how.

    Raises:
        LabError: Something of it is left.
    """
    supervisor = record.process
    isolated = record.isolation is Isolation.NAMESPACES
    below = descendants(supervisor.pid) if isolated else agents
    stages = [
        (_to_signal(record), signal.SIGTERM, _TERM_WITHIN_S),
        (supervisor, signal.SIGKILL, _KILL_WITHIN_S),
    ]
    # Process 1 of a namespace is deaf to SIGTERM until it listens for it.
    for target, number, seconds in stages[1:] if isolated and not gently else stages:
        target.signal(number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            _reap(supervisor.pid)
            if not supervisor.alive() and not any(running(pid) for pid in below):
                return
            time.sleep(_POLL_S)
    raise LabError(
        f"processes of the local environment {record.project!r} did not end",
        f"look at pid {supervisor.pid} and {log}",
    )


def _to_signal(record: EnvironmentRecord) -> Identity:
    """The supervisor: behind `unshare`, which takes no signal, its only child."""
    if record.isolation is Isolation.NAMESPACES and record.process.alive():
        for pid in descendants(record.process.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                return Identity.of(pid)
    return record.process


def _reap(pid: int) -> None:
    """Take the exit code of a supervisor that is this process's own child, if it is one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
