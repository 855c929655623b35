"""The queue of a class for its teacher: what waits, and what holds GPUs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from lab.backends.classroom.protocol import State
from lab.classroom.queue.folder import QueueDir, capacity_of
from lab.classroom.queue.ledger import waits

if TYPE_CHECKING:
    from lab.classroom.state import ClassDir


class Queued(msgspec.Struct, frozen=True):
    """An environment that waits or has containers.

    Attributes:
        seat: Its seat.
        name: Its name in the seat's config; the student chose it.
        state: `waiting`, `granted`, `up` or `ending`.
        position: The place in its line, with or without GPUs, from 1; None: it does not wait.
        needs: The number of GPUs that it needs.
        gpus: The UUIDs of its GPUs.
        since_s: Seconds since its request or, if it does not wait, since the begin of its turn.
        wait_s: An estimate of the seconds until its turn; None: it does not wait.
    """

    seat: str
    name: str
    state: str
    position: int | None
    needs: int
    gpus: tuple[str, ...]
    since_s: float
    wait_s: float | None


def queued(folder: ClassDir) -> list[Queued] | None:
    """Return the environments in the queue of a class, those that wait last; None without a queue.

    Raises:
        LabError: The class or its ledger cannot be read.
    """
    plan = folder.stored().plan
    if not plan.run_networks:
        return None
    entries, now = QueueDir(folder).ledger().entries, time.time()
    places = waits(entries, capacity_of(plan), now)
    found = []
    for each in entries:
        if each.is_live:
            place = places.get(each.seat)
            since = each.requested_unix if place else each.granted_unix
            found.append(
                Queued(
                    seat=each.seat,
                    name=each.name,
                    state=str(each.state),
                    position=place.position if place else None,
                    needs=each.needs,
                    gpus=each.gpus,
                    since_s=max(0.0, now - since),
                    wait_s=place.seconds if place else None,
                )
            )
    return sorted(found, key=lambda each: each.state == State.WAITING)
