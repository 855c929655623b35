"""The JupyterHub of a class: its process, which outlives the commands of `lab`, and its API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from lab.backends.gpu_record import Handover
from lab.backends.log_tail import last_lines
from lab.backends.state import state_directory
from lab.base import signals
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.text import short
from lab.base.variables import LAB_STATE
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.planning import ClassPlan
from lab.teach.classroom.protocol import send

SEAT_S: Final = 180.0
"""Seconds within which a seat must have started or stopped."""

POLL_S: Final = 0.2

_HUB_CONFIG: Final = Path(__file__).with_name("hub_config.py")
_HUB_S: Final = 60.0
_STARTS_AT_ONCE: Final = 4  # a start is mostly CPU time
_STOP_S: Final = 20.0
_REFUSED: Final = 300
"""The lowest HTTP status that is not a success."""


@dataclass(frozen=True, slots=True)
class HubApi:
    """JupyterHub's REST API.

    Every request raises a `LabError` if JupyterHub does not answer, or refuses.

    Attributes:
        url: Its address, `http://10.89.0.1:8081/hub/api`.
        token: The token of the service `lab`.
    """

    url: str
    token: str

    def answers(self) -> bool:
        """Whether JupyterHub is ready for requests."""
        try:
            self._request("GET", "")
        except LabError:
            return False
        return True

    def servers(self) -> dict[str, Mapping[str, Any]]:
        """Return what JupyterHub knows about the server of each user; {} if there is none."""
        users = self._request("GET", "users")
        return {user["name"]: user["servers"].get("", {}) for user in users}

    def start(self, seat: str) -> None:
        """Request the start of a seat, and do not wait for it."""
        self._request("POST", f"users/{seat}/server")

    def stop(self, seat: str) -> None:
        """Request the stop of a seat, which may be stopped already."""
        self._request("DELETE", f"users/{seat}/server")

    def restore_routes(self) -> None:
        """Let JupyterHub send its routes to a proxy that has just started."""
        self._request("POST", "proxy")

    def _request(self, method: str, path: str) -> Any:  # noqa: ANN401  (JSON)
        import urllib3  # noqa: PLC0415  (`lab class validate` does not need it)

        try:
            answer = send(method, f"{self.url}/{path}", self.token)
            if answer.status < _REFUSED:
                return json.loads(answer.data) if answer.data else None
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            problem = f"JupyterHub does not answer at {self.url}"
            raise LabError(problem, "start it with `lab class up`") from error
        why = answer.data.decode(errors="replace")
        raise LabError(f"JupyterHub refused: {answer.status}: {why}")


def hub_api(plan: ClassPlan, token: str) -> HubApi:
    """Return JupyterHub's API for a class, with the token of the service `lab`."""
    return HubApi(f"{names.hub_url(plan.proxy_network)}/hub/api", token)


def start_hub(folder: ClassDir, hold: Handover) -> subprocess.Popen[bytes]:
    """Start JupyterHub in a session of its own; it holds the GPUs of the class until it ends."""
    # Without interrupts: `stop_hub` finds it only when its program has begun.
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
            # JupyterHub itself receives interrupts.
            preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, ()),  # noqa: PLW1509
        )


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
            problem = late if code is None else f"ended ({signals.way_to_end(code)})"
            raise LabError(f"JupyterHub {problem}: {last_lines(folder.log, 3)}")
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
    lines = folder.log.read_text(errors="replace").splitlines()
    errors = [line.partition("] ")[2] for line in lines if line.startswith("[E ")]
    return short(errors[-1]) if errors else "JupyterHub logged no error"
