"""Processes of this machine, found by their environment variables."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import psutil


def having(**variables: str) -> list[psutil.Process]:
    """All processes that were started with these variables, lowest id first."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or it is another user's
            if variables.items() <= process.environ().items():
                found.append(process)
    return found


def _run_of(process: psutil.Process) -> str:
    """The id of the run whose program it is; empty for other processes."""
    with suppress(psutil.Error):
        return Path(process.environ().get("LAB_RUN_DIR", "")).name
    return ""


def program(project: str, run_id: str, task: str) -> psutil.Process | None:
    """The program of a task of a run: the uppermost process with that run's variables.

    A forked program has its task's name, and its environment's variables.
    """
    found = [each for each in having(LAB_TASK=task) if _run_of(each) == run_id]
    with suppress(psutil.NoSuchProcess):
        found += [each for each in having(LAB_PROJECT=project) if each.name() == task]
        pids = {each.pid for each in found}
        return next((each for each in found if each.ppid() not in pids), None)
    return None


def agent(project: str, task: str) -> psutil.Process | None:
    """The agent of a task of an environment of processes."""
    with suppress(psutil.NoSuchProcess):
        for process in having(LAB_PROJECT=project, LAB_TASK=task):
            is_agent = any("lab.task.agent" in word for word in process.cmdline())
            if is_agent and not _run_of(process):
                return process
    return None


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; one that only waits to be reaped has."""
    with suppress(psutil.NoSuchProcess):
        ended = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        return process.is_running() and process.status() not in ended
    return False


def signalled(process: psutil.Process, number: signal.Signals) -> bool:
    """Send it a signal; False where it had ended before."""
    with suppress(psutil.NoSuchProcess):
        if runs(process):
            process.send_signal(number)
            return True
    return False


def describe(process: psutil.Process) -> str:
    """Id and command line."""
    with suppress(psutil.Error):
        return f"process {process.pid} ({' '.join(process.cmdline())[:100]})"
    return f"process {process.pid}"
