"""The queue of a class for the teacher's commands: its tokens, its entries, and how to end them."""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from lab.backends.classroom.protocol import Queue, State
from lab.backends.compose.backend import ComposeBackend
from lab.backends.state import lock_path, with_lock_retry
from lab.classroom import names
from lab.classroom.queue.admission import project_name
from lab.classroom.queue.host import remove
from lab.classroom.queue.ledger import Capacity, Ledger
from lab.classroom.state import ClassDir
from lab.errors import LabError
from lab.log import LOG
from lab.variables import LAB_QUEUE

TEACHER: Final = "*"
"""The teacher in place of a seat. No seat has this name."""


class Queued(msgspec.Struct, frozen=True):
    """An environment that waits or has containers.

    Attributes:
        seat: Its seat.
        state: `waiting`, `granted`, `up` or `ending`.
        position: The place in its line, with or without GPUs, from 1; None if it does not wait.
        needs: The number of GPUs that it needs.
        gpus: The UUIDs of its GPUs.
        since_s: Seconds since its state began.
    """

    seat: str
    state: str
    position: int | None
    needs: int
    gpus: tuple[str, ...]
    since_s: float


def ledger_file(folder: ClassDir) -> Path:
    """Return the file of the ledger in the directory of a class."""
    return folder.path / "queue" / "ledger.json"


def read_ledger(folder: ClassDir) -> Ledger:
    """Read the ledger of a class; without a file, it is empty.

    Raises:
        LabError: The class or the ledger cannot be read.
    """
    plan = folder.stored().plan
    networks = tuple(map(str, plan.run_networks))
    capacity = Capacity(plan.queue_gpus, networks, plan.slice_s)
    return Ledger(ledger_file(folder), capacity)


def queued(folder: ClassDir) -> list[Queued] | None:
    """Return the environments in the queue of a class, those that wait last.

    Returns:
        The environments; None if the class has no queue, or if a warning says that its ledger
        cannot be read.

    Raises:
        LabError: The class cannot be read.
    """
    if not folder.stored().plan.run_networks:
        return None
    try:
        ledger, now = read_ledger(folder), time.time()
    except LabError as error:
        LOG.warning(f"warning: {error}")
        return None
    positions = ledger.positions()
    environments = [
        Queued(
            seat=entry.seat,
            state=str(entry.state),
            position=positions.get(entry.seat),
            needs=entry.needs,
            gpus=entry.gpus,
            since_s=max(0.0, now - entry.since_unix),
        )
        for entry in ledger.entries.values()
        if entry.is_live
    ]
    return sorted(environments, key=lambda entry: entry.state == State.WAITING)


def queue_token(folder: ClassDir, name: str) -> str:
    """Return the token of a seat, or of `TEACHER`, for the queue; it reveals no other token.

    Raises:
        LabError: The tokens of the class cannot be read.
    """
    return hmac.digest(folder.tokens().service.encode(), name.encode(), "sha256").hex()


def queue_variables(folder: ClassDir, seat: str) -> dict[str, str]:
    """Return the variable by which a seat finds the queue; {} if the class has no queue.

    Raises:
        LabError: The class cannot be read.
    """
    if not folder.stored().plan.run_networks:
        return {}
    url = f"http://proxy:{names.QUEUE_RELAY_PORT}"
    return {LAB_QUEUE: f"{url} {queue_token(folder, seat)}"}


def end_environments(folder: ClassDir, seats: Collection[str]) -> None:
    """End the environments of some seats, for the teacher; do nothing without a queue.

    The seats have time to collect what they follow. All files stay on the seats' disks.

    Raises:
        LabError: The service does not answer, or does not end them in time.
    """
    plan = folder.stored().plan
    if plan.run_networks:
        url = f"http://{names.gateway(plan.proxy_network)}:{names.QUEUE_PORT}"
        queue = Queue(url, queue_token(folder, TEACHER))
        queue.end({seat: f"?seat={seat}" for seat in seats})


def remove_environments(folder: ClassDir, seats: Collection[str]) -> None:
    """Remove the containers of the environments of some seats, without the service and its ledger.

    Raises:
        LabError: The engine refuses.
    """
    if not ledger_file(folder).parent.exists():
        return  # its service never started
    backend = ComposeBackend()
    known = backend.projects()
    for project in [project_name(folder.name, seat) for seat in seats]:
        lock = lock_path(backend.name, project)
        if project in known or lock.exists():
            with_lock_retry(partial(remove, project))
            lock.unlink(missing_ok=True)
