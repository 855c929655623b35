"""The queue of a class: its directory, and what it has to give."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from lab.backends.classroom.client import Queue
from lab.backends.compose.backend import ComposeBackend
from lab.backends.state import lock_environment, lock_path, with_lock_retry
from lab.classroom import names
from lab.classroom.planning import ClassPlan
from lab.classroom.queue.admission import project_name
from lab.classroom.queue.ledger import Capacity, Entry, Ledger
from lab.classroom.state import ClassDir, StoredClass
from lab.errors import LabError
from lab.log import LOG
from lab.variables import LAB_CLASS, LAB_QUEUE_URL

SERVICE: Final = "queue"
"""The name of the service in JupyterHub."""


_END_S: Final = 90.0
_POLL_S: Final = 0.2

_PASSED: Final = ("LAB_", "DOCKER_", "HOME", "XDG_")
"""The beginnings of the variables that JupyterHub would not pass on; docker needs the last ones."""


@dataclass(frozen=True, slots=True)
class QueueDir:
    """The directory of the queue in the directory of its class.

    Attributes:
        folder: The directory of the class.
    """

    folder: ClassDir

    @property
    def path(self) -> Path:
        """The directory."""
        return self.folder.path / "queue"

    @property
    def lock(self) -> Path:
        """The lock of the service."""
        return self.path / "lock"

    def ledger(self) -> Ledger:
        """Return the ledger as it is on the disk.

        Raises:
            LabError: It cannot be read.
        """
        return Ledger(self.path / "ledger.json")

    def live(self) -> list[Entry]:
        """Return the environments that wait or have containers, for the teacher.

        Raises:
            LabError: The ledger cannot be read.
        """
        return [each for each in self.ledger().entries if each.is_live]


def capacity_of(plan: ClassPlan) -> Capacity:
    """Return what the queue of a class has to give."""
    count, networks = len(plan.queue_gpus), tuple(map(str, plan.run_networks))
    return Capacity(
        plan.queue_gpus, networks[:count], networks[count:], plan.times.slice.total_seconds()
    )


def configure_queue(c: Any, stored: StoredClass, folder: ClassDir, teacher: str) -> None:  # noqa: ANN401
    """Set the options of JupyterHub for the queue of a class; none if the class has no queue.

    Args:
        c: JupyterHub's configuration object, with the settings of the seats.
        stored: The class.
        folder: Its directory.
        teacher: The service that may end the environments of all seats.
    """
    if not stored.plan.run_networks:
        return
    access = f"access:services!service={SERVICE}"
    variables = {name: text for name, text in os.environ.items() if name.startswith(_PASSED)}
    # Without a `url`, the proxy has no route to it: only seats reach it, through their relay.
    c.JupyterHub.services.append(
        {
            "name": SERVICE,
            "command": [sys.executable, "-m", "lab.classroom.queue.service"],
            "environment": {**variables, LAB_CLASS: folder.name},
            "cwd": str(folder.path),
        }
    )
    c.JupyterHub.load_roles += [
        {"name": "user", "scopes": ["self", access]},
        {"name": f"{SERVICE}-teacher", "services": [teacher], "scopes": [access]},
    ]
    # The token in a seat: what JupyterHub gives by default, and the queue.
    server = ["users:activity!user", "access:servers!server", access]
    c.DockerSpawner.server_token_scopes = server


def queue_variables(plan: ClassPlan) -> dict[str, str]:
    """Return the variables by which a seat finds the queue; none if the class has no queue."""
    return {LAB_QUEUE_URL: f"http://proxy:{names.QUEUE_RELAY_PORT}"} if plan.run_networks else {}


def end_environments(folder: ClassDir, seats: Collection[str]) -> None:
    """End the environments of some seats, for the teacher; do nothing without a queue.

    The seats have time to collect what they follow. All files stay on the seats' disks.

    Args:
        folder: The class.
        seats: The seats.

    Raises:
        LabError: The service does not answer, or does not end them in time.
    """
    plan = folder.stored().plan
    if not plan.run_networks:
        return
    url = f"http://{names.gateway(plan.proxy_network)}:{names.QUEUE_PORT}"
    queue = Queue(url, folder.tokens().service)
    until = time.monotonic() + _END_S
    for seat in _live(folder, seats):
        queue.request("DELETE", f"/environments?seat={seat}")
    while left := _live(folder, seats):
        if time.monotonic() > until:
            raise LabError(
                f"{left[0]} still has containers in the queue after {_END_S:g} s",
                "try again",
            )
        time.sleep(_POLL_S)


def end_all(folder: ClassDir) -> None:
    """End the environments of all seats, before their work is collected.

    If the service does not answer, remove the containers without it: the class must end.

    Args:
        folder: The class.

    Raises:
        LabError: The engine refuses.
    """
    if folder.is_up:
        try:
            end_environments(folder, [seat.name for seat in folder.stored().plan.seats])
        except LabError as error:
            LOG.warning(f"warning: {error}")
        else:
            return
    remove_environments(folder)


def _live(folder: ClassDir, seats: Collection[str]) -> list[str]:
    """Return those of some seats that have a live environment."""
    found = {each.seat for each in QueueDir(folder).live()}
    return [seat for seat in seats if seat in found]


def _remove(backend: ComposeBackend, project: str) -> bool:
    """Remove an environment; return whether there was one."""
    with lock_environment(backend.name, project):
        found = backend.find_any(project)  # a boot that is still under way has the lock
    if found is not None:
        found.down()
    return found is not None


def remove_environments(folder: ClassDir) -> int:
    """Remove the containers of all environments, without the service and its ledger.

    Returns:
        The number of environments that there were.

    Raises:
        LabError: The engine refuses.
    """
    if not QueueDir(folder).path.exists():
        return 0  # its service never began
    backend = ComposeBackend()
    removed, known = 0, backend.projects()
    for seat in folder.stored().plan.seats:
        project = project_name(folder.name, seat.name)
        if project in known or lock_path(backend.name, project).exists():
            removed += with_lock_retry(partial(_remove, backend, project))
            lock_path(backend.name, project).unlink(missing_ok=True)
    return removed
