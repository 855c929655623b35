"""Processes of this machine, found by their environment variables."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import psutil


def having(**variables: str) -> list[psutil.Process]:
    """All processes that were started with these variables, lowest id first.

    `info` has what they were when they were found.
    """
    return [
        process
        for process in psutil.process_iter(["environ", "name", "cmdline", "ppid"])
        if variables.items() <= (process.info["environ"] or {}).items()
    ]


def _run_of(process: psutil.Process) -> str:
    """The id of the run whose program it is; empty for other processes."""
    return Path(process.info["environ"].get("LAB_RUN_DIR", "")).name


def program(project: str, run_id: str, task: str) -> psutil.Process | None:
    """The program of a task of a run: the uppermost process with that run's variables.

    A forked program has its task's name, and its environment's variables.
    """
    own = [process for process in having(LAB_TASK=task) if _run_of(process) == run_id]
    own += [process for process in having(LAB_PROJECT=project) if process.info["name"] == task]
    ids = {process.pid for process in own}
    return next((process for process in own if process.info["ppid"] not in ids), None)


def agent(project: str, task: str) -> psutil.Process | None:
    for process in having(LAB_PROJECT=project, LAB_TASK=task):
        if "lab.task.agent" in " ".join(process.info["cmdline"] or ()) and not _run_of(process):
            return process
    return None


def signalled(process: psutil.Process | None, number: signal.Signals) -> bool:
    """Send it a signal; False where it has ended, even if nobody has reaped it yet."""
    with suppress(psutil.NoSuchProcess):
        if process and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            process.send_signal(number)
            return True
    return False
