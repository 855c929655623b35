"""The process of JupyterHub, which outlives the command that starts it, and the start of seats."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab import signals
from lab.backends.gpu_record import Handover
from lab.backends.state import state_directory
from lab.classroom.hub_api import HubApi
from lab.classroom.state import ClassDir
from lab.errors import LabError
from lab.log import LOG
from lab.text import short
from lab.variables import LAB_STATE

SEAT_S: Final = 180.0
"""Seconds within which a seat must have started or stopped."""

POLL_S: Final = 0.2

_HUB_CONFIG: Final = Path(__file__).with_name("hub_config.py")
_HUB_S: Final = 60.0
_STARTS_AT_ONCE: Final = 4  # a start is mostly CPU time
_STOP_S: Final = 20.0
_LAST_LINES: Final = 3


def start_hub(folder: ClassDir, hold: Handover) -> subprocess.Popen[bytes]:
    """Start JupyterHub in a session of its own; it holds the GPUs of the class until it ends."""
    # Without interrupts: it is found, and stopped, only when its program has begun.
    with folder.log.open("ab") as log, signals.block_interrupts():
        return subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "--config", str(_HUB_CONFIG)],
            cwd=folder.path,
            # An absolute path: JupyterHub has another current directory.
            env={**os.environ, LAB_STATE: str(state_directory())},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if hold is None else (hold,),
            preexec_fn=_unblock_signals,  # noqa: PLW1509  (it only sets the mask)
        )


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def wait_for_hub(api: HubApi, hub: subprocess.Popen[bytes], folder: ClassDir) -> None:
    """Return when JupyterHub answers.

    Raises:
        LabError: It has ended, or does not answer in time; with its last lines.
    """
    until = time.monotonic() + _HUB_S
    while not api.answers():
        code = hub.poll()
        if code is not None or time.monotonic() > until:
            late = f"is not ready after {_HUB_S:g} s"
            what = late if code is None else f"ended ({signals.way_to_end(code)})"
            last = " ".join(short(line.strip()) for line in _lines(folder)[-_LAST_LINES:])
            raise LabError(f"JupyterHub {what}: {last}")
        time.sleep(POLL_S)


def stop_hub(folder: ClassDir) -> None:
    """Stop the JupyterHub of a class, if it runs, and wait for its end."""
    hub = folder.hub()
    if hub is None:
        return
    hub.signal(signal.SIGTERM)
    until = time.monotonic() + _STOP_S
    while hub.alive():
        if time.monotonic() > until:
            hub.signal(signal.SIGKILL)
        time.sleep(POLL_S)


def start_seats(api: HubApi, folder: ClassDir, seats: Sequence[str]) -> list[str]:
    """Start seats, and wait until JupyterLab answers in each.

    Returns:
        A line for each seat that could not be started, or was not ready in time.

    Raises:
        LabError: JupyterHub does not answer.
    """
    waiting, starting, problems = list(seats), dict[str, float](), list[str]()
    ready = 0
    while waiting or starting:
        while waiting and len(starting) < _STARTS_AT_ONCE:
            starting[waiting[0]] = time.monotonic() + SEAT_S
            api.start(waiting.pop(0))
        servers = api.servers()
        for seat, until in list(starting.items()):
            server = servers.get(seat, {})
            if server.get("ready"):
                ready += 1
                LOG.info(f"{seat}: ready ({ready} of {len(seats)})")
            elif not server.get("pending"):
                problems.append(f"{seat} does not start: {_last_error(folder)}")
            elif time.monotonic() > until:
                problems.append(f"{seat} is not ready after {SEAT_S:g} s")
            else:
                continue
            del starting[seat]
        time.sleep(POLL_S)
    return problems


def _last_error(folder: ClassDir) -> str:
    """Return the last error in JupyterHub's log; the lines before it are its traceback."""
    errors = [line.partition("] ")[2] for line in _lines(folder) if line.startswith("[E ")]
    return short(errors[-1]) if errors else "JupyterHub logged no error"


def _lines(folder: ClassDir) -> list[str]:
    return folder.log.read_text(errors="replace").splitlines()
